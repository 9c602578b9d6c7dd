"""Which tasks `--tags` and `--skip-tags` choose."""

from __future__ import annotations

from collections.abc import Sequence

from rm.playbook.schema import Task


def selected(task: Task, tags: Sequence[str], skip_tags: Sequence[str]) -> bool:
    """Ansible's rule, with `always`, `never`, `all`, `tagged`, `untagged`."""
    own = set(task.tags)
    chosen = not own & {"never"}
    if tags and "all" not in tags:
        hit = own & set(tags) or ("tagged" in tags and own) or ("untagged" in tags and not own)
        chosen = bool(hit) or ("always" in own and "always" not in skip_tags)
    elif "never" in own and own & set(tags) - {"all"}:
        chosen = True
    dropped = own & set(skip_tags) or ("tagged" in skip_tags and own) or ("untagged" in skip_tags and not own)
    if "all" in skip_tags:
        dropped = "always" not in own or "always" in skip_tags
    return chosen and not dropped
