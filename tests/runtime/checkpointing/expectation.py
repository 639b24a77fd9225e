"""What a run in one processing element puts out, batch by batch, whatever became of its host on the way."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.runtime.checkpointing.calls import Call, Plainly, books

from riprap.state.checkpoints.manifest import CheckpointManifest

OPERATORS = ("sums", "running", "pairs")
SINKS = ("sums_out", "plain_out", "running_out", "pairs_out")
_TOLD = ("version", "batch", "tuples", "stale", "damaged")


class Expectation:
    """Up to the last batch on record as if nothing happens, and from there on from what was restored."""

    def __init__(self, calls: Sequence[Call], rows: int, times: Mapping[int, float], last: int) -> None:
        self._plainly = Plainly("k")
        self._batches = [calls[first : first + rows] for first in range(0, len(calls), rows)]
        self._states: list[Any] = []
        self._books = books("k")
        self._out = []
        for batch in range(last + 1):
            self._out.append(self._plainly.feed(self._batches[batch], times[batch]))
            self._states.append(copy.deepcopy(self._plainly.slots))
            for operator in OPERATORS:
                self._books[operator].batch(times[batch], self._plainly.slots[operator])

    def restore(
        self,
        told: Mapping[str, Any],
        there: Sequence[CheckpointManifest],
        lost_until: float,
        *,
        usable: Sequence[int] | None = None,
    ) -> None:
        """Let an operator go on from its newest checkpoint that is usable, as the policy says."""
        operator = told["operator"]
        book = self._books[operator]
        for manifest in sorted(there, key=lambda manifest: manifest.version):
            book.add(manifest, self._states[manifest.batch][operator], list(book.versions), {})
        expected = book.expect(usable or list(book.versions), {}, lost_until)
        assert expected is not None
        assert {n: told[n] for n in _TOLD} == {n: getattr(expected, n) for n in _TOLD}
        self._plainly.slots[operator] = expected.slots

    def forget(self, operator: str) -> None:
        """Let an operator start afresh."""
        self._plainly.forget(operator)

    def rows(self, sink: str) -> list[list[dict[str, Any]]]:
        """Return what a sink gets with each batch."""
        for batch in self._batches[len(self._out) :]:
            self._out.append(self._plainly.feed(batch, float("inf")))
        return [out[sink] for out in self._out]
