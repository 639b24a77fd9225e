"""Remember which line of the user's program made something."""

from __future__ import annotations

import linecache
import sys
import types
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def of_caller(cls) -> Location:
        """Return the innermost line on the stack that is not Riprap's own."""
        frame = sys._getframe(1)
        while (
            frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE) and not _is_app(frame)
        ):
            frame = frame.f_back
        file, line = frame.f_code.co_filename, frame.f_lineno
        return cls(file=file, line=line, code=linecache.getline(file, line).strip())


def _is_app(frame: types.FrameType) -> bool:
    # The built-in applications are written as a user would write them: their lines are user lines.
    return "riprap/apps/" in frame.f_code.co_filename.replace("\\", "/")
