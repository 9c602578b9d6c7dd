"""Which tasks `--tags` and `--skip-tags` choose."""

from __future__ import annotations

from collections.abc import Sequence

from rm.playbook.model.schema import Task

_UNTAGGED = frozenset({"untagged"})


def selected(task: Task, tags: Sequence[str], skip_tags: Sequence[str]) -> bool:
    """Ansible's rule (`Taggable.evaluate_tags`), with `always`, `never`, `all`, `tagged`, `untagged`."""
    own, wanted = frozenset(task.tags) or _UNTAGGED, tags or ("all",)
    chosen = (
        "always" in own
        or ("all" in wanted and "never" not in own)
        or not own.isdisjoint(wanted)
        or ("tagged" in wanted and own != _UNTAGGED and "never" not in own)
    )
    if "all" in skip_tags:
        return chosen and "always" in own and "always" not in skip_tags
    dropped = not own.isdisjoint(skip_tags) or ("tagged" in skip_tags and own != _UNTAGGED)
    return chosen and not dropped
