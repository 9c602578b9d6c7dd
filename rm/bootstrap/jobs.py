"""From decisions to hosts: the leader, its executor, the leases of jobs, and the regulator."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rm import __version__
from rm.adapters.cron import Timers
from rm.bootstrap.choices import letters_of, named_policies, tuning_of
from rm.bootstrap.ground import Ground
from rm.bootstrap.process import log_place, log_reserve_bytes
from rm.config import Config, options_for
from rm.core.jobs.lifecycle import Rules
from rm.core.jobs.published import Published
from rm.core.jobs.state import ClusterState
from rm.core.journal.journal import Recorder
from rm.core.model.logs import LogPlace
from rm.core.model.network.alignment import Alignment
from rm.core.ports import admits
from rm.core.scheduling.cycle import Cycle
from rm.core.scheduling.engine import Policies
from rm.daemon.alerts.unended import EVERY_S, Unended
from rm.daemon.execution.deliver import Deliverer, deliveries
from rm.daemon.execution.executor import Executor
from rm.daemon.execution.fence import Ids, fence_of
from rm.daemon.execution.greeting import Memory
from rm.daemon.execution.launch import LaunchRules, launch_request
from rm.daemon.execution.leadership import Leadership
from rm.daemon.execution.log_home import LogHome
from rm.daemon.execution.mailing import Mailer
from rm.daemon.execution.renewing import Renewer
from rm.daemon.execution.step_book import StepBook
from rm.daemon.execution.streams import Streams
from rm.daemon.leading.inbox import Inbox
from rm.daemon.leading.leader import Leader
from rm.daemon.leading.listeners import Listeners
from rm.daemon.leading.witness import Witness
from rm.daemon.regulation.admission import Admission
from rm.daemon.regulation.demands import demand_model
from rm.daemon.regulation.regulator import Regulator
from rm.daemon.services.backlog import Backlog
from rm.daemon.services.job_waiters import JobWaiters
from rm.daemon.services.usage_totals import UsageTotals
from rm.policies.regulate.controller import ControllerOptions
from rm.units import SECOND_US


@dataclass(frozen=True, slots=True)
class Jobs:
    """What decides about jobs, and carries it out."""

    leader: Leader
    executor: Executor
    regulator: Regulator
    admission: Admission
    renewer: Renewer
    streams: Streams
    backlog: Backlog
    waiters: JobWaiters
    totals: UsageTotals
    logs: LogPlace
    published: Published


def wire_jobs(*, ground: Ground, policies: Policies, witness: Witness) -> Jobs:
    """The parts post to the leader's inbox, which is made first; the leader knows them all."""
    config, state, lease = ground.config, ground.state, ground.lease
    inbox, published = Inbox(), Published(state)
    gathered, logs = log_place(config, ground.store)
    regulator = Regulator(
        agents=ground.fleet,
        post=inbox.post,
        clock=ground.clock,
        options=options_for(config, "regulate", ControllerOptions),
        shaping=config.shaping,
        dscp=config.fabric.dscp,
        epoch=lease.epoch,
        demand=demand_model(policies.comm),
    )
    admitting = policies.comm if admits(policies.comm) else None
    admission = Admission(policy=admitting, agents=ground.fleet, clock=ground.clock, epoch=lease.epoch)

    def aligned(alignment: Alignment, state: ClusterState) -> None:
        regulator.aligned(alignment, state)
        admission.aligned(alignment, state)

    executor = Executor(
        hosts=ground.fleet,
        post=inbox.post,
        clock=ground.clock,
        leadership=Leadership(
            epoch=lease.epoch,
            confirmed=lambda: ground.store.epoch() == lease.epoch,
            on_deposed=ground.fail,
            may_act=lambda: lease.holds,
        ),
        launch_of=launch_request(state, launch_rules(config), lease.epoch),
        home=LogHome(
            ground.fleet,
            logs,
            gathered,
            max_bytes=config.jobs.max_log_bytes,
            reserve_bytes=log_reserve_bytes(config, gathered),
        ),
        placed=published.task,
        is_stray=published.is_stray,
        launch_within_us=int(config.hosts.down_after_s * SECOND_US) // 2,
        slice_us=int(config.jobs.slice_s * SECOND_US),
        on_iterations=regulator.iterations,
        on_communication=admission.communication,
        owner_of=lambda job: state.jobs[job].spec.user if job in state.jobs else "",
        delivery_of=deliveries(state, os.uname().nodename, config.jobs.deliver),
        deliverer=Deliverer(logs, config.jobs.deliver),
        mailer=Mailer(letters_of(config), config.jobs.cluster_name),
        memory=Memory(published.unsure, int(config.hosts.remember_ends_s)),
        steps=StepBook(
            hosts=ground.fleet,
            clock=ground.clock,
            placed=published.task,
            keep=lambda steps: leader.keep_steps(steps),
        ),
    )
    streams = Streams(
        hosts=ground.fleet, epoch=lease.epoch, hosts_of=published.hosts_of, may_act=lambda: lease.holds
    )
    renewer = Renewer(
        hosts=ground.fleet,
        epoch=lease.epoch,
        is_heard=published.is_heard,
        may_act=lambda: lease.holds,
    )
    totals = UsageTotals()
    limits = config.limits
    backlog = Backlog(limits.pending_jobs, limits.pending_bytes, limits.pending_demands)
    waiters = JobWaiters()
    leader = Leader(
        inbox=inbox,
        cycle=Cycle(state, policies, rules=rules_of(config), tuning=tuning_of(config)),
        store=ground.store,
        version=ground.loaded.version,
        clock=ground.clock,
        executor=executor,
        recorder=Recorder(__version__, named_policies(config)),
        recent_us=ground.recent_us,
        listeners=Listeners(
            on_commit=witness.note,
            on_jobs=(renewer.jobs_changed, backlog.changed, waiters.changed),
            on_ended=totals.add,
            on_alignment=aligned,
            on_fatal=ground.fail,
        ),
        published=published,
    )
    renewer.jobs_changed(state.jobs.values())
    backlog.changed(state.jobs.values())
    return Jobs(
        leader=leader,
        executor=executor,
        regulator=regulator,
        admission=admission,
        renewer=renewer,
        streams=streams,
        backlog=backlog,
        waiters=waiters,
        totals=totals,
        logs=logs,
        published=published,
    )


def rules_of(config: Config) -> Rules:
    return Rules(
        grace_us=int(config.jobs.grace_s * SECOND_US),
        down_after_us=int(config.hosts.down_after_s * SECOND_US),
        max_losses=config.jobs.max_losses,
        cancel_never=config.jobs.dependency_never == "cancel",
        max_requeues=config.jobs.max_requeues,
    )


def launch_rules(config: Config) -> LaunchRules:
    return LaunchRules(
        grace_us=int(config.jobs.grace_s * SECOND_US),
        allow_root=config.jobs.allow_root,
        run_root_as=config.jobs.run_root_as,
        cluster_name=config.jobs.cluster_name,
        gpu_indices=config.jobs.gpu_ids == "index",
        libraries=config.hosts.agent_dir,
        fence=fence_of(config.fence),
        log_bytes=config.jobs.max_log_bytes,
        log_reserve_bytes=config.hosts.log_reserve_mb << 20,
        prolog=config.jobs.prolog,
        epilog=config.jobs.epilog,
        program_us=int(config.jobs.program_s * SECOND_US),
        ids_of=Ids() if config.fence.check_ids else lambda user: None,
    )


def watch_ends(*, ground: Ground, jobs: Jobs, timers: Timers) -> None:
    asked = ground.config.jobs
    if asked.unkillable_s:
        after_s = asked.program_s + asked.unkillable_s
        unended = Unended(jobs.leader, ground.clock, grace_s=asked.grace_s, after_s=after_s)
        timers.every(EVERY_S, "jobs that do not end", unended.look)
