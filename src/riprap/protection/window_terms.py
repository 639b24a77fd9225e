"""How open windows are recorded in an output log, as a policy says it."""

from __future__ import annotations

from dataclasses import dataclass

from riprap.errors import GraphError


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTerms:
    """How the open windows of an operator are recorded in its output log.

    No more than ``extent`` entries of the log are to be read back after a loss, and no more than ``replay`` tuples to
    be computed again, as far as a ``share`` of the time is enough for that. They have no part in what comes out.
    """

    extent: int | None = None
    replay: int | None = None
    share: float = 0.05

    def __post_init__(self) -> None:
        for name, value in (("extent", self.extent), ("replay", self.replay)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise GraphError(f"eventual({name}=...) takes a whole number of at least 1, got {value!r}")

    def __str__(self) -> str:
        most = [
            f"{value:,} {what}"
            for value, what in (
                (self.extent, "entries to read back"),
                (self.replay, "tuples to compute again"),
            )
            if value is not None
        ]
        bounds = f"at most {' and '.join(most)}" if most else "again where that shortens what is read back"
        return f"{bounds}, for {100 * self.share:g}% of the time"
