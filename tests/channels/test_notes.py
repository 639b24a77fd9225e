"""What a reader notes: the ranges left when some are skipped."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from riprap.channels.notes import Notes, Skip

BOUNDS = st.integers(0, 12)
SKIPS = st.tuples(st.none() | BOUNDS, BOUNDS).filter(lambda skip: skip[0] is None or skip[0] < skip[1])


@given(skips=st.lists(SKIPS, max_size=4), low=BOUNDS, high=BOUNDS)
@example(skips=[(10, 12)], low=5, high=3)
def test_what_is_skipped_is_left_out(skips: list[tuple[int | None, int]], low: int, high: int) -> None:
    notes = Notes(skipped=tuple(Skip(after=after, upto=upto, lost=0) for after, upto in skips))
    gone = {v for after, upto in skips for v in range(13) if (-1 if after is None else after) < v <= upto}

    ranges = notes.wanted(low, high)

    assert [v for start, end in ranges for v in range(start + 1, end + 1)] == [
        v for v in range(low + 1, high + 1) if v not in gone
    ]
    assert all(start < end for start, end in ranges)
