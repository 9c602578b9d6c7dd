"""What all pages have around them, and how they become responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from rm import __version__
from rm.core.monitoring.cells import Status
from rm.web.pages.people import Person, Sessions

# what makes text look like other text: controls but for tabs and ends of lines, and changes of direction
_DECEIVING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _harmless(value: Any) -> Any:
    """Whoever wrote it, and wherever a template shows it; markup has been through this."""
    return _DECEIVING.sub("?", value) if type(value) is str else value


class Frame:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._templates = Environment(
            loader=PackageLoader("rm.web.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_harmless,
        )
        self._templates.globals |= {"version": __version__, "statuses": list(Status)}
        self._templates.filters["query"] = urlencode

    def page(
        self, template: str, person: Person, fields: Mapping[str, Any], status: int = 200
    ) -> web.Response:
        """A whole page, with what was noted for the person."""
        note = self._sessions.noted(person.door) if person.known else ""
        html = self.draw(template, person, {"note": note, **fields})
        return web.Response(text=html, status=status, content_type="text/html")

    def draw(self, template: str, person: Person, fields: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(person=person, **fields)
