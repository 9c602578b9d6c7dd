"""Directives: Slurm's lines as they are, ours over them, and a clear word on what is not done."""

import pytest

from rm.errors import UsageError
from rm.submission import directives
from rm.submission.options import ALL, SUPPORTED, VARIABLES
from rm.submission.remarks import Remarks


def parse(text: str) -> dict[str, object]:
    remarks = Remarks()
    values = directives.parse(text, "train.sh", remarks)
    remarks.refuse()
    return values


SCRIPT = """\
#!/bin/bash
# a comment
#SBATCH --job-name=slurm -N 2
#SBATCH -n4 --time 1:00:00   # an hour
#SBATCH --comment="two words"
#RM --job-name=ours --period=200ms

#RM -H --no-requeue
#SBATCH --output=after-ours
#SBATCH# --nodes=9
echo start
#SBATCH --nodes=7
"""


def test_rm_beats_sbatch_and_parsing_stops_at_the_first_command() -> None:
    assert parse(SCRIPT) == {
        "name": "ours", "nodes": "2", "ntasks": "4", "time": "1:00:00", "comment": "two words",
        "period": "200ms", "hold": True, "requeue": False, "output": "after-ours",
    }  # fmt: skip


def test_an_indented_comment_ends_no_directives_and_is_none() -> None:
    """Compared with Slurm 22.05."""
    text = (
        "#!/bin/bash\n#SBATCH -n2\n   # words\n\t\n \t#SBATCH -n9\n#SBATCH -c3\n  true # words\n#SBATCH -c4\n"
    )
    assert parse(text) == {"ntasks": "2", "cpus_per_task": "3"}


def test_a_stronger_source_replaces_all_ways_to_say_the_same() -> None:
    text = "#!/bin/sh\n#SBATCH --gres=gpu:8 --mem=4G\n#RM --gpus-per-task=1 --low-comm\n"
    values = parse(text)
    assert values == {"mem": "4G", "gpus_per_task": "1", "low_comm": True}
    flags = {"period": "1s", "duty_cycle": "0.5", "bandwidth": "1G", "mem_per_cpu": "1G"}
    assert directives.merge(values, flags) == {"gpus_per_task": "1", **flags}


def test_unsupported_options_are_warnings_that_name_them() -> None:
    remarks = Remarks()
    text = "#!/bin/sh\n#SBATCH --cpu-freq=low --reboot -q long -n 3\n"
    assert directives.parse(text, "train.sh", remarks) == {"qos": "long", "ntasks": "3"}
    first, last = remarks.warnings
    assert first == "--cpu-freq (#SBATCH in line 2 of train.sh) is not supported and was ignored."
    assert last.startswith("--reboot ")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "#SBATCH --network=ours",
            "--network .*line 2 of train.sh.* is not supported, and without it the job would",
        ),
        ("#SBATCH --batch=a", "--batch .*would do something else"),
        ("#SBATCH --ntask=3", "Unknown option --ntask .* is ambiguous. Possibilities: '--ntasks' "),
        ("#SBATCH -n", "--ntasks .*needs a value"),
        ("#SBATCH --hold=yes", "--hold .*takes no value"),
        ("#SBATCH train", "'train' .*is not an option"),
        ("#RM --comment='open", "line 2 .*cannot be read"),
    ],
)
def test_mistakes_are_errors_with_their_line(line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse(f"#!/bin/sh\n{line}\n")


def test_every_line_with_a_mistake_is_told() -> None:
    text = "#!/bin/sh\n#SBATCH --batch=a\n#SBATCH --network=m -N 2\n#SBATCH --ntask=3\n#SBATCH -n 4\n"
    remarks = Remarks()
    assert directives.parse(text, "train.sh", remarks) == {"nodes": "2", "ntasks": "4"}
    assert [str(error).split()[0] for error in remarks.errors] == ["--batch", "--network", "Unknown"]
    with pytest.raises(UsageError, match=r"for 3 reasons:\n  1\. --batch .*line 2"):
        remarks.refuse()


@pytest.mark.parametrize("text", ["#SBATCH --ntask=3\n" * 1_000, "#SBATCH " + "word " * 1_000])
def test_what_is_told_of_a_script_has_an_end(text: str) -> None:
    """The page reads scripts in the daemon's process."""
    remarks = Remarks()
    directives.parse(text, "train.sh", remarks)
    assert len(remarks.errors) == directives.MISTAKES_MAX


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("#SBATCH " + "-H " * 1_001, "line 1 of train.sh has more than 1000 words"),
        ("#SBATCH --comment=" + "\\\\" * 70_000, "have more than 131072 characters"),
        ("#SBATCH --comment=words\n" * 10_000, "have more than 131072 characters"),
    ],
)
def test_directives_that_take_long_to_read_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse(text)


def test_a_mistake_hides_no_other_of_its_line() -> None:
    text = "#!/bin/sh\n#SBATCH --ntask 3 -Z --batch=a now --hold=yes --no-such=1 -N 2 --network=m --mem\n"
    remarks = Remarks()
    assert directives.parse(text, "train.sh", remarks) == {"nodes": "2"}
    assert [str(error).split(" (")[0] for error in remarks.errors] == [
        "Unknown option --ntask", "Unknown option -Z", "--batch", "'now'", "--hold",
        "Unknown option --no-such", "--mem", "--network",
    ]  # fmt: skip


def test_a_command_line_is_told_all_its_mistakes() -> None:
    with pytest.raises(UsageError, match=r"for 2 reasons:\n  1\. Unknown option --ntask .*\n  2\. --hold"):
        directives.leading_options(["--ntask=3", "--hold=yes", "train.sh", "--fast"], "a flag")
    options, rest = directives.leading_options(["-HW", "-n4", "--no-requeue", "-", "x"], "a flag")
    assert [(option.key, value) for option, value in options] == [
        ("hold", True), ("wait", True), ("ntasks", "4"), ("requeue", False),
    ]  # fmt: skip
    assert rest == ["-", "x"]


def test_variables_stand_between_the_script_and_the_flags() -> None:
    remarks = Remarks()
    environment = {
        "SBATCH_PARTITION": "long", "SBATCH_TIMELIMIT": "60", "SBATCH_MEM_PER_NODE": "8G", "SBATCH_WAIT": "0",
        "SBATCH_EXCLUSIVE": "", "SBATCH_NO_REQUEUE": "1", "SBATCH_ACCOUNT": "money", "SBATCH_GRES": "",
        "SBATCH_NTASKS": "9", "SBATCH_SIGNAL": "USR1@60", "SBATCH_NETWORK": "ours",
        "SLURM_HINT": "nomultithread",
    }  # fmt: skip
    values = directives.of_environment(environment, remarks)
    assert values == {
        "partition": "long", "time": "60", "mem": "8G", "exclusive": "", "requeue": False, "account": "money",
        "signal": "USR1@60",
    }  # fmt: skip
    assert [str(error).split(",")[0] for error in remarks.errors] == [
        "--network (SBATCH_NETWORK in the environment) is not supported"
    ]
    assert [warning.split()[:2] for warning in remarks.warnings] == [
        ["--hint", "(SLURM_HINT"],
    ]
    script = {"partition": "short", "mem_per_cpu": "1G", "nodes": "2"}
    flags = directives.of_flags({"partition": "debug", "hold": None, "quiet": False}, remarks)
    merged = directives.merge(directives.merge(script, values), flags)
    assert merged["partition"] == "debug"
    assert (merged["nodes"], merged["mem"]) == ("2", "8G")
    assert "mem_per_cpu" not in merged


def test_every_variable_names_an_option() -> None:
    names = {name for option in ALL for name in (*option.long, option.off)}
    assert set(VARIABLES.values()) <= names


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("--exclusive train.sh --exclusive", "--exclusive= train.sh --exclusive"),
        ("--nice -n 2 --exclusive=user -", "--nice= -n 2 --exclusive=user -"),
        ("-J --exclusive --nice", "-J --exclusive --nice="),
        ("--job-name --nice -n4 -- --nice", "--job-name --nice -n4 -- --nice"),
        ("--wrap x --exclusive", "--wrap x --exclusive"),
    ],
)
def test_an_optional_value_is_never_the_next_word(line: str, read: str) -> None:
    assert directives.with_optional_values(line.split()) == read.split()


def test_every_option_has_one_meaning() -> None:
    long = [name for option in ALL for name in option.long]
    short = [option.short for option in ALL if option.short]
    assert len(long) == len(set(long))
    assert len(short) == len(set(short))


def test_no_option_is_one_of_the_real_rm() -> None:
    """Handed to coreutils' rm, each must be refused: no prefix of its words, nor one of its letters."""
    words = (
        "force", "interactive", "one-file-system", "no-preserve-root", "preserve-root", "recursive", "dir",
        "verbose", "help", "version", "presume-input-tty", "-presume-input-tty",
    )  # fmt: skip
    names = [
        *(name for o in SUPPORTED for name in o.long),
        *(o.off for o in SUPPORTED if o.off),
        "file",
        "job",
    ]
    assert [name for name in names if any(word.startswith(name) for word in words)] == []
    # Slurm's -d and -i are also rm's letters: `rm VERB` takes none (test_shell_init.py)
    assert {option.short for option in SUPPORTED} & set("firRdvI") == {"d", "i"}


@pytest.mark.parametrize("end", ["", "\\", " \\", " \\  ", " \\\\\\"])
def test_a_backslash_at_the_end_of_a_line_means_nothing(end: str) -> None:
    remarks = Remarks()
    text = f"#!/bin/sh\n#SBATCH --comment=x -J y{end}\n#SBATCH --tasks-per-node=2\ntrue\n"
    found = directives.parse(text, "train.sh", remarks)
    assert (found["name"], found["comment"], found["ntasks_per_node"]) == ("y", "x", "2")
    assert remarks.errors == []


def test_a_directive_needs_no_space_and_those_of_others_are_told() -> None:
    remarks = Remarks()
    text = "#!/bin/sh\n#PBS -N one\n#SBATCH-J two\n#BSUB -J three\n#SBATCH# -J four\n"
    assert directives.parse(text, "s.sh", remarks) == {"name": "two"}
    assert remarks.warnings == ["#PBS (line 2 of s.sh) was ignored, as are all such lines."]
    assert remarks.errors == []


def test_burst_buffers_and_parts_of_jobs_are_refused_and_comments_are_not() -> None:
    remarks = Remarks()
    lines = ["#DW jobdw type=scratch capacity=1GB", "#BB create_persistent name=x", "#SBATCH hetjob"]
    directives.parse("\n".join(["#!/bin/sh", *lines, "#DW", "#BB is a comment", "#DWjobdw"]), "s.sh", remarks)
    assert [error.what for error in remarks.errors] == [
        "#DW (line 2 of s.sh) asks for a burst buffer, which rm has not.",
        "#BB (line 3 of s.sh) asks for a burst buffer, which rm has not.",
        "#SBATCH in line 4 of s.sh begins a part of a heterogeneous job, which rm has not.",
    ]


@pytest.mark.parametrize("line", ["#SBATCHED -J four", "#SBATCH_-J four", "#SBATCH: --time=5"])
def test_a_directive_that_is_mistyped_is_refused(line: str) -> None:
    remarks = Remarks()
    directives.parse(f"#!/bin/sh\n{line}\n", "s.sh", remarks)
    assert "(#SBATCH in line 2 of s.sh) is not an option." in str(remarks.errors[0])
