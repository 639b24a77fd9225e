"""What a source that Riprap fetches itself has to be able to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from riprap.adapters.bad_records import BadRecord

# Where to go on: anything JSON can hold, None for the beginning.
Cursor = str | int | dict[str, str | int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Consecutive records: the good ones as a table in the source's schema, the bad ones, and where to go on."""

    table: pa.Table
    cursor: Cursor
    bad: Sequence[BadRecord] = ()


class Fetcher(Protocol):
    """Reads from a system outside, on and on.

    It raises ``ConnectionLost`` when the system cannot be reached: whoever fetches asks again, after the newest cursor.
    """

    def fetch(self, after: Cursor) -> Iterator[Fetched | None]:
        """Yield what there is after a cursor, and end when there is no more for now.

        None means that the connection stands and more is to be waited for.
        """

    def close(self) -> None:
        """Let go of the connection."""
