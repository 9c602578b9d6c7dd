"""What a user of submitit does, on the cluster that the shims in PATH belong to; says `done` at its end."""

import sys
import time
from pathlib import Path

import submitit


def squared(number: int) -> int:
    print("squares", number)
    return number * number


def broken() -> None:
    raise ValueError("on purpose")


def ranks() -> list[int]:
    task = submitit.JobEnvironment()
    return [task.global_rank, task.num_tasks]


class Counting:
    """Counts until it has been interrupted once: a checkpoint takes the count along."""

    def __init__(self, begun: Path, count: int = 0) -> None:
        self.begun, self.count = begun, count

    def __call__(self, begun: Path) -> int:
        if self.count:
            return self.count
        self.count = 7
        begun.touch()
        while True:
            time.sleep(0.1)

    def checkpoint(self, begun: Path) -> submitit.helpers.DelayedSubmission:
        return submitit.helpers.DelayedSubmission(Counting(begun, self.count), begun)


def main() -> None:
    folder = Path(sys.argv[1])
    executor = submitit.AutoExecutor(folder / "logs", cluster="slurm")
    executor.update_parameters(timeout_min=10, slurm_array_parallelism=2, mem_gb=1)
    jobs = executor.map_array(squared, range(4))
    assert [job.result() for job in jobs] == [0, 1, 4, 9]
    assert "squares 3" in jobs[3].stdout()
    until_s = time.monotonic() + 60  # a result is there before its job has ended
    while (states := {job.state for job in jobs}) != {"COMPLETED"}:
        assert states <= {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "COMPLETED"}, states
        assert time.monotonic() < until_s, states
        time.sleep(0.5)
        jobs[0].watcher.update()

    failing = executor.submit(broken)
    assert "on purpose" in str(failing.exception())

    executor.update_parameters(tasks_per_node=2)
    assert executor.submit(ranks).results() == [[0, 2], [1, 2]]

    executor.update_parameters(tasks_per_node=1)
    begun = folder / "begun"
    counting = executor.submit(Counting(begun), begun)
    while not begun.exists():
        time.sleep(0.1)
    counting._interrupt(timeout=True)
    assert counting.result() == 7, counting.stderr()
    print("done")


if __name__ == "__main__":
    main()
