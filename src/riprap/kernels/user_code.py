"""Say what went wrong inside of code of the user's, and at which of its lines."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa

_RIPRAP, _ARROW, _NUMPY = (
    f"{Path(file).parents[above]}/" for file, above in ((__file__, 1), (pa.__file__, 0), (np.__file__, 0))
)
# Those that come with Riprap are written as a user would write them.
_APPS = f"{_RIPRAP}apps/"
_STANDARD = f"{sysconfig.get_paths()['stdlib']}/"
_MOST_FRAMES = 12

# What a user's code may raise and is told of. Ctrl-C is nobody's failure.
FAILURES = (Exception, SystemExit)


def describe(error: BaseException) -> str:
    """Give an error's kind and text, and the lines of the user's code it came by, the innermost last.

    An error that comes from a line of no user's, such as an overflow in an expression, is its kind and text alone.
    """
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SystemExit):
        said = f"it called sys.exit({error.code!r}), which would end Spark's worker. Raise an error instead"
    # An empty line would end the message on its way through the JVM.
    said = re.sub(r"\n\s*\n", "\n", said)
    return "\n".join([said, *user_lines(error)])


def user_lines(error: BaseException) -> list[str]:
    """Name the lines an error came by, from the first line of the user's own on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((n for n, frame in enumerate(frames) if _is_users(frame.filename)), len(frames))
    own = [f for f in frames[first:] if f.filename.startswith(_APPS) or not f.filename.startswith(_RIPRAP)]
    lines = [f"    {f.filename}:{f.lineno} in {f.name}" + (f": {f.line}" if f.line else "") for f in own]
    if len(lines) > _MOST_FRAMES:
        half = _MOST_FRAMES // 2
        lines[half:-half] = [f"    ... {len(lines) - 2 * half} more ..."]
    return lines


def _is_users(file: str) -> bool:
    if file.startswith(_APPS):
        return True
    standard = file.startswith((_STANDARD, "<frozen")) and "site-packages" not in file
    return not standard and not file.startswith((_RIPRAP, _ARROW, _NUMPY))
