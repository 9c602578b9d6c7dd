"""What launchers of MPI find in a job, and the program that they call in place of ssh."""

from __future__ import annotations

import pytest

from tests.agent_process import agents
from tests.steps_request import rm_steps  # noqa: F401  the agents' modules are found from here on
from tests.unit.test_srun import run

import rm_remote  # type: ignore[import-not-found]  # isort: skip


def test_a_launcher_finds_hosts_slots_and_a_remote_program() -> None:
    script = """
cat $PRTE_MCA_prte_default_hostfile $OMPI_MCA_orte_default_hostfile $HYDRA_HOST_FILE
for file in $PRTE_MCA_prte_default_hostfile $OMPI_MCA_orte_default_hostfile $HYDRA_HOST_FILE
    do [ -O $file ] && stat -c %a $file; done
for agent in $OMPI_MCA_plm_rsh_agent $PRTE_MCA_plm_ssh_agent $HYDRA_LAUNCHER_EXEC; do basename $agent; done
echo $HYDRA_LAUNCHER $OMPI_MCA_plm
rm-remote --nodelist h1 -N 1 -n 2 --input none echo in place of srun
"""
    theirs = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "h1", "OMPI_MCA_plm": "of the user"}
    with agents() as start:
        code, lines = run(start(), script, env=theirs)
    hosts = ["h1 slots=3", "h1 slots=3", "h1:3"]
    agent = ["rm-remote"] * 3
    theirs_alone = ["600"] * 3
    assert (code, lines) == (
        0,
        [*hosts, *theirs_alone, *agent, "ssh of the user", "in place of srun", "in place of srun"],
    )


def test_a_command_runs_as_by_ssh_without_the_ranks_of_a_step() -> None:
    script = r"""
export A='of the script' SLURM_LABELIO=1 SLURM_NTASKS=7 RANK=9
rm-remote -x -o BatchMode=yes -p22 -l me h1 echo "\"two  words\"" '$A' ';' exit 3
echo code $?
echo in | rm-remote h1 cat; echo in | rm-remote -nx h1 cat
rm-remote user@h1 'echo ${RANK-none} ${WORLD_SIZE-none} $SLURM_STEP_ID'
srun -n1 rm-remote h1 echo in a step
rm-remote h1 'kill -9 $$'; echo $?
"""
    with agents() as start:
        code, lines = run(start(), script)
    assert (code, lines) == (
        0, ["two  words of the script", "code 3", "in", "none none 3", "0: in a step", "137"],
    )  # fmt: skip


def test_what_is_no_command_line_of_ssh_is_refused_by_a_sentence() -> None:
    script = "rm-remote; echo $?; rm-remote h1; rm-remote -o; rm-remote h9 true; echo $?"
    with agents() as start:
        code, lines = run(start(), script)
    wrong = (
        "rm-remote: write a host of the job and a command: rm-remote HOST COMMAND. A session is not opened."
    )
    unknown = "rm-remote: Unable to create step: h9 is not a host of this job; it has h1."
    assert (code, lines) == (0, [wrong, "255", wrong, wrong, unknown, "255"])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/mpich/bin/hydra_pmi_proxy --control-port h1:1", "hydra_pmi_proxy"),
        ("PATH=/opt/bin:$PATH ; export PATH ; prted --prtemca x 1", "prted"),
        ('"/opt/ompi/bin/prted" -x', "prted"),
        ("A=1", "rm-remote"),
    ],
)
def test_the_step_is_called_as_the_program(command: str, name: str) -> None:
    assert rm_remote.program_of(command) == name
