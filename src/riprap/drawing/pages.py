"""Pages with figures: one HTML file each that needs nothing else, all of one look.

What a page says is HTML of its own, between a shared head and a shared foot; its figures are drawn in the browser, from
values that stand in the page as JSON.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any


def make_page(*, title: str, subtitle: str, body: str, told: Mapping[str, Any], css: str, js: str) -> str:
    """Return a page: ``body`` is HTML, ``told`` what its script finds under that name, the others are plain text."""
    return Template(_shared("page.html")).substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        body=body,
        told=for_script(told),
        css=_shared("page.css") + css,
        js=_shared("page.js") + _shared("chart.js") + js,
    )


def for_script(told: Mapping[str, Any]) -> str:
    """Write JSON so that nothing in it can end the element it stands in."""
    return json.dumps(told, allow_nan=False).replace("<", "\\u003c")


def page_file(package: str, name: str) -> str:
    """Return a file of the folder ``page`` of a package."""
    return files(package).joinpath("page", name).read_text(encoding="utf-8")


def _shared(name: str) -> str:
    return page_file("riprap.drawing", name)
