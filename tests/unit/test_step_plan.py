"""Which hosts and tasks a step of a job gets, what it waits for, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "agents"))
import rm_srun_layout as srun_layout
import rm_srun_options as options
import rm_step_plan as plan

from rm.cli.slurm.srun import LETTERS, VALUES

HOSTS = [{"host": f"h{n}", "address": f"10.0.0.{n}", "tasks": 2, "cpus": 4, "gpus": 2} for n in (1, 2, 3)]


def asked(*words: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    environ = environ or {}
    values, _ = options.parsed([*words, "true"], environ, lambda word: None)
    values = srun_layout.with_files(values, environ)
    found: dict[str, Any] = options.step_of(values)
    return plan.checked(found, HOSTS)


def laid(*words: str, held: dict[int, Any] | None = None, environ: Mapping[str, str] | None = None) -> Any:
    return plan.layout(asked(*words, environ=environ), HOSTS, held or {})


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ((), {"h1": [0, 1], "h2": [2, 3], "h3": [4, 5]}),
        (("-m", "cyclic"), {"h1": [0, 3], "h2": [1, 4], "h3": [2, 5]}),
        (("--ntasks-per-node=1",), {"h1": [0], "h2": [1], "h3": [2]}),
        (("-N2",), {"h1": [0, 1], "h2": [2, 3]}),
        (("-n1",), {"h1": [0]}),
        (("-n4", "-N3"), {"h1": [0, 1], "h2": [2], "h3": [3]}),
        (("-n", "3", "-N", "1"), {"h1": [0, 1, 2]}),
        (("-n2", "--ntasks-per-node=2"), {"h1": [0, 1]}),
        (("-w", "h3"), {"h3": [0, 1]}),
        (("-n2", "-N2", "--exclude=h1"), {"h2": [0], "h3": [1]}),
        (("-n1", "-w", "h[2-3]"), {"h2": [0]}),
        (("-n2", "-N2", "-w", "10.0.0.3,h2.example.org"), {"h2": [0], "h3": [1]}),
        (("-n13", "--overcommit"), {"h1": [0, 1, 2, 3, 4], "h2": [5, 6, 7, 8], "h3": [9, 10, 11, 12]}),
        (("-n6", "-c2"), {"h1": [0, 1], "h2": [2, 3], "h3": [4, 5]}),
        (("-n7", "-m", "plane=2"), {"h1": [0, 1, 6], "h2": [2, 3], "h3": [4, 5]}),
        (("-n9", "-m", "plane=3"), {"h1": [0, 1, 2], "h2": [3, 4, 5], "h3": [6, 7, 8]}),
        (("-n12", "-m", "plane=3"), {"h1": [0, 1, 2, 9], "h2": [3, 4, 5, 10], "h3": [6, 7, 8, 11]}),
        (("-m", "plane=4"), {"h1": [0, 1], "h2": [2, 3], "h3": [4, 5]}),
        (("-n5", "-m", "block,Pack"), {"h1": [0, 1, 2], "h2": [3], "h3": [4]}),
        (("-n5", "-N2", "-m", "block,Pack"), {"h1": [0, 1, 2, 3], "h2": [4]}),
        (("-n5", "-m", "block:block,NoPack"), {"h1": [0, 1], "h2": [2, 3], "h3": [4]}),
        (("-m", "arbitrary", "-w", "h2,h1,h2"), {"h1": [1], "h2": [0, 2]}),
        (("-m", "arbitrary", "-n2", "-w", "h3,h1,h2"), {"h1": [1], "h3": [0]}),
        (("-m", "arbitrary"), {"h1": [0, 1], "h2": [2, 3], "h3": [4, 5]}),
    ],
)
def test_tasks_are_laid_out_as_slurm_does(words: tuple[str, ...], ranks: dict[str, list[int]]) -> None:
    assert {part["host"]: part["ranks"] for part in laid(*words)} == ranks


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-N4",), "asks for 4 hosts, and the job has 3"),
        (("-n13",), "13 tasks of 1 processors need more than the 12"),
        (("-n3", "-c4", "-N1"), "3 tasks of 4 processors need more"),
        (("-w", "h9"), "h9 is not a host of this job"),
        (("-m", "arbitrary", "-w", "h1,h9"), "h9 is not a host of this job"),
        (("-m", "arbitrary", "-w", "h1", "-n2"), "asks for 2 tasks, and 1 hosts are listed"),
        (("-m", "arbitrary", "-w", "h1,h2", "-x", "h2"), "h2 is listed for a task, and other"),
        (("-m", "arbitrary", "-w", "h1," * 5), "asks for 5 processors on h1"),
        (("--exact", "-n1", "-c5", "-N1"), "asks for 5 processors on h1"),
        (("--gpus-per-node=3",), "asks for 3 GPUs on h1, where the job has 2"),
        (("--gpus-per-task=2",), "asks for 4 GPUs on h1, where the job has 2"),
    ],
)
def test_a_step_wider_than_the_job_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(plan.Refused, match=sentence):
        laid(*words)


def test_gpus_that_the_job_does_not_have_are_not_waited_for() -> None:
    one = [dict(host, gpus=2 * (host["host"] == "h2")) for host in HOSTS]
    assert [part["host"] for part in plan.layout(asked("-n1", "--gres=gpu:1"), one, {})] == ["h2"]
    with pytest.raises(plan.Busy):  # they are another step's, which will end
        plan.layout(asked("-n1", "--gres=gpu:1"), one, {1: (0, (0, 1))})
    with pytest.raises(plan.Refused, match="asks for GPUs on 2 hosts, and the job has some on 1"):
        plan.layout(asked("-n2", "-N2", "--gpus-per-task=1"), one, {})
    for words in (("-n1", "--gres=gpu:1"), ("--gpus-per-task=1",), ("--gpus-per-node=1", "--overlap")):
        with pytest.raises(plan.Refused, match="asks for GPUs, and the job has none"):
            plan.layout(asked(*words), [dict(host, gpus=0) for host in HOSTS], {})


def test_steps_hold_their_hosts_and_share_them_only_when_they_say_so() -> None:
    (first,) = laid("-n1")
    assert first["holds"] == (4, [])
    held = {0: first["holds"]}
    assert laid("-n1", held=held)[0]["host"] == "h2"  # the next host that is free
    with pytest.raises(plan.Busy):
        laid("-n1", "-w", "h1", held=held)
    with pytest.raises(plan.Busy):
        laid(held=held)
    assert laid("-n1", "-w", "h1", "--overlap", held=held)[0]["holds"] == (0, [])


def test_a_file_of_hosts_says_where_each_task_runs(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ranks\nh3 h1\nh[2-3]\n\nh1*2\n")
    named = {"h1": [1, 4, 5], "h2": [2], "h3": [0, 3]}
    by_variable = laid("-m", "block", environ={"SLURM_HOSTFILE": str(path)})
    for parts in (by_variable, laid("-m", "arbitrary", "-w", str(path))):
        assert {part["host"]: part["ranks"] for part in parts} == named
    assert [part["host"] for part in laid("-w", str(path))] == ["h1", "h2", "h3"]  # the hosts, and no more
    assert [part["host"] for part in laid("-F", str(path))] == ["h1", "h2", "h3"]
    path.with_name("few").write_text("h3\n")
    assert {part["host"] for part in laid("-x", str(path.with_name("few")))} == {"h1", "h2"}
    held = {2: (4, [])}
    with pytest.raises(plan.Busy):
        laid(environ={"SLURM_HOSTFILE": str(path)}, held=held)
    for text, why in (("h1*x\n", "which is no host"), ("#\n", "names none")):
        path.write_text(text)
        with pytest.raises(srun_layout.Unknown, match=why):
            laid("-w", str(path))
    with pytest.raises(srun_layout.Unknown, match="cannot be read: No such file"):
        laid("-w", str(tmp_path / "none"))


def test_the_plane_of_the_job_is_that_of_its_steps() -> None:
    environ = {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "3"}
    assert [part["ranks"] for part in laid("-n6", environ=environ)] == [[0, 1, 2], [3, 4], [5]]


def test_steps_bind_gpus_as_the_job_says() -> None:
    assert laid(environ={"SLURM_GPU_BIND": "single:1"})[0]["gpus"] == [[0], [1]]
    assert laid("--gpu-bind=none", environ={"SLURM_GPU_BIND": "single:1"})[0]["gpus"] == [[0, 1]] * 2
    shared = {"SLURM_NTASKS_PER_GPU": "2"}
    assert laid(environ=shared)[0]["gpus"] == [[0], [0]]
    assert laid("-n4", "--ntasks-per-gpu=1", environ=shared)[0]["gpus"] == [[0], [1]]


def test_exact_steps_share_a_host_until_its_processors_are_taken() -> None:
    held: dict[int, Any] = {}
    for taken in (2, 4):
        (part,) = laid("--exact", "-n1", "-c2", "-w", "h1", held=held)
        held = {0: (held.get(0, (0, []))[0] + part["holds"][0], [])}
        assert held[0][0] == taken
    with pytest.raises(plan.Busy):
        laid("--exact", "-n1", "-c2", "-w", "h1", held=held)


def test_tasks_see_their_own_gpus_and_no_other_steps() -> None:
    parts = laid("--gpus-per-task=1")
    assert [part["gpus"] for part in parts] == [[[0], [1]]] * 3
    (part,) = laid("--exact", "-n1", "--gpus-per-task=1", "-w", "h1", held={0: (1, [0])})
    assert (part["gpus"], part["holds"]) == ([[1]], (1, [1]))
    with pytest.raises(plan.Busy):
        laid("--exact", "-n1", "--gpus-per-task=1", "-w", "h1", held={0: (2, [0, 1])})
    assert laid("-n1")[0]["gpus"] == [[0, 1]]  # unasked: all of the job's
    assert laid("-n1", "--gres=none")[0]["gpus"] == [[]]
    assert laid("-n2", "-N1", "--gres=gpu:a100:2")[0]["gpus"] == [[0, 1]] * 2
    assert laid(environ={"SLURM_GPUS_PER_TASK": "1"})[0]["gpus"] == [[0], [1]]


@pytest.mark.parametrize("text", ["gpu[01-03,7],login,a-b[2-3]c", "h1", "a,b"])
def test_lists_of_hosts_are_read(text: str) -> None:
    names = plan.expanded(text)
    assert plan.expanded(",".join(names)) == names
    assert plan.expanded(plan.folded_hosts(names)) == names


def test_lists_of_hosts_are_written_short() -> None:
    assert plan.expanded("gpu[01-03,07],x") == ["gpu01", "gpu02", "gpu03", "gpu07", "x"]
    assert plan.expanded("r[1-2]n[09-10]-ib,x") == ["r1n09-ib", "r1n10-ib", "r2n09-ib", "r2n10-ib", "x"]
    assert plan.folded_hosts(["gpu01", "gpu02", "gpu03", "gpu07", "x"]) == "gpu[01-03,07],x"
    assert plan.folded([2, 2, 1]) == "2(x2),1"
    with pytest.raises(ValueError, match="is not a list of hosts"):
        plan.expanded("gpu[1-99999999]")
    with pytest.raises(ValueError, match="not a list of hosts"):
        plan.expanded("r[1-9999]n[1-9999]")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--epilog=x",), "--epilog is not supported"),
        (("--het-group=0",), "--het-group is not supported"),
        (("--no-such",), "not recognized"),
        (("-n", "many"), "--ntasks is 'many'"),
        (("-N", "x"), "--nodes is 'x'"),
        (("--gres=nvme:1",), "--gres=nvme:1 is not supported"),
        (("-m", "plane=0"), "--distribution=plane=0 names no size"),
        (("-m", "plane"), "--distribution=plane names no size"),
        (("-m", "plane=2:block"), "is not supported"),
        (("-m", "block:sideways"), "--distribution=block:sideways is not supported"),
        (("-m", "block,pakc"), "--distribution=block,pakc is not supported"),
        (("-w", "h["), "--nodelist"),
        (("--gpu-bind=single:0",), "--gpu-bind=single:0 is not supported"),
        (("--ntasks-per-gpu=2",), "--ntasks-per-gpu needs --ntasks or --gpus"),
    ],
)
def test_what_would_mean_something_else_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(options.Wrong, match=sentence):
        asked(*words)


def test_the_command_keeps_its_own_options() -> None:
    values, command = options.parsed(["-n2", "--kill-on-bad-exit=1", "-l", "sh", "-n", "--pty"], {}, print)
    assert (values["ntasks"], values["kill-on-bad-exit"], command) == ("2", "1", ["sh", "-n", "--pty"])
    assert options.parsed(["-o", "-x", "ls", "--exclusive=user"], {}, print)[1] == ["ls", "--exclusive=user"]


def test_options_without_effect_are_told_once() -> None:
    said: list[str] = []
    options.parsed(["--mem=4G", "--mem-bind=local", "true"], {}, said.append)
    assert said == ["--mem has no effect in a step of rm."]


def test_the_environment_follows_export() -> None:
    environ = {"A": "1", "B": "2", "PATH": "/bin", "SLURM_JOB_ID": "7"}
    job = {"PATH": "/bin", "SLURM_JOB_ID": "7"}
    assert options.environment({}, environ) == environ
    assert options.environment({"export": "NONE"}, environ) == job
    assert options.environment({"export": "A,C=3"}, environ) == {**job, "A": "1", "C": "3"}
    for text in ("C=3,4,A", "'C=3,4',A", 'C="3,4",A'):  # as sbatch reads them
        assert options.environment({"export": text}, environ) == {**job, "A": "1", "C": "3,4"}, text
    assert options.environment({"export": "C='3,A=2'"}, environ) == {**job, "C": "3,A=2"}
    assert options.environment({"export": 'A,"C=3,4"'}, environ) == {**job, "A": "1", "C": "3,4"}
    for text in ("ALL,", "ALL,,", ",ALL"):
        assert options.environment({"export": text}, environ) == environ, text
    assert options.environment({"export": "A,c.d=3"}, environ) == {**job, "A": "1", "c.d": "3"}
    for text in ("ALL,=x", "=x", "ALL,a-b", "a-b"):
        with pytest.raises(options.Wrong, match="is not a variable name"):
            options.environment({"export": text}, environ)


def test_programs_are_read_from_a_file() -> None:
    text = "# ranks program\n0 server --rank %t\n1-2 worker %o\n* rest %t\n"
    assert options.programs(text, 4) == [
        ["server", "--rank", "0"],
        ["worker", "0"],
        ["worker", "1"],
        ["rest", "3"],
    ]
    with pytest.raises(options.Wrong, match="names no program for task 1"):
        options.programs("0 a\n", 2)
    with pytest.raises(options.Wrong, match="the smaller number comes first"):
        options.programs("1-0 a\n", 2)
    with pytest.raises(options.Wrong, match="names task 99999999999: a step has at most 65536"):
        options.programs("0-99999999999 a\n", 2)
    with pytest.raises(options.Wrong, match="begins with '²', which is not a task"):
        options.programs("² a\n", 2)


def test_arguments_of_the_command_line_come_behind_those_of_the_file() -> None:
    found = options.programs("0 echo one #two\n1 'a b' 'c #%t'\n", 2, ["--last", "%t"])
    assert found == [["echo", "one", "#two", "--last", "%t"], ["a b", "c #%t", "--last", "%t"]]


def test_between_single_quotes_nothing_is_replaced() -> None:
    text = """0-1 python -c 'print("%o" % 8)' --name "it's %t" it\\'s-%o '%t'%t\n"""
    assert options.programs(text, 2)[1] == [
        "python", "-c", 'print("%o" % 8)', "--name", "it's 1", "it's-1", "%t1",
    ]  # fmt: skip


def test_a_number_of_tasks_that_the_script_changes_is_an_option() -> None:
    job = {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4"}

    def asked(environ: dict[str, str], *words: str) -> str | None:
        found: str | None = options.parsed([*words, "true"], environ, lambda _: None)[0].get("ntasks")
        return found

    assert asked(job) is None
    assert asked({**job, "SLURM_NTASKS": "2"}) == "2"
    assert asked({**job, "SLURM_NTASKS": "2"}, "-n3") == "3"


def test_parts_of_a_heterogeneous_step_are_no_words_of_its_command() -> None:
    with pytest.raises(options.Wrong, match="heterogeneous step"):
        options.parsed(["-n1", "./server", ":", "-n2", "./client"], {}, lambda _: None)
    assert options.parsed(["-n1", "echo", "a:b"], {}, lambda _: None)[1] == ["echo", "a:b"]


@pytest.mark.parametrize("words", [("--no-such", "true"), ("-Y", "true"), ("-n",)])
def test_an_option_that_cannot_be_read_ends_srun_as_in_slurm(words: tuple[str, ...]) -> None:
    with pytest.raises(options.Wrong) as wrong:
        options.parsed(list(words), {}, str)
    assert options.code_of(wrong.value, {"SLURM_EXIT_ERROR": "5"}) == 255


@pytest.mark.parametrize(("chosen", "code"), [("77", 77), ("0", 1), ("256", 1), ("²", 1), ("9" * 5000, 1)])
def test_the_code_of_a_failure_can_be_chosen_but_not_success(chosen: str, code: int) -> None:
    wrong = options.Wrong("it cannot be done")
    assert options.code_of(wrong, {"SLURM_EXIT_ERROR": chosen, "SLURM_EXIT_IMMEDIATE": "5"}) == code
    wrong.immediate = True
    assert options.code_of(wrong, {"SLURM_EXIT_ERROR": "5", "SLURM_EXIT_IMMEDIATE": chosen}) == code


@pytest.mark.parametrize("number", ["²", "9" * 5000])
@pytest.mark.parametrize("option", ["ntasks", "gpus-per-task", "gres", "ntasks-per-node", "relative"])
def test_what_is_no_number_is_said(option: str, number: str) -> None:
    with pytest.raises(options.Wrong, match="--"):
        options.step_of({option: ("gpu:a100:" if option == "gres" else "") + number})


def test_what_the_job_sets_by_variables_holds_for_its_steps() -> None:
    environ = {"SLURM_STEP_GRES": "none", "SLURM_OVERCOMMIT": "1", "SLURM_EXCLUSIVE": "0"}
    values, _ = options.parsed(["true"], {**environ, "SLURM_REMOTE_CWD": "/w"}, print)
    assert values == {"gres": "none", "overcommit": "1", "chdir": "/w"}
    values, _ = options.parsed(["true"], {"SLURM_EXPORT_ENV": "NONE", "SRUN_EXPORT_ENV": "ALL"}, print)
    assert values == {"export": "ALL"}


def test_names_of_files_hold_the_step_and_the_task() -> None:
    known = {"t": 3, "s": 0, "j": "7", "N": "h1"}
    assert options.file_name("o-%j.%s-%4t-%N-%%-%q", known) == "o-7.0-0003-h1-%-%q"


def test_an_srun_outside_of_the_job_knows_which_options_have_values() -> None:
    every = {**options.TAKEN, **options.IGNORED, **options.REFUSED}
    assert {spelling[:-1] for spelling in every if spelling.endswith("=")} == VALUES
    assert {letter[0] for letter in every.values() if letter.endswith(":")} == LETTERS


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        (("--gpu-bind=single:1",), [[0], [1]]),
        (("--gpu-bind=verbose,single:2",), [[0], [0]]),
        (("--gpu-bind=per_task:1",), [[0], [1]]),
        (("--gpu-bind=map_gpu:1,0",), [[1], [0]]),
        (("--gpu-bind=map_gpu:1",), [[1], [1]]),
        (("--gpu-bind=map_gpu:1*2,0", "-n9"), [[1], [1], [0]]),
        (("--gpu-bind=mask_gpu:0x2*1,3*4",), [[1], [0, 1]]),
        (("--gpu-bind=mask_gpu:0x3,2",), [[0, 1], [1]]),
        (("--gpu-bind=closest",), [[0, 1], [0, 1]]),
        (("--ntasks-per-gpu=1", "-n6"), [[0], [1]]),
        (("--ntasks-per-gpu=2", "--gpus=1"), [[0], [0]]),
        (("--gres=gpu:1", "--gpu-bind=single:1"), [[0], [0]]),
        (("--gres=none", "--gpu-bind=single:1"), [[], []]),
    ],
)
def test_the_gpus_of_a_task_are_those_it_is_bound_to(words: tuple[str, ...], gpus: list[list[int]]) -> None:
    assert laid(*words)[0]["gpus"] == gpus


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu-bind=map_gpu:2",), "map_gpu:2: there is no GPU 2 on h1"),
        (("--gpu-bind=per_task:2",), "2 tasks need 4 GPUs, and there are 2 on h1"),
        (("--relative=3",), "names a host behind the 3"),
        (("--relative=2", "-N2"), "names a host behind the 3"),
        (("-c5", "-n1"), "asks for 5 processors on h1, where the job has 4"),
        (("-c3",), "asks for 6 processors on h1, where the job has 4"),
    ],
)
def test_a_step_is_not_wider_than_the_job(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(plan.Refused, match=sentence):
        laid(*words)


def test_a_step_begins_behind_the_hosts_that_it_leaves_out() -> None:
    assert [part["host"] for part in laid("-r", "1", "-N1")] == ["h2"]
    assert [part["host"] for part in laid("--relative=1")] == ["h2", "h3"]
    assert laid("-c3", "--overcommit")[0]["ranks"] == [0, 1]
    without = {key: value for key, value in asked().items() if key != "relative"}  # as an older srun asks
    assert plan.checked(without, HOSTS)["relative"] == 0


def test_options_are_read_as_they_were_written_before() -> None:
    words = ["--cpu_bind=cores", "--tasks-per-node", "2", "-K0", "-I60", "-X", "true", "--cpu_bind=x"]
    values, command = options.parsed(words, {}, print)
    assert (values["cpu-bind"], values["kill-on-bad-exit"], values["immediate"]) == ("cores", "0", "60")
    assert (values["ntasks-per-node"], command) == ("2", ["true", "--cpu_bind=x"])
