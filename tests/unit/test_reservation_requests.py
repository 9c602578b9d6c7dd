"""Reservations of hosts as the service makes, changes and deletes them."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import UTC
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rm.adapters.cron import windows_us
from rm.adapters.playbook.catalogue import Catalogue
from rm.core.jobs import events as ev
from rm.core.model.host_reservation import HostReservation
from rm.daemon.services.maintenance import Command, Maintenance
from rm.daemon.services.reservation_service import ReservationService
from rm.errors import Conflict, Forbidden, ImpossibleRequest, NotFound, UsageError
from tests import builders
from tests.unit.test_service import PATIENCE_S, House, house

__all__ = ["house"]
SECOND, HOUR = 1_000_000, 3_600_000_000


def service(house: House) -> ReservationService:
    for name in ("h1", "h2", "h3"):
        house.do(ev.HostAdded(builders.host(name, features=("fast",) if name != "h1" else ())))
        house.do(ev.HostUp(name, "boot", "1"))
    return house.service.reservation_service


def create(
    asked: ReservationService, name: str = "r", any_file: bool = False, **wanted: Any
) -> HostReservation:
    usual = {"users": ["ann"], "lasts_us": HOUR}
    return asyncio.run(asked.create({"name": name} | usual | wanted, "ops", any_file))


def test_one_is_made_changed_and_deleted_and_kept(house: House) -> None:
    asked = service(house)
    now_us = house.clock.us
    made = create(asked, hosts=["h2"], start_us=now_us + HOUR)
    assert (made.hosts, made.windows, made.by) == (("h2",), ((now_us + HOUR, now_us + 2 * HOUR),), "ops")
    later = asyncio.run(asked.change("r", {"end_us": now_us + 4 * HOUR, "users": ["bob"]}, "ops"))
    assert (later.users, later.windows) == (("bob",), ((now_us + HOUR, now_us + 4 * HOUR),))
    assert [name for name, _ in house.store.load().documents] == ["reservation/r"]
    assert asyncio.run(asked.delete("r", "ops")).name == "r"
    assert asyncio.run(asked.reservations()) == []
    assert house.store.load().documents == ()


def test_hosts_are_chosen_that_keep_nobody_from_his_plans(house: House) -> None:
    asked = service(house)
    assert create(asked, "a", count=1, features="fast").hosts == ("h2",)
    assert create(asked, "b", count=1, features="fast").hosts == ("h3",)
    with pytest.raises(Conflict, match="Reservation a has h2"):
        create(asked, "c", hosts=["h2"])
    assert create(asked, "c", hosts=["h2"], maint=True).hosts == ("h2",), "maintenance may overlap"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"users": []}, "for nobody"),
        ({"lasts_us": 0}, "has no end"),
        ({"end_us": 10**15}, "has an end and a duration"),
        ({"lasts_us": 0, "end_us": 1}, "would end at"),
        ({"start_us": 1, "lasts_us": 5}, "over already"),
        ({"name": "a b"}, "no name of a reservation"),
        ({"count": 4}, "4 hosts, and 3 are such"),
        ({"zone": "nowhere"}, "No host"),
        ({"cron": "0 * * * *", "end_us": 10**15}, "comes again has no end"),
        ({"playbook": "drain.yml"}, "Only maintenance"),
    ],
)
def test_what_cannot_be_is_refused_by_a_sentence(house: House, wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        create(service(house), **wanted)
    with pytest.raises(NotFound, match="no host 'x'"):
        create(house.service.reservation_service, hosts=["x"])


def test_jobs_that_may_run_into_it_are_named(house: House) -> None:
    asked = service(house)
    house.do(ev.JobSubmitted(1, builders.spec()))
    with pytest.raises(Conflict, match=r"may not be over by .*: 1 \(alice\)"):
        create(asked, hosts=["h1"])
    assert create(asked, hosts=["h1"], ignore_jobs=True).hosts == ("h1",)


def test_a_job_of_no_such_reservation_is_refused(house: House) -> None:
    asked = service(house)
    create(asked, hosts=["h1"], users=["ann"])
    submit = house.service.submissions.submit
    for spec, said in (
        ({"reservation": "x"}, "no reservation 'x'"),
        ({"reservation": "r", "user": "bob"}, "not for bob"),
        ({"reservation": "r", "user": "ann", "hosts_only": ("h2",)}, "could never run in reservation r"),
    ):
        with pytest.raises(ImpossibleRequest, match=said):
            asyncio.run(submit([builders.spec(**spec)]))
    (number,) = asyncio.run(submit([builders.spec(reservation="r", user="ann")]))
    with pytest.raises(Conflict, match=f"Jobs of the reservation r run: {number}"):
        asyncio.run(asked.delete("r", "ops"))


def test_cron_names_the_windows(house: House) -> None:
    house.service.reservation_service._windows_of = partial(windows_us, UTC)
    asked = service(house)
    made = create(asked, cron="0 * * * *", lasts_us=60 * SECOND)
    assert len(made.windows) == 16
    assert {begins % HOUR for begins, _ in made.windows} == {0}
    with pytest.raises(UsageError, match="begins again before"):
        create(asked, "s", cron="0 * * * *", lasts_us=2 * HOUR)
    for wrong in ("@daily", "61 * * * *", "0 0 31 2 *"):
        with pytest.raises(UsageError, match=f"The cron expression '{re.escape(wrong)}'"):
            create(asked, "s", cron=wrong, lasts_us=60 * SECOND)
        with pytest.raises(UsageError, match=f"The cron expression '{re.escape(wrong)}'"):
            asyncio.run(asked.change("r", {"cron": wrong}, "ops"))
    house.do(
        ev.ReservationSet(HostReservation("r", ("h1",), made.windows[:2], ("ann",), made.cron, made.lasts_us))
    )
    asked.renew()
    assert asyncio.run(asked.reservations())[0].windows[:16] == made.windows


def test_a_reservation_of_whole_days_goes_on_where_clocks_change(house: House) -> None:
    """In Berlin the 28th of March 2027 has 23 hours, and the 31st of October 25."""
    house.service.reservation_service._windows_of = partial(windows_us, ZoneInfo("Europe/Berlin"))
    asked, day = service(house), 24 * HOUR
    march, october = 1_806_102_000 * SECOND, 1_824_760_800 * SECOND  # the 27th and the 29th, 0:00
    create(asked, "r", cron="0 0 * * *", lasts_us=day, start_us=march - SECOND)
    asyncio.run(asked.delete("r", "ops"))
    for name, begins_us in (("spring", march), ("autumn", october)):
        house.do(
            ev.ReservationSet(
                HostReservation(name, ("h1",), ((begins_us, begins_us + day),), ("ann",), "0 0 * * *", day)
            )
        )
    asked.renew()
    spring, autumn = (
        {one.name: one.windows for one in asyncio.run(asked.reservations())}[name]
        for name in ("spring", "autumn")
    )
    assert [(end - begin) // HOUR for begin, end in spring[:4]] == [24, 23, 24, 24]
    assert all(end == begin for (_, end), (begin, _) in pairwise(spring))
    assert [(end - begin) // HOUR for begin, end in autumn[:4]] == [24, 24, 25, 24]
    assert all(end == begin for (_, end), (begin, _) in pairwise(autumn))


def test_only_an_administrator_says_when_and_where_a_playbook_runs(house: House) -> None:
    asked = service(house)
    maintenance = {"users": [], "maint": True, "playbook": "burn_in", "hosts": ["h1"]}
    made = create(asked, "m", start_us=house.clock.us + HOUR, **maintenance)
    later: list[dict[str, Any]] = [
        {"hosts": ["h1", "h2"]}, {"start_us": house.clock.us + 1}, {"cron": "* * * * *"}, {"playbook": ""},
    ]  # fmt: skip
    for wanted in later:
        with pytest.raises(Forbidden, match="A playbook runs in reservation m"):
            asyncio.run(asked.change("m", wanted, "ops"))
    assert asyncio.run(asked.reservations()) == [made]
    assert asyncio.run(asked.change("m", later[0], "admin", may_play=True)).hosts == ("h1", "h2")
    assert asyncio.run(asked.delete("m", "ops")).name == "m"  # nothing runs then


@pytest.mark.parametrize("playbook", ["/nowhere/kernel.yml", "burn_in/x", "./burn_in.yml", "nosuch", "a.yml"])
def test_a_playbook_that_is_not_there_is_refused_before_its_window(house: House, playbook: str) -> None:
    asked = service(house)
    with pytest.raises(UsageError, match=f"There is no playbook '{playbook}'"):
        create(asked, "m", True, users=[], maint=True, playbook=playbook, hosts=["h1"])
    create(asked, "m", users=[], maint=True, playbook="burn_in", hosts=["h1"])
    with pytest.raises(UsageError, match=f"There is no playbook '{playbook}'"):
        asyncio.run(asked.change("m", {"playbook": playbook}, "admin", may_play=True, any_file=True))


def test_only_whose_machine_it_is_lets_any_file_run_on_it(house: House, tmp_path: Path) -> None:
    asked, wanted = service(house), {"users": [], "maint": True, "hosts": ["h1"]}
    folder, own = tmp_path / "playbooks", tmp_path / "own.yml"
    folder.mkdir(0o755)
    listed = folder / "kernel.yml"
    for file in (own, listed):
        file.write_text("- hosts: all\n")
    (folder / "link.yml").symlink_to(own)
    (folder / "burn_in.yml").symlink_to(own)
    asked._check_playbook = Catalogue(str(folder), ["burn_in"]).check_maintenance
    for path in (own, "/etc/hostname", "own.yml/..", f"{folder}/../own.yml", f"{folder}/link.yml",
                 f"{folder}/burn_in.yml", f"{folder}/nosuch.yml"):  # fmt: skip
        with pytest.raises((Forbidden, NotFound), match="no playbook"):
            create(asked, "m", **wanted, playbook=str(path))
    assert create(asked, "m", **wanted, playbook=str(listed)).playbook == str(listed)
    with pytest.raises(Forbidden, match="no playbook of its folder"):
        asyncio.run(asked.change("m", {"playbook": str(own)}, "admin", may_play=True))
    listed.chmod(0o666)
    with pytest.raises(Forbidden, match="Others than root"):
        create(asked, "n", **wanted, playbook=str(listed), lasts_us=1)
    changed = asyncio.run(asked.change("m", {"playbook": str(own)}, "root", may_play=True, any_file=True))
    assert changed.playbook == str(own)
    own.chmod(0o666)
    with pytest.raises(Forbidden, match="Others than root"):
        create(asked, "n", any_file=True, **wanted, playbook=str(own), lasts_us=1)
    own.chmod(0o644)
    tmp_path.chmod(0o1777)  # where anybody may put roles and variables beside it
    with pytest.raises(Forbidden, match="Others than root"):
        create(asked, "n", any_file=True, **wanted, playbook=str(own), lasts_us=1)
    tmp_path.chmod(0o755)
    folder.chmod(0o1777)
    listed.chmod(0o644)
    with pytest.raises(Forbidden, match="Others than root"):
        create(asked, "n", **wanted, playbook=str(listed), lasts_us=1)


def maintenance(house: House, command: Command, folder: Path) -> Maintenance:
    check = Catalogue("").check_unchanged
    return Maintenance(house.leader, command=command, logs=folder / "maintenance", check=check)


def played(runs: Maintenance) -> None:
    runs.begin()
    for thread in threading.enumerate():
        if thread.name == "maintenance m":
            thread.join(PATIENCE_S)


def test_a_playbook_that_others_may_write_since_does_not_run(house: House, tmp_path: Path) -> None:
    asked, own = service(house), tmp_path / "own.yml"
    own.write_text("- hosts: all\n")
    asked._check_playbook = Catalogue("").check_maintenance

    def command(playbook: str, hosts: str) -> list[str]:
        raise AssertionError(f"{playbook} ran")

    create(asked, "m", users=[], maint=True, hosts=["h1"], playbook=str(own), any_file=True)
    own.chmod(0o666)
    played(maintenance(house, command, tmp_path))
    (made,) = asyncio.run(asked.reservations())
    assert made.result.startswith(
        f"could not be started: Others than root and the daemon's user may write {own}"
    )


def test_a_playbook_runs_once_in_a_window_when_no_job_is_left(house: House, tmp_path: Path) -> None:
    asked, started = service(house), []

    def command(playbook: str, hosts: str) -> list[str]:
        started.append((playbook, hosts))
        return ["sh", "-c", "echo it is done; exit 3"]

    runs = maintenance(house, command, tmp_path)
    house.do(ev.JobSubmitted(1, builders.spec(hosts_only=("h1",))))
    wanted = {"users": [], "maint": True, "playbook": "burn_in", "ignore_jobs": True}
    create(asked, "m", hosts=["h1", "h2"], **wanted)
    runs.begin()
    assert started == [], "a job is there"
    house.do(ev.TasksStarted(1, 1, "h1", 5, (0,)))
    house.do(ev.TaskExited(1, 1, "h1", 0, 0, 0, 5, 6))
    runs.begin()
    played(runs)
    assert started == [("burn_in", "h1,h2")]
    (made,) = asyncio.run(asked.reservations())
    assert made.result.startswith("failed with code 3")
    assert (tmp_path / "maintenance" / "m.log").read_text() == "it is done\n"
