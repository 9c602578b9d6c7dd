"""The text of a job array, `0-15:4,20%2`, and of ids of its elements, `36_2` and `36_[3-9]`.

A set of indices is an int here, whose bit n says whether index n is in it: one of 100,000 elements takes
12.5 kB, whatever the pattern. As text it is Slurm's: `3-9,12`, or `0-12:4` where all are as far apart.

Source: sbatch(1) of Slurm 22.05, --array, and "Job Array Support".
"""

from __future__ import annotations

from functools import lru_cache

from rm.errors import UsageError
from rm.imported_later import re
from rm.quick_tuple import NamedTuple

INDEX_MAX = 4_000_000  # Slurm's largest MaxArraySize allows no more
BYTES_MAX = 100_000  # of the text of an array
NAMED_MAX = INDEX_MAX + 1  # indices that a list names, with those that it names more than once
STEPPED_MAX = 100_000  # of these by ranges with a step, beside others: each may be a word of the list anew
_FEW = 64  # runs that are found one by one
_BLOCK = 16  # bytes of a set whose text is kept: a change of one index writes one block anew

_RANGE = r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?\Z"
_ID = r"(\d{1,18})(?:_(?:(\d{1,9})|\[([^\]]*)\]))?\Z"
_HINT = "Write indices and ranges: --array=0-15, --array=1,3,7-9, --array=0-9999:2%50."


class Indices(NamedTuple):
    """What --array asks for: the elements, how many may run at once (0: any number), and the step."""

    mask: int
    limit: int = 0
    step: int = 1

    @property
    def first(self) -> int:
        return lowest(self.mask)

    @property
    def last(self) -> int:
        return self.mask.bit_length() - 1


class JobId(NamedTuple):
    """A job, or with `tasks` some elements of an array; "" is all of it."""

    job: int
    tasks: str = ""

    def each(self) -> list[JobId]:
        """The elements that are named, one by one; a whole job is one."""
        return [JobId(self.job, str(task)) for task in each(mask(self.tasks))] if self.tasks else [self]

    def __str__(self) -> str:
        if not self.tasks:
            return str(self.job)
        return f"{self.job}_{self.tasks}" if self.tasks.isdigit() else f"{self.job}_[{self.tasks}]"


@lru_cache(maxsize=128)
def parse(text: str) -> Indices:
    """The array that --array asks for.

    Raises:
        UsageError: it is none; a single sentence says what is wrong.
    """
    if len(text) > BYTES_MAX:
        raise UsageError(f"--array has {len(text)} characters, and may have {BYTES_MAX}.", _HINT)
    listed, percent, limit = text.strip().partition("%")
    if percent and not re.match(r"\d{1,9}\Z", limit, re.ASCII):
        raise _wrong(text, f"'{limit[:80]}' is no number of elements that may run at once")
    parts = _parts(text, listed.strip().removeprefix("[").removesuffix("]"))
    steps = {step for first, last, step in parts if last > first}
    step = steps.pop() if len(steps) == 1 else 1
    return Indices(_union(parts), int(limit or 0), step)


def mask(text: str) -> int:
    """The indices of a list that `text_of` wrote, or that a user wrote after an array's id.

    Raises:
        UsageError: it is no such list.
    """
    known = _known(text)
    if not known:
        known[:] = [_union(_parts(text, text)) if text else 0]
    return known[0]


@lru_cache(maxsize=128)
def _known(text: str) -> list[int]:
    """Where the indices of a list are kept, once they are known."""
    return []


def _parts(text: str, listed: str) -> list[tuple[int, int, int]]:
    """(first, last, step) of each range."""
    found, named, stepped = [], 0, 0
    for part in listed.split(","):
        match = re.match(_RANGE, part.strip(), re.ASCII)
        if match is None:
            raise _wrong(
                text, f"'{part[:80]}' is no index and no range" if part.strip() else "a part is empty"
            )
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first:
            raise _wrong(text, f"the range '{part[:80]}' ends before it begins")
        if not step:
            raise _wrong(text, f"the step of '{part[:80]}' is 0")
        if last > INDEX_MAX:
            raise _wrong(text, f"{last} is more than {INDEX_MAX}, the largest index there is")
        found.append((first, last, step))
        named += (last - first) // step + 1
        stepped += (last - first) // step if step > 1 else 0
        if named > NAMED_MAX or (len(found) > 1 and stepped > STEPPED_MAX):
            most = f"{NAMED_MAX} indices, or in several ranges with steps {STEPPED_MAX}"
            raise _wrong(text, f"it names too many indices: at most {most}; one named twice counts twice")
    return found


def _union(parts: list[tuple[int, int, int]]) -> int:
    if len(parts) <= _FEW and all(step == 1 for _, _, step in parts):
        united = 0
        for first, last, _ in parts:
            united |= ((1 << (last - first + 1)) - 1) << first
        return united
    digits = bytearray(b"0" * (max(last for _, last, _ in parts) + 1))
    for first, last, step in parts:
        digits[first : last + 1 : step] = b"1" * len(range(first, last + 1, step))
    digits.reverse()
    return int(digits, 2)


@lru_cache(maxsize=128)
def text_of(indices: int) -> str:
    """The indices as a list, "" for none."""
    if not indices:
        return ""
    first, last, count = lowest(indices), indices.bit_length() - 1, indices.bit_count()
    if last - first + 1 == count:  # one run, as what waits of an array mostly is
        return f"{first}-{last}" if count > 1 else str(first)
    if count > 2 and last - first + 1 > count:
        step = lowest(indices & (indices - 1)) - first
        if (last - first) == step * (count - 1) and indices == _union([(first, last, step)]):
            return f"{first}-{last}:{step}"
    text = _listed(indices)
    _known(text)[:] = [indices]
    return text


def _listed(indices: int) -> str:
    """Each run, in blocks: of a long list that was written before nearly all is known. A block in which no
    run begins or ends says nothing, and is not looked at."""
    size = (indices.bit_length() + 7) // 8
    first, last = indices & ~(indices << 1), indices & ~(indices >> 1)
    begins, ends = first.to_bytes(size, "little"), last.to_bytes(size, "little")
    edges, blocks = (first | last).to_bytes(size, "little"), []
    next_edge = re.compile(rb"[^\0]").search
    edge = next_edge(edges)
    while edge is not None:
        at = edge.start() // _BLOCK * _BLOCK
        blocks.append(_block(at * 8, begins[at : at + _BLOCK], ends[at : at + _BLOCK]))
        edge = next_edge(edges, at + _BLOCK)
    return "".join(blocks)[1:]


@lru_cache(maxsize=32_768)
def _block(base: int, begins: bytes, ends: bytes) -> str:
    """What a list says of the indices from `base` on: `,3` where a run begins, and `-9` where one ends
    that has more than one index."""
    first, last = int.from_bytes(begins, "little"), int.from_bytes(ends, "little")
    said = []
    for index in each(first | last):
        if first >> index & 1:
            said.append(f",{base + index}")
        else:
            said.append(f"-{base + index}")
    return "".join(said)


def _runs(indices: int) -> list[tuple[int, int]]:
    """(first, last) of each run of consecutive indices."""
    if (indices & ~(indices << 1)).bit_count() > _FEW:
        digits = f"{indices:b}"[::-1]
        return [(run.start(), run.end() - 1) for run in re.finditer("1+", digits)]
    found, at = [], 0
    while indices:
        gap = lowest(indices)
        indices >>= gap
        run = lowest(indices + 1)
        found.append((at + gap, at + gap + run - 1))
        indices >>= run
        at += gap + run
    return found


def lowest(indices: int) -> int:
    """The smallest index of a set that is not empty."""
    return (indices & -indices).bit_length() - 1


def each(indices: int) -> list[int]:
    """The indices in ascending order."""
    return [index for first, last in _runs(indices) for index in range(first, last + 1)]


def parse_id(text: str) -> JobId:
    """`36`, `36_2`, `36_[3-9]` or `36_[3-9%5]`, as lists show them: the limit says nothing about elements.

    Raises:
        UsageError: it is no id of a job.
    """
    match = re.match(_ID, text, re.ASCII)
    if match is None:
        raise UsageError(
            f"'{text[:80]}' is not a job id.",
            "A job id is the number that `rmx submit` printed; elements of an array are 36_2 or 36_[3-9].",
        )
    if match[3] is None:
        return JobId(int(match[1]), str(int(match[2])) if match[2] else "")
    listed = match[3].partition("%")[0]
    try:
        chosen = mask(listed)
    except UsageError as error:
        raise UsageError(f"'{text[:80]}' is not a job id: {error.what}", "Write 36_[3-9,12].") from None
    if not chosen:
        raise UsageError(f"'{text[:80]}' names no element of the array.", "Write 36_[3-9,12].")
    return JobId(int(match[1]), text_of(chosen))


def split_ids(text: str) -> list[str]:
    """`7,8,9_[3-4,6]` to its ids."""
    return [part for part in split(text, ",") if part]


def split(text: str, between: str) -> list[str]:
    """At `between`, but not within the brackets around elements of an array: before a bracket that closes."""
    parts, end, inside = [], len(text), False
    for found in reversed(list(re.finditer(rf"[\[\]{re.escape(between)}]", text))):
        if found[0] != between:
            inside = found[0] == "]"
        elif not inside:
            parts.append(text[found.end() : end])
            end = found.start()
    return [*reversed([*parts, text[:end]])]


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"--array is '{text[:80]}', and {why}.", _HINT)
