"""Slurm's options of GPUs as numbers: what each says by itself."""

from __future__ import annotations

from rm.errors import Refusal, UsageError, refusing
from rm.imported_later import re
from rm.quick_tuple import NamedTuple

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from rm.submission.remarks import Remarks

_NUMBER = r"(?:([A-Za-z][\w.-]*)[:=])?(\d{1,99})\Z"
_BIND = r"(?:verbose,)?(none|single|per_task)(?::([1-9]\d{0,98}))?\Z"
RESOURCES = "gpu"  # what --gres may name


class GpuOptions(NamedTuple):
    """GPUs of the whole job, of each host and of each task, None = not said; their type. `bind` is --gpu-bind
    without its number, which is `bind_number`."""

    total: int | None = None
    host: int | None = None
    task: int | None = None
    kind: str = ""
    bind: str = ""
    bind_number: int = 0


def gpu_options(values: Mapping[str, Any]) -> GpuOptions:
    """Raises UsageError for what is not understood, or contradicts itself."""
    with refusing(Refusal.BAD_GPUS):
        numbers, kind = _counted(values)
    bind, number = _bind(values.get("gpu_bind") or "")
    total, host, task = (numbers.get(key) for key in ("gpus", "gpus_per_node", "gpus_per_task"))
    return GpuOptions(total, host, task, kind, bind, number)


def by_socket(values: Mapping[str, Any], sockets: int | None, remarks: Remarks) -> Mapping[str, Any]:
    """The options with --gpus-per-socket as --gpus-per-node: no host tells of its sockets.

    Args:
        sockets: --sockets-per-node.
        remarks: where it is said that this is less than what is asked for.

    Raises:
        UsageError: there are no --sockets-per-node, or another number of GPUs on a host is asked for, too.
    """
    text = values.get("gpus_per_socket")
    if text is None:
        if sockets:
            remarks.warnings.append("--sockets-per-node is not supported and was ignored.")
        return values
    with refusing(Refusal.BAD_GPUS):
        number, kind = _number("--gpus-per-socket", text, text)
        if not sockets:
            raise UsageError("--gpus-per-socket needs --sockets-per-node.", "Or write --gpus-per-node.")
        number, kinds = number * sockets, {kind}
        node = values.get("gpus_per_node")
        if node is not None:
            of_node, kind = _number("--gpus-per-node", node, node)
            kinds.add(kind)
            if of_node != number:
                raise UsageError(
                    "--gpus-per-node and --gpus-per-socket ask for different numbers of GPUs on a host.",
                    "Keep one of them.",
                )
        on_host = f"{_one_kind(kinds)}:{number}".removeprefix(":")
    remarks.warnings.append(
        f"--gpus-per-socket={text} counts as --gpus-per-node={on_host}: rm does not look at sockets."
    )
    return {**values, "gpus_per_node": on_host}


def _counted(values: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    """How many GPUs of each place, and the type that is named."""
    numbers: dict[str, int] = {}
    kinds: set[str] = set()
    for key, option, text in _given(values):
        number, kind = _number(option, text, values[key])
        if numbers.setdefault("gpus_per_node" if key == "gres" else key, number) != number:
            raise UsageError(
                "--gpus-per-node and --gres ask for different numbers of GPUs on a host.", "Keep one of them."
            )
        kinds.add(kind)
    return numbers, _one_kind(kinds)


def _number(option: str, text: str, given: str) -> tuple[int, str]:
    """The number of a text such as `a100:2`, and its type, or ""."""
    match = re.match(_NUMBER, text)
    if match is None:
        raise UsageError(f"{option}={given} is not understood.", "Write a number of GPUs, or TYPE:NUMBER.")
    return int(match[2]), match[1] or ""


def _one_kind(kinds: set[str]) -> str:
    """The type that is named, or ""."""
    named = sorted(kinds - {""})
    if len(named) > 1:
        raise UsageError(f"The job asks for several types of GPUs: {', '.join(named)}.", "Keep one of them.")
    return named[0] if named else ""


def _given(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, option, text such as `a100:2`) of each option that asks for GPUs."""
    for key in ("gpus_per_task", "gpus", "gpus_per_node"):
        if values.get(key) is not None:
            yield key, "--" + key.replace("_", "-"), values[key]
    gres = values.get("gres") or "none"
    for place, part in enumerate(gres.split(",") if gres.lower() != "none" else []):
        name, _, text = part.strip().removeprefix("gres/").partition(":")
        name, equals, number = name.partition("=")
        if name != RESOURCES:
            raise UsageError(
                f"--gres={gres} asks for '{part.strip()}', which rm does not know.",
                "The only generic resource is gpu: --gres=gpu[:TYPE]:N.",
            )
        if place:
            raise UsageError(f"--gres={gres} names GPUs twice.", "Name one type and one number.")
        text = number if equals else text or "1"
        if not text[:1].isdecimal() and not {":", "="} & set(text):
            text += ":1"  # a type alone
        yield "gres", "--gres", text


def _bind(text: str) -> tuple[str, int]:
    if not text or text.lower().removeprefix("verbose,") == "closest":  # the host finds what is close
        return "", 0
    match = re.match(_BIND, text.lower())
    if match is None or (match[1] != "none") != bool(match[2]):
        raise UsageError(
            f"--gpu-bind={text} is not supported.",
            "Supported are none, closest, single:TASKS and per_task:GPUS.",
        )
    return match[1], int(match[2] or 0)
