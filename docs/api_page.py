"""Write docs/api.md: every public name with its signature and docstring, in the order of riprap's table of contents.

python docs/api_page.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import riprap
import riprap.testing

PAGE = Path(__file__).resolve().parent / "api.md"
INTRODUCTION = """# API

Every public name, in its own words (`python docs/api_page.py`). Examples take `import riprap as rr` for granted, and
all of them run in a test. `help(rr)` has the same table of contents. `riprap.testing` is at the end; other packages
have [pages](../README.md#read-on) of their own.
"""
_TITLE = re.compile(r"[A-Z][^.=:(\"]*")
_NAMES = re.compile(r" {4}(\w+(?:, \w+)*)(?: {2}|$)")


def contents(module: ModuleType) -> dict[str, list[str]]:
    """Return the names of a module by the titles of its docstring: lines of names, indented, under each title."""
    found: dict[str, list[str]] = {}
    for line in (inspect.getdoc(module) or "").splitlines():
        if _TITLE.fullmatch(line):
            found[line] = []
        elif found and (names := _NAMES.match(line)):
            found[[*found][-1]] += names[1].split(", ")
    return {title: names for title, names in found.items() if names}


def page() -> str:
    """Return the page's text."""
    lines = [INTRODUCTION]
    for module in (riprap, riprap.testing):
        prefix = "rr" if module is riprap else "rr.testing"
        for title, names in contents(module).items():
            entries = [name for name in names if not isinstance(getattr(module, name), ModuleType)]
            if entries:
                lines += [f"## {title}", ""]
            for name in entries:
                lines += entry(f"{prefix}.{name}", getattr(module, name), "###")
    return "\n".join(lines).rstrip() + "\n"


def entry(name: str, thing: Any, level: str) -> Iterator[str]:
    """Yield the lines of a name: signature and docstring, and for a class those of its methods and properties."""
    yield from (f"{level} {name.removeprefix('rr.')}", "", "```python", signature(name, thing), "```", "")
    yield from (markdown(inspect.getdoc(thing) or ""), "")
    for member, value in members(thing):
        yield from entry(f"{name}.{member}", value, "####")


def members(thing: Any) -> list[tuple[str, Any]]:
    """Return the public methods and properties of a class that Riprap wrote, by name; none of errors, or of others."""
    if not isinstance(thing, type) or issubclass(thing, Exception):
        return []
    found = {}
    for base in thing.__mro__:
        if base.__module__.startswith("riprap"):
            for name in vars(base):
                value = inspect.getattr_static(thing, name)
                if not name.startswith("_") and (
                    callable(value) or isinstance(value, property | classmethod)
                ):
                    found[name] = value.__func__ if isinstance(value, classmethod) else value
    return sorted(found.items())


def signature(name: str, thing: Any) -> str:
    """Write how something is called, on one line if that is not too long."""
    if isinstance(thing, property):
        return f"{name}  # property"
    if isinstance(thing, type) and issubclass(thing, Exception):
        return f"class {name}({thing.__base__.__name__})"
    parameters, bare = [], False
    for parameter in list(inspect.signature(thing).parameters.values()):
        # Operators are added by functions of an application, which are its methods too.
        if parameter.name in ("self", "cls") or parameter.annotation == "Builder":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not bare:
            parameters.append("*")
        bare = bare or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(
            parameter.kind, ""
        ) + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {default(parameter.default)}"
        parameters.append(text)
    returned = inspect.signature(thing).return_annotation
    arrow = (
        ""
        if isinstance(thing, type) or returned is inspect.Signature.empty
        else f" -> {annotation(returned)}"
    )
    lead = "class " if isinstance(thing, type) else ""
    line = f"{lead}{name}({', '.join(parameters)}){arrow}"
    if len(line) <= 110:
        return line
    return "\n".join([f"{lead}{name}(", *(f"    {text}," for text in parameters), f"){arrow}"])


def annotation(kind: Any) -> str:
    """Write a type as it was written."""
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def default(value: Any) -> str:
    """Write a default; an object without a text of its own by its kind."""
    text = repr(value)
    return (
        f"<{getattr(value, '__name__', type(value).__name__)}>" if " at 0x" in text or "<" in text else text
    )


def markdown(docstring: str) -> str:
    """Turn a docstring into Markdown: names, lists of parameters, and examples."""
    lines: list[str] = []
    example = False
    for line in docstring.splitlines():
        begins = line.lstrip().startswith(">>>")
        if begins and not example:
            lines += ["```python"]
        elif example and not line.strip():
            lines += ["```"]
        example = begins or (example and bool(line.strip()))
        lines.append(line if example else _prose(line))
    return "\n".join(lines + (["```"] if example else []))


def _prose(line: str) -> str:
    line = re.sub(r"^:param (\w+):", r"- `\1`:", line)
    line = re.sub(r":(?:class|func|meth|mod):`(?:riprap\.)?([^`]+)`", r"`\1`", line)
    return line.replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
