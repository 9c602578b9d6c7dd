"""What the launchers of MPI find in a job: its hosts, and what they call in place of ssh (rm_remote.py).

Sources: mpirun(1) of Open MPI 4.1, prterun(1) of 5.0 and their `ompi_info --all` and `prte_info --all`;
Hydra's documentation, "Environment settings".
"""

import os

PROGRAM = "rm-remote"
HOSTS, HYDRA_HOSTS = "hosts", "hosts.hydra"  # names of files in the attempt's folder


def environment(folder, programs):
    """What mpirun and mpiexec of Open MPI and MPICH find in a job whose script runs once.

    Daemons are started from the first host alone, and stay in their steps, which end with them. srun would
    start them as tasks, whose ranks the programs that they start would inherit.
    """
    agent, hosts = os.path.join(programs, PROGRAM), folder.at(HOSTS)
    return {
        "OMPI_MCA_plm": "rsh", "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1", "OMPI_MCA_orte_default_hostfile": hosts,
        "PRTE_MCA_plm": "ssh", "PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1", "PRTE_MCA_prte_default_hostfile": hosts,
        "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent, "HYDRA_HOST_FILE": folder.at(HYDRA_HOSTS),
    }  # fmt: skip


def write_hosts(folder, allocation, user):
    """The job's hosts and the tasks that it has on each, as Open MPI and as Hydra read them: in the job's own
    processes, so that nobody but `user` can."""
    for name, line in ((HOSTS, "%s slots=%d\n"), (HYDRA_HOSTS, "%s:%d\n")):
        fd = os.open(folder.at(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            if os.getuid() == 0:
                os.fchown(fd, user.uid, user.gid)
            file.writelines(line % (host["host"], host["tasks"]) for host in allocation)
