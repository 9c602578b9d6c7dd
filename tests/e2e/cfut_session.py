"""Squares by clusterfutures, each a job; one that fails. Run in a folder that the hosts have."""

from __future__ import annotations

import cfut


def square(number: int) -> int:
    return number * number


def main() -> None:
    with cfut.SlurmExecutor(additional_setup_lines=["#SBATCH --time=5"]) as executor:
        assert list(executor.map(square, range(6))) == [0, 1, 4, 9, 16, 25]
        wrong = executor.submit(square, "two")
        assert "TypeError" in str(wrong.exception(timeout=100))
    print("done")


if __name__ == "__main__":
    main()
