"""The options of a submission, from the `#SBATCH` and `#RM` lines of its script, from the environment and
from flags. Pure: text in, options and remarks out.

Directives stand at the top: parsing stops at the first line that is neither blank nor a
comment. `#RM` beats `#SBATCH`; among lines of one kind the later wins.
"""

from __future__ import annotations

from rm.errors import Refusal, UsageError
from rm.hints import nearest
from rm.submission.options import (
    ALL,
    FLAG,
    IGNORED,
    MAYBE,
    REFUSED,
    SBATCH,
    TOLD,
    VALUE,
    VARIABLES,
    Option,
)
from rm.submission.remarks import Remarks
from rm.submission.script import is_text
from rm.units import number_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

SLURMS = "#SBATCH"
PREFIXES = (SLURMS, "#RM")  # the weaker first
FOREIGN = ("#PBS", "#BSUB")  # which Slurm reads, too
BURST_BUFFERS = {  # DataWarp's directives and Slurm's, and their commands; a comment may begin like one
    "#BB": ("create_persistent", "destroy_persistent"),
    "#DW": ("jobdw", "persistentdw", "stage_in", "stage_out", "swap"),
}
HETEROGENEOUS = ("hetjob", "packjob")  # which separate the parts of such a job
# the page reads directives in the daemon, where others wait
CHARACTERS_MAX, WORDS_MAX = 128 << 10, 1_000  # of all directives; of a line
MISTAKES_MAX = 50  # that are told
_BY_LONG = {name: option for option in ALL for name in option.long}
_BY_SHORT = {option.short: option for option in ALL if option.short}
NO_MORE: Mapping[str, Option] = {}
_OF_SRUN = ("cpu-bind", "container-id", "jobid", "het-group")  # sbatch has none of these to abbreviate
_OFF = {option.off: option for option in ALL if option.off}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PLAIN = frozenset(f"{_LETTERS}{_LETTERS.upper()}0123456789 -_=.,:;/%@+*[]()&|!?<>{{}}$~^")  # to shlex


def parse(text: str, file: str, remarks: Remarks) -> dict[str, Any]:
    """The options of all directives of a script: key -> text, or True/False for flags.

    Unknown options, and those that rm lacks and that change the job's meaning, are complaints.
    """
    values: dict[str, dict[str, Any]] = {prefix: {} for prefix in PREFIXES}
    told, size = False, 0
    for number, line in enumerate(text.split("\n"), 1):
        if len(remarks.errors) >= MISTAKES_MAX:
            break
        bare = line.strip()
        if bare and not bare.startswith("#"):  # as for Slurm a comment may be indented, and a directive not
            break
        prefix, _, rest = line.replace("\t", " ").partition(" ")
        if line.startswith(SLURMS):  # Slurm wants no space there
            prefix, rest = SLURMS, line[len(SLURMS) :]
        if prefix in FOREIGN and not told:
            told = True
            remarks.warnings.append(f"{prefix} (line {number} of {file}) was ignored, as are all such lines.")
        if rest.split(" ")[0] in BURST_BUFFERS.get(prefix, ()):
            asked = f"{prefix} (line {number} of {file}) asks for a burst buffer, which rm has not."
            remarks.errors.append(UsageError(asked, "Remove it if the job does not need it."))
        if prefix not in PREFIXES:
            continue
        where = f"{prefix} in line {number} of {file}"
        size += len(rest)
        with remarks.gathering():
            if size > CHARACTERS_MAX:
                said = f"The directives of {file} have more than {CHARACTERS_MAX} characters."
                raise UsageError(said, refusal=Refusal.BAD_LINE)
            try:
                words = _words(rest)
            except ValueError as error:
                said = f"{where} cannot be read: {str(error).lower()}."
                raise UsageError(said, refusal=Refusal.BAD_LINE) from None
            if len(words) > WORDS_MAX:
                said = f"{where} has more than {WORDS_MAX} words."
                raise UsageError(said, refusal=Refusal.BAD_LINE)
            while words and len(remarks.errors) < MISTAKES_MAX:
                options, words = leading_options(words, where, remarks=remarks, abbreviated=prefix == SLURMS)
                for option, value in options:
                    values[prefix] |= supported(option, value, where, remarks)
                if words:
                    word = words.pop(0)
                    no_option = f"'{word}' ({where}) is not an option.", "Directives hold options only."
                    parts = f"{where} begins a part of a heterogeneous job, which rm has not."
                    several = parts, "Submit a job for each part."
                    remarks.errors.append(UsageError(*(several if word in HETEROGENEOUS else no_option)))
    merged: dict[str, Any] = {}
    for prefix in PREFIXES:
        merged = merge(merged, values[prefix])
    return merged


def _words(text: str) -> list[str]:
    """As a shell would read them.

    Raises:
        ValueError: a quotation has no end.
    """
    if _PLAIN.issuperset(text):
        return text.split()
    import shlex  # most directives have nothing that a shell would read otherwise

    return shlex.split(_without_last_backslash(text), comments=True)


def _without_last_backslash(text: str) -> str:
    """A line is not continued in the next one: as in Slurm a backslash at its end means nothing."""
    bare = text.rstrip()
    kept = bare.rstrip("\\")
    return kept if (len(bare) - len(kept)) % 2 and not kept.startswith("#") else text


def of_environment(environment: Mapping[str, str], remarks: Remarks, prefix: str = SBATCH) -> dict[str, Any]:
    """The options that Slurm's input variables set, such as SBATCH_PARTITION: stronger than the script's
    lines, weaker than flags. Those of another command have its `prefix`, such as SALLOC_; "": it has none."""
    values: dict[str, Any] = {}
    if not prefix:
        return values
    for name_of_sbatch, name in VARIABLES.items():
        variable = name_of_sbatch.replace(SBATCH, prefix)
        text = environment.get(variable)
        if text is None:
            continue
        option, value = _BY_LONG.get(name) or _OFF[name], text
        if option.takes == FLAG:
            if not (text in ("", "yes") or number_of(text)):
                continue  # as sbatch has it: any other value leaves the option unset
            values |= supported(option, name not in _OFF, f"{variable} in the environment", remarks)
        elif value or option.takes == MAYBE:
            values |= supported(option, value, f"{variable} in the environment", remarks)
    wait = environment.get(f"{prefix}WAIT4SWITCH")
    if wait and "@" not in values.get("switches", "@"):
        values["switches"] += f"@{wait}"
    return values


def of_flags(flags: Mapping[str, Any], remarks: Remarks) -> dict[str, Any]:
    """The options of a command line, by their keys; None, and a flag that rm lacks and is not set, were not
    given."""
    values: dict[str, Any] = {}
    for option in ALL:
        value = flags.get(option.key)
        if value is not None and (value is not False or not option.support):
            values |= supported(option, value, "a flag", remarks)
    return values


def of_keywords(given: Mapping[str, object], remarks: Remarks) -> dict[str, Any]:
    """Flags from a program's keywords, which are long options with `_` for `-`: True and False for those
    that take no value, anything else is text. None was not given."""
    flags: dict[str, Any] = {}
    for word, value in given.items():
        name = word.replace("_", "-")
        with remarks.gathering():
            option = _BY_LONG.get(name)
            if option is None:
                raise _unknown(f"--{name}", "a keyword")
            if option.takes == FLAG and not isinstance(value, bool | None):
                raise UsageError(f"--{name} (a keyword) takes no value.", "Write True or False.")
            if option.takes == VALUE and isinstance(value, bool):
                raise UsageError(f"--{name} (a keyword) needs a value.")
            flags[option.key] = value if isinstance(value, bool | None) else str(value)
    return flags


def supported(option: Option, value: Any, where: str, remarks: Remarks) -> dict[str, Any]:
    """The option as {key: value}; nothing if the job is not told of it. A remark for one without effect."""
    said = f"--{option.long[0]} ({where}) is not supported"
    if option.support == REFUSED:
        remarks.errors.append(
            UsageError(
                f"{said}, and without it the job would do something else.",
                "Remove it if the job does not need it.",
            )
        )
        return {}
    if option.support == IGNORED:
        remarks.warnings.append(f"{said} and was ignored.")
        return {}
    if option.support == TOLD:
        remarks.warnings.append(f"{said}: it is only told to the job, in its environment.")
    return {option.key: value}


# options that say the same thing in different ways: a stronger source's choice replaces a weaker's
_PROFILE = {"period", "duty_cycle", "bandwidth"}
_ALTERNATIVES = (
    ({"gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket", "gres"},) * 2,
    ({"mem", "mem_per_cpu", "mem_per_gpu"},) * 2,
    ({"cpus_per_task", "cpus_per_gpu"},) * 2,
    ({"traffic", "low_comm"}, _PROFILE | {"traffic", "low_comm"}),
    (_PROFILE, {"traffic", "low_comm"}),
)


def merge(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """The options of two sources, of which the second wins."""
    dropped: set[str] = set()
    for given, replaced in _ALTERNATIVES:
        if given & stronger.keys():
            dropped |= replaced
    return {key: value for key, value in weaker.items() if key not in dropped} | dict(stronger)


def leading_options(
    words: Sequence[str],
    where: str,
    more: Mapping[str, Option] = NO_MORE,
    remarks: Remarks | None = None,
    *,
    abbreviated: bool = False,
) -> tuple[list[tuple[Option, Any]], list[str]]:
    """The options before the first word that is none, each with its value, and that word with what follows.

    `more`: long options besides the table's. `remarks`: where complaints are gathered instead of raised; a
    word behind an unknown option then counts as its value. `abbreviated`: the beginning of a long name will
    do where no other option begins so, and `--` ends the options, as for Slurm's commands.

    Raises:
        UsageError: options are unknown, lack their values, or have ones that they do not take; all of them.
    """
    said = remarks if remarks is not None else Remarks()
    found: list[tuple[Option, Any]] = []
    rest = list(words)
    while _is_option(rest):
        if abbreviated and rest[0] == "--":
            rest.pop(0)
            break
        begun: list[str] = []
        if abbreviated:
            rest[0], begun = _whole(rest[0], more)
        with said.gathering():
            if (option := _known(rest[0], more)) is None:
                word = rest.pop(0)
                if remarks is not None and rest and not _is_option(rest):
                    rest.pop(0)
                name = word.partition("=")[0] if word.startswith("--") else word[:2]
                raise _ambiguous(name, begun, where) if begun else _unknown(name, where)
            found.append((option, _value(option, rest, where)))
    if remarks is None:
        said.refuse()
    return found, rest


def _is_option(words: Sequence[str]) -> bool:
    """Does an option come next?"""
    return bool(words) and words[0].startswith("-") and words[0] != "-"


def _known(word: str, more: Mapping[str, Option]) -> Option | None:
    """The option that the word begins with."""
    if not word.startswith("--") or len(word) == 2:
        own = (option for option in more.values() if option.short == word[1:2])
        return _BY_SHORT.get(word[1]) or next(own, None)
    name, equals, _ = word[2:].partition("=")
    return (None if equals else _OFF.get(name)) or _BY_LONG.get(name) or more.get(name)


def _whole(word: str, more: Mapping[str, Option]) -> tuple[str, list[str]]:
    """The word with the long name whose only beginning it has; the word itself where there is none, and the
    names where there are several."""
    name, equals, value = word.removeprefix("--").partition("=")
    if not word.startswith("--") or _known(f"--{name}", more):
        return word, []
    known = (*_BY_LONG, *_OFF, *more)
    names = [one for one in known if one and one.startswith(name) and one not in _OF_SRUN]
    return (f"--{names[0]}{equals}{value}", []) if len(names) == 1 else (word, names)


def _value(option: Option, words: list[str], where: str) -> Any:
    """The value of the option that comes next; it is taken from the words."""
    word = words.pop(0)
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if name == option.off:
            return False
        attached = value if equals else None
    else:
        attached = word[2:] or None
        if option.takes == FLAG and attached:
            words.insert(0, "-" + attached)  # letters together: -HW
            attached = None
    if option.takes == FLAG and attached is not None:
        raise UsageError(f"--{option.long[0]} ({where}) takes no value.")
    if option.takes == VALUE and attached is None:
        if not words:
            raise UsageError(f"--{option.long[0]} ({where}) needs a value.")
        attached = words.pop(0)
    if attached and not attached.isprintable() and not is_text(attached):
        raise UsageError(f"--{option.long[0]} ({where}) is not UTF-8 text.")
    return {FLAG: True, MAYBE: attached or ""}.get(option.takes, attached)


def _ambiguous(name: str, names: Sequence[str], where: str) -> UsageError:
    possible = " ".join(f"'--{one}'" for one in names)
    return UsageError(f"Unknown option {name} ({where}), which is ambiguous.", f"Possibilities: {possible}.")


def _unknown(name: str, where: str) -> UsageError:
    near = nearest(name.lstrip("-"), _BY_LONG)
    hint = f"Did you mean '--{near}'?" if near else "`rmx submit --help` lists the options."
    return UsageError(f"Unknown option {name} ({where}).", hint)


def with_optional_values(words: Sequence[str], more: Mapping[str, Option] = NO_MORE) -> list[str]:
    """A command line in which each option that may have a value, but has none, has an empty one. `more`: long
    options besides the table's.

    As in Slurm a value belongs to such an option only behind `=`, or right behind its letter, never as the
    next word.
    """
    found: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.removeprefix("--").partition("=")
        option = _known(f"--{name}" if word.startswith("--") else word, more) if word[1:2] else None
        found.append(word)
        if word in ("--", "-") or not word.startswith("-"):
            break  # the script and its arguments
        if option is None or equals:
            continue
        if option.takes == MAYBE:
            found[-1] = f"{word}=" if word.startswith("--") else f"--{option.long[0]}={word[2:]}"
        elif option.takes == VALUE and (word.startswith("--") or len(word) == 2) and rest:
            found.append(rest.pop(0))
    return [*found, *rest]
