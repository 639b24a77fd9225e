"""The class that users derive their own operators from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from riprap.errors import RiprapError

Tuples: TypeAlias = pa.RecordBatch | pa.Table | Mapping[str, Any]
InputPort = int | Literal["control"]


class Abandoned(RiprapError):
    """The operator's instance is not used any more; a thread of its own that is told so should end."""


class Runtime(Protocol):
    """What an operator's instance can ask of the runtime."""

    def submit(self, tuples: Tuples, output: int | str, rows: Sequence[int] | None) -> None:
        """Take tuples for an output."""

    def punctuate(self, output: int | str | None) -> None:
        """Put a punctuation on an output, or on all."""

    def permit(self) -> AbstractContextManager[None]:
        """Let a thread change state and submit."""


class CustomOperator:
    """An operator written in Python, for ``app.custom(...)``. Write :meth:`process` or :meth:`on_tuple`.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Counts:
    ...     seen: int = 0
    >>> class Counter(rr.CustomOperator):
    ...     state: Counts
    ...     def on_tuple(self, port, tuple):
    ...         self.state.seen += 1
    ...         self.submit({"id": tuple["id"], "count": self.state.seen})

    An operator has state, unless it is added with ``stateless=True``. Declare it as above, as a dataclass whose fields
    all have defaults: there is then one in ``self.state``, and it is saved and restored. Or save it yourself, with
    :meth:`checkpoint` and :meth:`reset`. Anything else an instance holds may be gone with the next batch.

    An instance is made with the ``params`` of ``app.custom``, restored with :meth:`reset` (or told
    :meth:`reset_to_initial_state`), and then told to :meth:`prepare`. It may serve many batches or one.

    An operator may start threads, best in :meth:`prepare` and as daemons. A thread holds a :meth:`permit` while it
    changes state and submits; no state is saved meanwhile. Against each other threads are to be guarded by the
    operator's own locks.
    """

    _runtime: Runtime | None = None

    def process(self, port: InputPort, batch: pa.RecordBatch) -> None:
        """Take consecutive tuples of one port. How many come at once is not for the operator to rely on."""
        raise NotImplementedError

    def on_tuple(self, port: InputPort, tuple: dict[str, Any]) -> None:
        """Take one tuple."""
        raise NotImplementedError

    def on_punctuation(self, port: int) -> None:
        """Take a punctuation; unless written otherwise it passes to every output."""
        self.punctuate()

    def prepare(self) -> None:
        """Get ready, after the state is there and before any tuple comes."""

    def drain(self) -> None:
        """Finish what is under way at the end of a batch; the last chance to submit before the state is saved."""

    def checkpoint(self) -> Any:
        """Return what is to be saved: anything that can be pickled."""
        raise NotImplementedError

    def reset(self, saved: Any) -> None:
        """Restore what :meth:`checkpoint` returned."""
        raise NotImplementedError

    def reset_to_initial_state(self) -> None:
        """Begin anew: called instead of :meth:`reset` where nothing has been saved yet."""

    def submit(self, tuples: Tuples, output: int | str = 0, *, rows: Sequence[int] | None = None) -> None:
        """Put out a tuple (a mapping) or many (Arrow), on an output given by number or name.

        What :meth:`on_tuple` submits takes its place in the stream from the tuple it was called with. What
        :meth:`process` submits takes that of the batch's last tuple, or for each the tuple of the batch that ``rows``
        (never falling) names. What :meth:`drain` and threads submit takes that of the last tuple there is.
        """
        self._here().submit(tuples, output, rows)

    def punctuate(self, output: int | str | None = None) -> None:
        """Put a punctuation on an output, or on all."""
        self._here().punctuate(output)

    def permit(self) -> AbstractContextManager[None]:
        """Let a thread change state and submit: ``with self.permit(): ...``.

        It waits while state is saved and between batches, and raises :class:`Abandoned` when the instance has had its
        last.
        """
        return self._here().permit()

    def _here(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError(
                "an operator cannot submit or take a permit in __init__: move this to prepare or later"
            )
        return self._runtime


def overrides(kind: type, method: str) -> bool:
    """Say whether a user's class has a method of its own."""
    return getattr(kind, method) is not getattr(CustomOperator, method)
