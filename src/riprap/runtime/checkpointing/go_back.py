"""How an element comes back whose results may come out otherwise: to a cut, forgetting what nobody has seen.

    records        ... | 40 | 41 | 42 | 43 | 44 |        what it read since the newest cut is kept
    newest cut           40                              readers have its results up to here, and no further
    gone                      41   42   43   44          records, and the results that were held

Its results are held until a cut has the state that they left behind, or where there is no state, until all that read
them can have them. So what is computed anew, out of the same input, is the only thing that anybody ever sees of it.
Who dies on the way finds enough to do the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from riprap.runtime.checkpointing.chosen_cut import forget_choice
from riprap.runtime.checkpointing.from_log import FromLog
from riprap.runtime.checkpointing.recovery import Recovery
from riprap.runtime.checkpointing.roll_forward import RollForward
from riprap.runtime.crash import reach
from riprap.runtime.delivery import Delivery
from riprap.runtime.outflow import Outflow
from riprap.runtime.task import Answer
from riprap.stage.recording import RecordOrder
from riprap.state.ledger import BatchRecord


class GoBack(RollForward):
    """Brings an element to the newest batch that it can go on from, which is not before what readers have seen."""

    def __init__(
        self,
        recovery: Recovery,
        had: Callable[[str, int], bool],
        outlets: Iterable[Outflow],
        handed: Delivery,
    ) -> None:
        super().__init__(recovery, had)
        self._outlets = tuple(outlets)
        self._handed = handed

    def _chosen(self) -> int | None:
        chosen = super()._chosen()
        if chosen is not None:
            forget_choice(self._recovery.home)
            message = f"'{self._element}' goes on from where it is, and not from its cut after batch {chosen}: what it "
            message += "has put out since may come out otherwise, and readers have seen it"
            self._recovery.tell("warning", element=self._element, message=message)
        return None

    def _usable(self, batches: Sequence[int]) -> list[int]:
        seen = max(outflow.released for outflow in self._outlets)
        return [batch for batch in super()._usable(batches) if batch >= seen]

    def _go_on(
        self,
        records: dict[int, BatchRecord],
        base: int,
        compute: Callable[[BatchRecord], Sequence[Answer]],
    ) -> None:
        newest = max(records)
        # Those there are cannot be used, and their batches are others' numbers from now on.
        self._forget_cuts(base)
        for outflow in self._outlets:
            outflow.take_back(base)
        reach("taken-back", base, self._element)
        self._handed.take_back(base)
        # Newest first: a record that is there has all before it.
        for batch in range(newest, base, -1):
            self._recovery.site.ledger.forget([batch])
            reach("forgotten", batch, self._element)
        kept = {batch: record for batch, record in records.items() if batch <= base}
        kept[base] = self._recovery.site.ledger.get(base)
        owed = {batch: self._owed(record) for batch, record in kept.items()}
        self._collect(kept[base], owed, before=newest + 2)
        self._recovery.tell("gone back", element=self._element, batch=base, batches=newest - base)


def come_back(
    recovery: Recovery,
    had: Callable[[str, int], bool],
    outlets: Iterable[Outflow],
    handed: Delivery,
    compute: Callable[[BatchRecord, RecordOrder], Sequence[Answer]],
) -> int:
    """Bring an element that must not lose anything to where it was, or back to what readers have seen of it.

    Return up to which batch whose results are gone sinks have had them, -1 if that is not known.
    """
    if recovery.plan.recorded is not None:
        (outflow,) = outlets
        return FromLog(recovery, had, outflow).come_back(compute)
    holds = recovery.plan.holds
    way = GoBack(recovery, had, outlets, handed) if holds else RollForward(recovery, had)
    return way.run(lambda record: compute(record, RecordOrder()))
