"""What a play would do, as far as its text says: for `--list-tasks`, `--list-tags`, `--start-at-task`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rm.playbook.model.keywords import DYNAMIC_INCLUDES
from rm.playbook.model.schema import Play, Task, tasks_of
from rm.playbook.model.tags import selected
from rm.playbook.modules import called
from rm.playbook.template.template import has_template

# what an include brings is known when it runs
_GROWING = ("add_host", "group_by", *DYNAMIC_INCLUDES)


def shown_name(task: Task) -> str:
    role = task.role if task.module != "include_role" else None  # as in Ansible
    return f"{role.full_name} : {task.name}" if role else task.name


def _written(play: Play) -> list[Task]:
    return [t for t in tasks_of(play.tasks) if t.name != "flush handlers"]


def plan_of_play(play: Play, tags: Sequence[str], skip_tags: Sequence[str]) -> dict[str, Any]:
    """The chosen tasks, and every tag that the play's tasks have."""
    return {
        "tasks": [
            {
                "name": shown_name(t),
                "module": called(t.module),
                "line": t.line,
                "file": t.file,
                "tags": list(t.tags),
            }
            for t in _written(play)
            if selected(t, tags, skip_tags)
        ],
        "tags": sorted({tag for t in _written(play) for tag in t.tags}),
    }


def growing_of(plays: Sequence[Play]) -> list[tuple[Play, bool]]:
    """Each play, and whether what is before it may change whom it is for: tasks that add hosts or groups to
    the inventory of the run, or variables that a template in `hosts` looks at."""
    found: list[tuple[Play, bool]] = []
    grows = False
    for play in plays:
        found.append((play, grows or bool(found and has_template(play.hosts))))
        grows = grows or any(t.module in _GROWING for t in (*tasks_of(play.tasks), *play.handlers))
    return found


def names_of(play: Play) -> list[str]:
    return [name for t in _written(play) for name in {t.name, shown_name(t)}]
