"""Run a class of the user's over a batch.

Its state page holds one object under the key that stands for none: what was saved, and a token, a number drawn for this
page alone. An instance that made a page stays in its process under that token. It goes on with the next batch if that
begins from the same page, for it has been asked nothing since. In any other case (another process had the batch
between, the batch is repeated, the instance failed) a new instance is made from the page.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.errors import OperatorError
from riprap.kernels.given import Given
from riprap.kernels.user_code import describe
from riprap.operators.custom.objects import loads, restore_state, save
from riprap.operators.custom.permits import Permits
from riprap.operators.custom.submissions import Line, Submissions
from riprap.operators.custom.user_operator import InputPort, Tuples, overrides
from riprap.state.keys import encode_keys
from riprap.state.windows import Contents, gather, make_page

if TYPE_CHECKING:
    from riprap.operators.custom import Custom

# What a page holds. The token is drawn for every page, and says nothing about the state.
HELD = pa.struct([("object", pa.large_binary()), ("token", pa.string())])
# Tuples are turned into Python values so many at a time.
_AT_ONCE = 10_000
# A thread that holds a permit for so many seconds after the end of a batch is taken to hang.
_PATIENCE = 300.0


class Instance:
    """An instance of the user's class, and what it can ask for."""

    def __init__(self, operator: Custom, saved: bytes | None, key: bytes) -> None:
        self.operator = operator
        self.token = ""
        self.permits = Permits()
        self._submissions: Submissions | None = None
        # What the runtime's own thread is giving the operator, and what threads of the operator's derive from.
        self._event = self._rows = self._last = 0
        with self.permits.serving():
            self._user = operator.made_by(**operator.params)
            self._user._runtime = self
            if operator.state is not None:
                self._user.state = restore_state(operator, saved, key)  # type: ignore[attr-defined]
            elif saved is not None:
                self._user.reset(loads(operator, saved, key))
            if saved is None:
                self._user.reset_to_initial_state()

    def prepare(self) -> None:
        """Let the operator get ready."""
        with self.permits.serving():
            self._user.prepare()

    def work(self, line: Line, batches: Sequence[pa.RecordBatch]) -> Submissions:
        """Take a batch: all runs, then what is drained, and no more once no thread holds a permit."""
        submissions = self._submissions = Submissions(self.operator)
        last = line.last_tuple
        self._last = last if last is not None else 0
        with self.permits.serving():
            if last is not None:
                self.permits.open()
            for run in line.runs():
                if run.row < 0:
                    self._event, self._rows = run.event, 0
                    self._user.on_punctuation(run.port)
                else:
                    self._give(run.port, batches[run.port].slice(run.row, run.length), run.event)
            if last is not None:
                self._event, self._rows = last, 0
                self._user.drain()
                self._close()
        self._submissions = None
        return submissions

    def steer(self, batch: pa.RecordBatch) -> None:
        """Take the tuples on the control port."""
        with self.permits.serving():
            self._give("control", batch, 0)

    def _give(self, port: InputPort, batch: pa.RecordBatch, event: int) -> None:
        if overrides(type(self._user), "process"):
            self._event, self._rows = event + batch.num_rows - 1, batch.num_rows
            self._user.process(port, batch)
            return
        names, self._rows = batch.schema.names, 0
        for start in range(0, batch.num_rows, _AT_ONCE):
            columns = [column.to_pylist() for column in batch.slice(start, _AT_ONCE).columns]
            for number, values in enumerate(zip(*columns, strict=True), event + start):
                self._event = number
                self._user.on_tuple(port, dict(zip(names, values, strict=True)))

    def _close(self) -> None:
        back = self.permits.close(_PATIENCE)
        error = self.permits.error
        if error is not None:
            raise OperatorError(f"{self._failed} in a thread of its own: {describe(error)}") from error
        if not back:
            raise OperatorError(
                f"{self._failed}: a thread has not given back its permit for {_PATIENCE:.0f} s"
            )

    @property
    def _failed(self) -> str:
        return f"Custom '{self.operator.name}' ({self.operator.location}) failed"

    def submit(self, tuples: Tuples, output: int | str, rows: Sequence[int] | None) -> None:
        mine = self.permits.check()
        submissions = self._taking()
        event: int | Ints = self._event if mine else self._last
        if rows is not None:
            event = self._events_of(rows, tuples, mine)
        submissions.add(tuples, output, event)

    def punctuate(self, output: int | str | None) -> None:
        mine = self.permits.check()
        self._taking().punctuate(output, self._event if mine else self._last)

    def permit(self) -> AbstractContextManager[None]:
        return self.permits.permit()

    def _taking(self) -> Submissions:
        if self._submissions is None:
            raise RuntimeError("nothing can be submitted in prepare, in checkpoint, or on the control port")
        return self._submissions

    def _events_of(self, rows: Sequence[int], tuples: Tuples, mine: bool) -> Ints:
        """Return the events of rows of the batch being processed."""
        if not (mine and self._rows):
            raise ValueError("rows= is for what process() submits")
        picked: Ints = np.asarray(rows, np.int64)
        count = getattr(tuples, "num_rows", 1)
        if picked.shape != (count,):
            raise ValueError(f"rows= names a row for each of the {count} tuples submitted, got {rows!r}")
        if len(picked) and (picked[0] < 0 or picked[-1] >= self._rows or np.any(picked[1:] < picked[:-1])):
            raise ValueError(
                f"rows= are rows of the batch (0 to {self._rows - 1}) that never fall, got {rows!r}"
            )
        return picked + (self._event - self._rows + 1)

    def pages(self, key: bytes) -> dict[str, pa.RecordBatch]:
        """Save the state as a page, with a new token; none if the operator has no state."""
        self.token = uuid.uuid4().hex
        if self.operator.stateless:
            return {}
        with self.permits.serving():
            saved = save(self.operator, self._user, key)
        held = pa.array([{"object": saved, "token": self.token}], HELD)
        keys, _ = encode_keys([], 0)
        return {"0": make_page(keys, Contents(np.array([0, 1]), held, np.zeros((1, 1), np.int64)))}


@dataclass(slots=True)
class _Kept:
    """The instances that wait in this process for their next batch, one an operator."""

    instances: dict[str, Instance] = dataclasses.field(default_factory=dict)

    def take(self, operator: Custom, token: str | None) -> Instance | None:
        """Return the instance whose state is that of a page. Nobody gets it twice: what uses it may fail."""
        instance = self.instances.pop(operator.name, None)
        if instance is None:
            return None
        # The very same operator: a process may outlive the run, and the next run's class may be another.
        if instance.operator is operator and (operator.stateless or instance.token == token):
            return instance
        instance.permits.abandon()
        return None

    def put(self, instance: Instance) -> None:
        before = self.instances.pop(instance.operator.name, None)
        if before is not None:
            before.permits.abandon()
        self.instances[instance.operator.name] = instance


KEPT = _Kept()


@contextmanager
def instance_for(operator: Custom, given: Given) -> Iterator[Instance]:
    """Find or make the instance whose state is that of the page; keep it if it does not fail."""
    keys, _ = encode_keys([], 0)
    held = gather(given.pages.get("0", ()), keys, HELD).tuples
    instance = KEPT.take(operator, held.field("token")[0].as_py() if len(held) else None)
    ready = instance is not None
    if instance is None:
        instance = Instance(operator, held.field("object")[0].as_py() if len(held) else None, given.key)
    try:
        if not ready:
            instance.prepare()
        yield instance
    except BaseException:
        instance.permits.abandon()
        raise
    KEPT.put(instance)
