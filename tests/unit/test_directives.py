"""Directives: Slurm's lines as they are, ours over them, and a clear word on what is not done."""

import pytest

from rm.errors import UsageError
from rm.submission import directives
from rm.submission.options import ALL, SUPPORTED

SCRIPT = """\
#!/bin/bash
# a comment
#SBATCH --job-name=slurm -N 2
#SBATCH -n4 --time 1:00:00   # an hour
#SBATCH --comment="two words"
#RM --job-name=ours --period=200ms

#RM -H --no-requeue
#SBATCH --output=after-ours
#SBATCHED --nodes=9
echo start
#SBATCH --nodes=7
"""


def test_rm_beats_sbatch_and_parsing_stops_at_the_first_command() -> None:
    assert directives.parse(SCRIPT).values == {
        "name": "ours", "nodes": "2", "ntasks": "4", "time": "1:00:00", "comment": "two words",
        "period": "200ms", "hold": True, "requeue": False, "output": "after-ours",
    }  # fmt: skip


def test_a_stronger_source_replaces_all_ways_to_say_the_same() -> None:
    text = "#!/bin/sh\n#SBATCH --gres=gpu:8 --mem=4G\n#RM --gpus-per-task=1 --low-comm\n"
    values = directives.parse(text).values
    assert values == {"mem": "4G", "gpus_per_task": "1", "low_comm": True}
    flags = {"period": "1s", "duty_cycle": "0.5", "bandwidth": "1G", "mem_per_cpu": "1G"}
    assert directives.merge(values, flags) == {"gpus_per_task": "1", **flags}


def test_unsupported_options_are_warnings_that_name_them() -> None:
    parsed = directives.parse("#!/bin/sh\n#SBATCH -A money --mail-type=END --nice -n 3\n", "train.sh")
    assert parsed.values == {"ntasks": "3"}
    assert parsed.warnings[0] == "--account (#SBATCH in line 2 of train.sh) is not supported and was ignored."
    assert [warning.split()[0] for warning in parsed.warnings] == ["--account", "--mail-type", "--nice"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "#SBATCH --licenses=matlab",
            "--licenses .*line 2 of train.sh.* is not supported, and the job would mean",
        ),
        ("#SBATCH -a 0-15", "--array .*would mean"),
        ("#SBATCH --ntask=3", "Unknown option --ntask .*Did you mean '--ntasks'"),
        ("#SBATCH -n", "--ntasks .*needs a value"),
        ("#SBATCH --hold=yes", "--hold .*takes no value"),
        ("#SBATCH train", "'train' .*is not an option"),
        ("#RM --comment='open", "line 2 .*cannot be read"),
    ],
)
def test_mistakes_are_errors_with_their_line(line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        directives.parse(f"#!/bin/sh\n{line}\n", "train.sh")


def test_every_option_has_one_meaning() -> None:
    long = [name for option in ALL for name in option.long]
    short = [option.short for option in ALL if option.short]
    assert len(long) == len(set(long))
    assert len(short) == len(set(short))


def test_no_option_is_one_of_the_real_rm() -> None:
    """Handed to coreutils' rm, each must be refused: neither its letters nor a prefix of its words."""
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
    assert {option.short for option in SUPPORTED} & set("firRdvI") == set()
