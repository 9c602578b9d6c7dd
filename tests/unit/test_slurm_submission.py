"""`sbatch` on rm's client, and the programs that `rmx slurm-shims` writes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rm.cli import program_files
from rm.cli.jobs.run import How
from rm.cli.session import Session
from rm.cli.slurm.program import ABSENT, PROGRAMS
from rm.cli.slurm.refusals import WORDS
from rm.core.model.acceptance import SUBMIT_LINE_BYTES
from rm.core.model.job import JobState
from rm.errors import ImpossibleRequest, Refusal
from tests.command_line import HEAVY, Rmx
from tests.fake_service import Daemon
from tests.slurm_program import Slurm

TYPES = {"click", "msgspec", "http.client", "ssl", "email", "rm.api.jobs", "rm.client.client"}


@pytest.fixture(autouse=True)
def script(daemon: Daemon) -> None:
    Path("plain.sh").write_text("#!/bin/sh\nhostname\n")


def test_a_job_is_submitted_as_by_sbatch(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("sbatch", "plain.sh", "--lr", "1") == (0, "Submitted batch job 1\n", "")
    assert slurm("sbatch", "--parsable", "-n2", "-J", "wide", "plain.sh") == (0, "2\n", "")
    first, second = daemon.service.table[1].spec, daemon.service.table[2].spec
    assert (first.name, first.script_args, first.output) == ("plain.sh", ("--lr", "1"), "slurm-%j.out")
    assert (second.name, second.ntasks) == ("wide", 2)


def test_the_own_cluster_may_be_named(slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    assert slurm("sbatch", "-M", "RM", "plain.sh").out == "Submitted batch job 1 on cluster rm\n"
    Path("own.sh").write_text("#!/bin/sh\n#SBATCH -M all\ntrue\n")
    assert slurm("sbatch", "--parsable", "own.sh").out == "2;rm\n"
    monkeypatch.setenv("SLURM_CLUSTERS", "rm")
    for list_of in ("squeue", "sinfo", "sshare"):
        assert slurm(list_of).out.startswith("CLUSTER: rm\n")
        assert "CLUSTER" not in slurm(list_of, "-h").out
    assert slurm("scancel", "1") == (0, "", "")


OTHER = "No cluster 'other' known by database. The cluster of this daemon is 'rm'."


@pytest.mark.parametrize(
    "line",
    ["sbatch -M other plain.sh", "sbatch -M rm,other plain.sh", "srun -M other true", "salloc -M other true",
     "scancel -M other 1", "sinfo -M other", "sprio -M other", "sshare -M other"],
)  # fmt: skip
def test_another_cluster_is_refused(line: str, slurm: Slurm, daemon: Daemon) -> None:
    name, *words = line.split()
    refused = slurm(name, *words)
    assert (refused.code, refused.out) == (1, "")
    assert OTHER in refused.err
    assert not daemon.service.table


def test_the_output_lies_where_slurm_puts_it(slurm: Slurm, daemon: Daemon) -> None:
    Path("own.sh").write_text("#!/bin/sh\n#SBATCH -o own-%j.txt\ntrue\n")
    for words in (["plain.sh"], ["own.sh"], ["-o", "flag", "own.sh"], ["-a", "0-3", "plain.sh"]):
        assert slurm("sbatch", *words).code == 0
    found = [job.spec.output for job in daemon.service.table.values()]
    assert found == ["slurm-%j.out", "own-%j.txt", "flag", "slurm-%A_%a.out"]


def test_hosts_may_stand_in_a_file(slurm: Slurm, daemon: Daemon) -> None:
    """As in Slurm: a list with a slash is a file, and --nodefile beats --nodelist."""
    Path("two").write_text("# of rack 1\nh[1-2],h2\n\nh1*4 # twice\n")
    Path("own.sh").write_text("#!/bin/sh\n#SBATCH -w ./two\ntrue\n")
    several = (
        ["-w", "./two", "plain.sh"], ["own.sh"], ["-F", "two", "plain.sh"],
        ["-F", "two", "-w", "h9", "plain.sh"],
    )  # fmt: skip
    for words in several:
        assert slurm("sbatch", *words).code == 0, words
    jobs = [job.spec for job in daemon.service.table.values()]
    assert [(spec.hosts_only, spec.hosts_min) for spec in jobs] == [(("h1", "h2"), 2)] * len(several)
    assert slurm("sbatch", "-x", "./two", "plain.sh").code == 0
    assert daemon.service.table[5].spec.hosts_excluded == ("h1", "h2")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory."),
        (b"# nobody\n", "names none."),
        (b"h1\n-x\n", ": '-x' is not a host name."),
        (b"h[3-1]\n", ": '3-1' is not a range in the host list"),
        (b"\xff\n", "is not UTF-8 text."),
        (b"h1\n" * 400_000, "is larger than 1 MiB."),
    ],
)
def test_a_file_of_hosts_that_is_none_is_named(
    slurm: Slurm, daemon: Daemon, content: bytes | None, said: str
) -> None:
    if content is not None:
        Path("few").write_bytes(content)
    done = slurm("sbatch", "-w", "./few", "plain.sh")
    assert done.code == 1
    assert f"The file of hosts ./few{'' if said.startswith(':') else ' '}{said}" in done.err
    assert not daemon.service.table


def test_the_script_runs_once_unless_it_says_otherwise(slurm: Slurm, daemon: Daemon, rmx: Rmx) -> None:
    Path("tasks.sh").write_text("#!/bin/sh\n#RM --launch=tasks\ntrue\n")
    assert slurm("sbatch", "-n4", "plain.sh").code == 0
    assert slurm("sbatch", "-n4", "tasks.sh").code == 0
    assert rmx("submit", "-n4", "plain.sh").code == 0
    assert [job.spec.launch for job in daemon.service.table.values()] == ["batch", "tasks", "tasks"]


def test_a_command_and_the_standard_input_are_scripts(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slurm("sbatch", "--wrap", "sleep 1 && date").code == 0
    piped = SimpleNamespace(buffer=io.BytesIO(b"#!/bin/bash\n#SBATCH -J piped\ntrue\n"))
    monkeypatch.setattr(sys, "stdin", piped)
    assert slurm("sbatch").code == 0
    first, second = daemon.service.table[1].spec, daemon.service.table[2].spec
    assert (first.name, first.script.splitlines()[-1]) == ("wrap", "sleep 1 && date")
    assert (second.name, second.script.splitlines()[-1]) == ("piped", "true")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--foo", "plain.sh"], 255, "Unknown option --foo"),
        (["-t", "soon", "plain.sh"], 255, "'soon' is not a time limit."),
        (["--gpu-bind=foo", "plain.sh"], 255, "--gpu-bind=foo is not supported."),
        (["-n", "many", "plain.sh"], 1, "--ntasks is 'many'"),
        (["--switches=x", "plain.sh"], 1, "--switches is 'x'."),
        (["nowhere.sh"], 1, "The script nowhere.sh cannot be read: No such file or directory."),
        (["--wrap", "true", "plain.sh"], 1, "Script arguments are not permitted with --wrap."),
        (["--wrap", " "], 1, "--wrap is empty."),
        (["--network=r", "plain.sh"], 255, "--network (a flag) is not supported"),
        (["-n", "101", "plain.sh"], 1, "Batch job submission failed: The cluster has 2 hosts."),
        (["-a", "5-1", "plain.sh"], 1, "Batch job submission failed: Invalid job array specification. --a"),
        (["-d", "foo:1", "plain.sh"], 1, "Batch job submission failed: Job dependency problem. --dependen"),
        (["-L", "a:x", "plain.sh"], 1, "Batch job submission failed: Invalid license specification. --lic"),
        (["--gres=fpga:1", "plain.sh"], 1, "Batch job submission failed: Invalid generic resource (gres)"),
    ],
    ids=str,
)
def test_what_is_wrong_is_an_error_of_sbatch(
    words: list[str], code: int, sentence: str, slurm: Slurm, daemon: Daemon
) -> None:
    """With the codes that sbatch of Slurm 22.05 ends with."""
    done = slurm("sbatch", *words)
    assert (done.code, done.out) == (code, "")
    assert f"sbatch: error: {sentence}" in done.err
    assert not daemon.service.table


def test_what_has_no_effect_is_a_warning(slurm: Slurm) -> None:
    done = slurm("sbatch", "--spread-job", "plain.sh")
    assert (done.code, done.out) == (0, "Submitted batch job 1\n")
    assert done.err == "sbatch: warning: --spread-job (a flag) is not supported and was ignored.\n"


def test_it_waits_for_the_end_and_has_the_jobs_code(slurm: Slurm, daemon: Daemon) -> None:
    daemon.call(daemon.service.finish, 1, 3, waiting=1)
    assert slurm("sbatch", "--wait", "plain.sh") == (3, "Submitted batch job 1\n", "")


def test_it_ends_with_1_when_a_signal_ended_the_job(slurm: Slurm, daemon: Daemon) -> None:
    def end() -> None:
        daemon.service.finish(1, 0)
        daemon.service.put(1, state=JobState.FAILED, exit_signal=9)

    daemon.call(end, waiting=1)
    assert slurm("sbatch", "--wait", "plain.sh") == (1, "Submitted batch job 1\n", "")


def test_a_job_has_no_more_hosts_than_tasks(slurm: Slurm, daemon: Daemon) -> None:
    said = "sbatch: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n"
    assert slurm("sbatch", "-N2", "-n1", "plain.sh") == (0, "Submitted batch job 1\n", said)
    assert daemon.service.table[1].spec.hosts_max == 1


def test_a_trial_says_where_and_submits_nothing(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("sbatch", "--test-only", "plain.sh").code == 0
    not_now = slurm("sbatch", "--test-only", "-c", "9", "plain.sh")
    assert not_now.code == 0
    assert "No host has 9 free processors." in not_now.out + not_now.err
    assert not daemon.service.table


def test_each_program_says_its_version_and_refuses_unknown_options(slurm: Slurm) -> None:
    for name in PROGRAMS:
        assert slurm(name, "--version").out.startswith("slurm 22.05.8 by rm ")
        assert slurm(name, "--help").out.startswith(f"Usage: {name} ")
        unknown = slurm(name, "--colour=red")
        assert unknown.code == (255 if name in ("sbatch", "srun", "salloc") else 1)
        assert unknown.err.startswith(f"{name}: error: ")


def test_commands_without_a_counterpart_name_what_does_nearly_the_same(slurm: Slurm) -> None:
    for name in ABSENT:
        done = slurm(name, "--set")
        assert (done.code, done.out) == (1, "")
        assert f"error: rm has no {name}. " in done.err


def test_the_programs_run_from_their_directory(daemon: Daemon, rmx: Rmx, tmp_path: Path) -> None:
    folder = tmp_path / "shims"
    assert rmx("slurm-shims", str(folder)).code == 0
    assert rmx("slurm-shims", str(folder)).code == 0  # ours may be written again
    assert sorted(path.name for path in folder.iterdir()) == sorted({*PROGRAMS, *ABSENT})
    (tmp_path / "rm.py").write_text("raise SystemExit('not this one')")
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    line = "sbatch --parsable plain.sh && squeue -h -o %i && sbatch --foo plain.sh"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (255, "1\n1\n")
    assert "sbatch: error: Unknown option --foo" in done.stderr


def test_srun_is_the_jobs_own(slurm: Slurm, rmx: Rmx, tmp_path: Path) -> None:
    ours, jobs = tmp_path / "ours", tmp_path / "jobs"
    rmx("slurm-shims", str(ours))
    jobs.mkdir()
    (jobs / "srun").write_text('#!/bin/sh\necho "own: $*"\n')
    (jobs / "srun").chmod(0o755)

    def inside(*folders: Path) -> str:
        path = ":".join(map(str, folders))  # and none of a Slurm that this machine may have
        env = os.environ | {"PATH": path, "SLURM_JOB_ID": "1"}
        done = subprocess.run(["srun", "-n", "2", "a b"], capture_output=True, text=True, env=env)
        return done.stdout + done.stderr

    assert inside(ours, jobs) == inside(jobs, ours) == "own: -n 2 a b\n"
    assert inside(ours).startswith("srun: error: This job's host has no srun.")


def test_without_a_terminal_a_new_job_has_none(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, Sequence[str]]] = []

    def run_command(
        session: Session, flags: Mapping[str, Any], how: How, command: Sequence[str], prefix: str
    ) -> int:
        asked.append((how.terminal, command))
        return 3

    monkeypatch.setattr("rm.cli.jobs.run.run_command", run_command)
    done = slurm("srun", "--pty", "tty", "-s")
    assert (done.code, done.out, asked) == (3, "", [(False, ["tty", "-s"])])
    assert done.err.splitlines() == [
        "srun: error: ioctl(TIOCGWINSZ): Inappropriate ioctl for device",
        "srun: error: Not using a pseudo-terminal, disregarding --pty option",
    ]
    # its input may be a file or pipe: Slurm's looks at the output alone
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 1)
    assert (slurm("srun", "--pty", "tty").err, asked[1:]) == ("", [(True, ["tty"])])


def test_variables_are_options_of_srun_as_slurms(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[Mapping[str, Any], How, str]] = []

    def run_command(
        session: Session, flags: Mapping[str, Any], how: How, command: Sequence[str], prefix: str
    ) -> int:
        found.append((flags, how, prefix))
        return 0

    monkeypatch.setattr("rm.cli.jobs.run.run_command", run_command)
    set_now = {
        "SLURM_NTASKS": "2", "SLURM_NPROCS": "7", "SLURM_PARTITION": "fast", "SLURM_TIMELIMIT": "5",
        "SLURM_LABELIO": "1", "SLURM_UNBUFFEREDIO": "0", "SLURM_WAIT": "3", "SLURM_KILL_BAD_EXIT": "1",
        "SLURM_STDOUTMODE": "o_%j", "SLURM_MPI_TYPE": "pmi2", "SRUN_CPUS_PER_TASK": "4",
        "SLURM_CORE_SPEC": "1", "SBATCH_ACCOUNT": "x", "SLURM_HINT": "nomultithread",
    }  # fmt: skip
    for name, value in set_now.items():
        monkeypatch.setenv(name, value)
    assert slurm("srun", "-p", "slow", "true") == (0, "", "")
    flags, how, prefix = found.pop()
    assert flags == {
        "ntasks": "2", "partition": "slow", "time": "5", "cpus_per_task": "4",
        "core_spec": "1",  # which is refused with the job
    }  # fmt: skip
    assert (how.label, how.unbuffered, how.kill_on_bad_exit, prefix) == (True, False, True, "")
    assert how.options == ["--mpi=pmi2", "--output=o_%j", "--wait=3"]


def test_another_program_of_the_name_stays(rmx: Rmx, tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    refused = rmx("slurm-shims", str(tmp_path))
    assert refused.code == 6
    assert f"{tmp_path}/squeue is another program." in refused.err
    assert not (tmp_path / "sbatch").exists()
    assert "cannot be written" in rmx("slurm-shims", "/proc/nowhere").err


def test_an_interpreter_with_a_space_in_its_path_is_found(tmp_path: Path) -> None:
    python = tmp_path / "with space" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    program = tmp_path / "program"
    program.write_text(
        f"{program_files.start(str(python))}\nimport sys\nprint(sys.flags.isolated, *sys.argv[1:])\n"
    )
    program.chmod(0o755)
    done = subprocess.run([program, "a b"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1 a b\n", "")


@pytest.mark.parametrize("words", [("sbatch", "plain.sh"), ("squeue",)], ids=" ".join)
def test_nothing_heavy_is_loaded(words: tuple[str, ...], daemon: Daemon) -> None:
    code = (
        f"import sys; sys.argv = {list(words)}; from rm.cli.slurm.program import command_line\n"
        f"code = command_line('{words[0]}'); print(code, sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    "words",
    [("sinfo",), ("sinfo", "-N"), ("sacct",), ("sacct", "-j1"), ("scontrol", "show", "job", "1"),
     ("scontrol", "show", "node")],
)  # fmt: skip
def test_lists_load_no_types_of_the_api(words: tuple[str, ...], daemon: Daemon, rmx: Rmx) -> None:
    rmx("submit", "plain.sh")
    code = (
        f"import sys; sys.argv = {list(words)}; from rm.cli.slurm.program import command_line\n"
        f"code = command_line('{words[0]}'); print(code, sorted({TYPES} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_long_names_may_be_abbreviated_as_getopt_reads_them(slurm: Slurm, daemon: Daemon) -> None:
    Path("short.sh").write_text("#!/bin/sh\n#SBATCH --job=abbreviated --comm note\ntrue\n")
    assert slurm("sbatch", "--mem-per-c", "10", "--no-req", "short.sh").code == 0
    spec = daemon.service.table[1].spec
    assert (spec.name, spec.comment, spec.requeue) == ("abbreviated", "note", False)
    assert spec.mem_bytes_per_task == 10 << 20
    assert (
        "Unknown option --ntask (a flag), which is ambiguous" in slurm("sbatch", "--ntask=2", "short.sh").err
    )


def test_two_hyphens_end_the_options(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("sbatch", "--parsable", "--", "plain.sh", "-n", "4") == (0, "1\n", "")
    assert daemon.service.table[1].spec.script_args == ("-n", "4")


def test_a_quiet_one_says_nothing_but_errors(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("sbatch", "-Q", "--tmp=1G", "plain.sh") == (0, "", "")
    assert slurm("sbatch", "-v", "plain.sh").err == ""
    assert "--bb" in slurm("sbatch", "-Q", "--bb=x", "plain.sh").err
    assert len(daemon.service.table) == 1 + 1


def test_an_empty_standard_input_is_said(
    slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert slurm("sbatch").err == "sbatch: error: The script on standard input is empty.\n"


def test_the_code_of_a_failure_can_be_chosen(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for chosen, code in (("77", 77), ("0", 1), ("²", 1), ("9" * 5000, 1), ("none", 1), ("", 1)):
        monkeypatch.setenv("SLURM_EXIT_ERROR", chosen)
        assert slurm("sbatch", "nowhere.sh").code == code
        assert slurm("sbatch", "--no-such", "--wrap", "true").code == 255
        assert slurm("squeue", "--no-such").code == 1  # which has no such variable


@pytest.mark.parametrize("refusal", [None, *Refusal])
def test_refusals_begin_with_slurms_words(refusal: Refusal | None, slurm: Slurm, daemon: Daemon) -> None:
    """Which are chosen by the kind of the refusal that the daemon tells, and not by its sentence."""
    daemon.service.refuses = ImpossibleRequest("There is no partition x.", "See `rmx hosts`.", refusal)
    words = WORDS.get(refusal, "") if refusal else ""
    for name, failed in (
        ("sbatch", "Batch job submission failed"),
        ("salloc", "Job submit/allocate failed"),
        ("srun", "Unable to allocate resources"),
    ):
        done = slurm(name, *(["--wrap"] if name == "sbatch" else []), "true")
        assert (done.code, done.out) == (1, "")
        begins = f"{failed}: {words}. " if words else f"{failed}: " if name == "sbatch" else ""
        assert done.err == f"{name}: error: {begins}There is no partition x. See `rmx hosts`.\n"


def test_a_daemon_that_is_not_there_is_slurms_controller_that_is_not(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RM_DAEMON__SOCKET", "/nowhere.sock")
    said = slurm("sbatch", "--wrap", "true").err
    assert "failed: Unable to contact slurm controller (connect failure). No daemon listens" in said


def test_a_beginning_of_several_options_is_ambiguous(slurm: Slurm) -> None:
    done = slurm("sbatch", "--nod=2", "--wrap", "true")
    possible = "'--nodes' '--nodelist' '--nodefile'"
    said = "Unknown option --nod (a flag), which is ambiguous."
    assert done.err == f"sbatch: error: {said} Possibilities: {possible}.\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo hi\n", "does not look like a batch script. The first line must start with #! followed by"),
        ("\ufeff#!/bin/sh\ntrue\n", "begins with a byte order mark"),
        ("#!/bin/sh\r\ntrue\r\n", "contains DOS line breaks (\\r\\n)."),
        ("", "is empty."),
        ("#!/bin/sh\n\0\n", "is not a text script."),
        ("#!/bin/sh\n#SBATCH --nod=1\n", "--nod (#SBATCH in line 2 of bad.sh), which is ambiguous."),
        ("#!/bin/sh\n#SBATCH --comment=it's\n", "#SBATCH in line 2 of bad.sh cannot be read"),
    ],
    ids=repr,
)
def test_what_is_no_batch_script_is_told(script: str, said: str, slurm: Slurm, daemon: Daemon) -> None:
    Path("bad.sh").write_text(script)
    done = slurm("sbatch", "bad.sh")
    assert (done.code, done.out) == (255 if said.startswith(("--", "'")) else 1, "")
    assert said in done.err
    assert not daemon.service.table


def test_directives_are_read_as_by_sbatch(slurm: Slurm, daemon: Daemon) -> None:
    lines = [
        "#!/bin/sh", "#SBATCH\t-J\ttabbed", '#SBATCH --comment="a b" -t5', "#SBATCH --ntasks 2",
        "#SBATCH --node=1", "##SBATCH -J no", "#SBATCH -Jtwo # no comment", " #SBATCH -J no",
        "#sbatch -J no", "", "true",
        "#SBATCH -J late",
    ]  # fmt: skip
    Path("forms.sh").write_text("\n".join(lines) + "\n")
    done = slurm("sbatch", "forms.sh")
    assert "--node (#SBATCH in line 5 of forms.sh), which is ambiguous" in done.err
    Path("forms.sh").write_text("\n".join(lines).replace("--node=1", "--nodes=1") + "\n")
    assert slurm("sbatch", "forms.sh").code == 0
    spec = daemon.service.table[1].spec
    assert (spec.name, spec.comment, spec.ntasks, spec.time_limit_us) == ("two", "a b", 2, 300_000_000)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-J", "\udcff\udcfe"], "--job-name (a flag) is not UTF-8 text."),
        (["-c", "\u0662"], "--cpus-per-task is '\u0662', and must be a whole number of at least 1."),
        (["-N", "\u0662"], "--nodes is '\u0662'."),
        (["-n", "9" * 30], "cannot be accepted: ntasks is larger than"),
        (["--comment", "x" * 5000], "comment has 5000 bytes, and may have 4096."),
        (["-J", "a\nb"], "the name must be one line of text."),
    ],
    ids=ascii,
)
def test_bad_values_are_told_once(words: list[str], said: str, slurm: Slurm, daemon: Daemon) -> None:
    done = slurm("sbatch", *words, "--wrap", "true")
    assert (done.code in (1, 255), done.out, daemon.service.table) == (True, "", {})
    assert done.err.count(said) == 1, done.err


def test_a_name_is_as_workflow_programs_make_them(slurm: Slurm, daemon: Daemon) -> None:
    """signac's are PROJECT/JOB/OPERATION, slurmpilot's EXPERIMENT/NAME."""
    name = "project/42b7b4f2/compute, twice"
    assert slurm("sbatch", "-J", name, "-o", "%x.out", "--wrap", "true").code == 0
    assert daemon.service.table[1].spec.name == name
    assert slurm("squeue", "-h", "-o", "%j").out == f"{name}\n"


def test_one_complaint_of_several_readers_is_told_once(slurm: Slurm) -> None:
    done = slurm("sbatch", "-w", "h[1", "--wrap", "true")
    assert done.err.startswith("sbatch: error: 'h[1' is not a host list: its brackets do not match.")


def test_what_was_typed_and_the_file_are_kept(slurm: Slurm, rmx: Rmx, daemon: Daemon) -> None:
    """As Slurm's: words without quotes, a path as it was typed, a bare name with its directory."""
    assert slurm("sbatch", "-J", "a b", "./plain.sh", "--lr", "1").code == 0
    assert slurm("sbatch", "plain.sh").code == 0
    assert slurm("sbatch", "--wrap", "sleep 1").code == 0
    assert rmx("submit", "-n2", "plain.sh").code == 0
    assert rmx("submit", "--wrap", "true").code == 0
    specs = [job.spec for job in daemon.service.table.values()]
    assert [(spec.submit_line, spec.script_path) for spec in specs] == [
        ("sbatch -J a b ./plain.sh --lr 1", "./plain.sh"),
        ("sbatch plain.sh", f"{Path.cwd()}/plain.sh"),
        ("sbatch --wrap sleep 1", ""),
        ("rmx submit -n2 plain.sh", f"{Path.cwd()}/plain.sh"),
        ("rmx submit --wrap true", ""),
    ]
    assert slurm("squeue", "-h", "-j1", "-o", "%o").out == "./plain.sh\n"
    shown = [slurm("scontrol", "show", "job", str(number)).out for number in (1, 3)]
    assert "\n   Command=./plain.sh --lr 1\n" in shown[0]
    assert "\n   Command=(null)\n" in shown[1]


def test_a_long_line_is_cut_to_what_the_daemon_takes(slurm: Slurm, daemon: Daemon) -> None:
    assert slurm("sbatch", "plain.sh", "é" * 5000).code == 0
    assert len(daemon.service.table[1].spec.submit_line.encode()) == SUBMIT_LINE_BYTES


def test_a_script_is_found_in_path(slurm: Slurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind this directory, as Slurm's does it."""
    Path("tools").mkdir()
    for name in ("far.sh", "plain.sh"):
        Path("tools", name).write_text("#!/bin/sh\necho far\n")
    monkeypatch.setenv("PATH", f"{Path.cwd()}/tools:{os.environ['PATH']}")
    assert slurm("sbatch", "far.sh").code == slurm("sbatch", "plain.sh").code == 0
    far, near = (daemon.service.table[number].spec for number in (1, 2))
    assert (far.name, far.script_path) == ("far.sh", f"{Path.cwd()}/tools/far.sh")
    assert near.script == "#!/bin/sh\nhostname\n"
    assert slurm("sbatch", "nowhere.sh").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-N0"], "Node count specification invalid"),
        (["--deadline=2020-01-01"], "Requested time limit is invalid"),
        (["--mem=100", "--mem-per-cpu=10"], "--mem and --mem-per-cpu are mutually exclusive."),
        (["-wh[1-2]", "-N1"], "--nodes=1 asks for fewer hosts"),
        (["--gpus=1", "--gpus-per-task=1", "-n4"], "Invalid generic resource (gres) specification"),
        (["-Ca&"], "Invalid feature specification"),
    ],
)
def test_wrong_options_end_as_in_slurm(words: list[str], said: str, slurm: Slurm, daemon: Daemon) -> None:
    done = slurm("sbatch", *words, "--wrap", "true")
    assert (done.code, done.out, daemon.service.table) == (1, "", {})
    assert said in done.err


@pytest.mark.parametrize(
    "line", ["sbatch -n1 : -n2 plain.sh", "salloc -n1 : -n2 true", "srun -n1 ./server : -n2 ./client"]
)
def test_parts_of_heterogeneous_jobs_are_refused(line: str, slurm: Slurm, daemon: Daemon) -> None:
    done = slurm(*line.split())
    assert (done.out, daemon.service.table) == ("", {})
    assert done.code
    assert "joins the parts of a heterogeneous job, which rm has not" in done.err
