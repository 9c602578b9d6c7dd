"""docs/slurm.md has every option of sbatch, and says of each what the parser does with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rm.submission.options import ALL, IGNORED, REFUSED, TOLD

DOCUMENT = Path(__file__).parents[2] / "docs" / "slurm.md"
# sbatch(1) of Slurm 22.05, without those that print something and end
SBATCH = (
    "account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint "
    "container contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline "
    "delay-boot dependency distribution error exclude exclusive export export-file extra-node-info "
    "get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres "
    "gres-flags hint hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user "
    "mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile "
    "nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node tasks-per-node ntasks-per-socket "
    "open-mode "
    "output overcommit oversubscribe parsable partition power prefer priority profile propagate qos "
    "quiet reboot requeue reservation signal sockets-per-node spread-job switches test-only thread-spec "
    "threads-per-core time time-min tmp uid use-min-nodes verbose wait wait-all-nodes wckey wrap "
    # of Pyxis
    "container-image container-mounts container-workdir container-name container-save container-mount-home "
    "no-container-mount-home container-remap-root no-container-remap-root container-entrypoint "
    "no-container-entrypoint container-entrypoint-log container-writable container-readonly container-env "
)
OF_SRUN = {"cpu-bind", "container-id", "jobid", "het-group"}
OWN = {
    "hosts", "gpu-mem", "expect", "iterations", "fence", "zone", "period", "duty-cycle", "bandwidth",
    "traffic", "low-comm", "dry-run", "launch",
}  # fmt: skip
WORDS = {"": {"same", "differs"}, IGNORED: {"ignored"}, TOLD: {"told"}, REFUSED: {"refused"}}
ROWS = re.findall(r"^\| (`-.*?) \| (\w+) \|", DOCUMENT.read_text().partition("## Every option")[2], re.M)


def table() -> dict[str, str]:
    """What the document says of each option."""
    found: dict[str, str] = {}
    for options, word in ROWS:
        for name in re.findall(r"`--([\w-]+)`", options):
            assert name not in found, f"--{name} has two rows"
            found[name] = word
    return found


def test_the_table_has_every_option_of_sbatch_and_no_other() -> None:
    assert set(table()) == set(SBATCH.split())


def test_the_parser_knows_every_option_of_sbatch_and_its_own() -> None:
    known = {name for option in ALL for name in (*option.long, option.off) if name}
    assert known | {"wrap"} == {*SBATCH.split(), *OF_SRUN, *OWN}  # --wrap is the command's


@pytest.mark.parametrize("option", [o for o in ALL if set(o.long) & set(SBATCH.split())], ids=lambda o: o.key)
def test_the_table_says_what_the_parser_does(option) -> None:
    said = table()
    for name in (*option.long, option.off):
        assert name not in said or said[name] in WORDS[option.support], name
    if option.short:
        (row,) = [options for options, _ in ROWS if f"`--{option.long[0]}`" in options]
        assert f"`-{option.short}`, `--{option.long[0]}`" in row


def test_the_sentence_about_options_of_srun_is_true() -> None:
    support = {name: option.support for option in ALL for name in option.long}
    assert {name: support[name] for name in OF_SRUN} == {
        "cpu-bind": IGNORED, "container-id": IGNORED, "jobid": REFUSED, "het-group": REFUSED,
    }  # fmt: skip
