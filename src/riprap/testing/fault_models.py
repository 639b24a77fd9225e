"""Check a model of faults against what trials and campaigns rely on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pyarrow as pa

from riprap.application import Application
from riprap.compiler import compile_graph
from riprap.compiler.weaving import weave
from riprap.errors import GraphError
from riprap.faults.feeds import cut_feed, read_feed
from riprap.faults.golden import Golden, play_golden
from riprap.faults.targets import incoming, watched
from riprap.faults.trial import replay_trial, run_trial
from riprap.graph.connectors import memory, rows
from riprap.graph.faults import Fault, FaultModel
from riprap.state.hashing import Hashes
from riprap.testing.promises import Promises, equal, pickled, same, same_rows
from riprap.testing.rehearsal import Row
from riprap.windows import sliding

# Columns that the check adds: by one it knows tuples again, by the other they have keys.
_AT, _KEY = "checked_at", "checked_key"
_CUTS = (1000, 7)
_SEEDS = (0, 1, 2)


def check_fault_model(model: FaultModel, table: pa.Table | None = None) -> list[str]:
    """Check a model of faults against what trials and campaigns rely on, and return the promises it keeps.

    It hits some tuples of a ``table``, which has the columns that it changes; without one these are numbers.

    >>> from riprap.faults import Loss
    >>> rr.testing.check_fault_model(Loss(keep=0.5))[1]
    'tuples that are not hit it leaves alone'

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    if not isinstance(model, FaultModel):
        raise GraphError(
            f"check_fault_model(...) takes a model that derives from riprap.faults.FaultModel, got {model!r}"
        )
    trials = _Trials(model, _suiting(model, table))
    promises = Promises(f"fault model {model!r}")
    # Without this there is nothing to try the others with.
    first = "it does what a model may: lose tuples, change values of theirs, then repeat or move them if it is deep"
    with promises.promise(first):
        trials.rows()
    if promises.broken:
        return promises.report()
    with promises.promise("tuples that are not hit it leaves alone"):
        for hit in trials.bursts:
            got = [row for row in trials.rows(hit=hit) if row[_AT] not in hit]
            same_rows(got, [row for row in trials.right if row[_AT] not in hit], f"with {_shown(hit)} hit")
    with promises.promise("it changes values in the columns that it names alone"):
        _check_changes(model, trials)
    with promises.promise("the same seed does the same again, and in another process"):
        for other in (model, pickled(model)):
            for seed in _SEEDS:
                same_rows(trials.rows(other, seed=seed), trials.rows(seed=seed), f"seed {seed}, again")
    if not model.drawn:
        with promises.promise("it does not say that it is drawn, and so does the same with every seed"):
            for seed in _SEEDS:
                same_rows(trials.rows(seed=seed), trials.rows(), f"seed {seed}")
    with promises.promise("what becomes of a tuple does not depend on those around it"):
        for hit in trials.bursts:
            whole, cut = (_sorted_if(model.deep, trials.rows(hit=hit, block=block)) for block in _CUTS)
            same_rows(cut, whole, f"with {_shown(hit)} hit, in batches of {_CUTS[1]}")
            alone = trials.rows(hit=hit, block=_CUTS[1], alone=True)
            same_rows(alone, trials.rows(hit=hit, block=_CUTS[1]), "computed with the tuples of some keys")
    with promises.promise("columns that nobody reads may be missing"):
        for column in trials.table.column_names:
            wanted = [{_AT: row[_AT], column: row[column]} for row in trials.rows()]
            same_rows(trials.rows(only=column), wanted, f"where only '{column}' is read")
    with promises.promise("a campaign file can name it and give its fields"):
        _check_entries(model)
    with promises.promise("it describes itself in a line"):
        text = model.describe("in 2 stretches")
        fine = isinstance(text, str) and bool(text.strip()) and "\n" not in text
        same(fine, True, f"describe('in 2 stretches') is {text!r}")
    return promises.report()


@dataclass(slots=True)
class _Trials:
    """Trials with a model in front of an operator that passes all tuples on; each golden run is computed once."""

    model: FaultModel
    table: pa.Table
    golden: dict[tuple[int, str | None], Golden] = field(default_factory=dict)

    @property
    def bursts(self) -> list[range]:
        """The tuples that are hit: some in the middle, one, those at the end, all."""
        last = self.table.num_rows
        return [
            range(last // 3, last // 2),
            range(last // 2, last // 2 + 1),
            range(last - 4, last),
            range(last),
        ]

    @property
    def right(self) -> list[Row]:
        """The rows that come without a fault."""
        return self._out(self._golden(_CUTS[0], None).output("out"))

    def rows(
        self,
        model: FaultModel | None = None,
        *,
        hit: range | None = None,
        seed: int = 0,
        block: int = _CUTS[0],
        only: str | None = None,
        alone: bool = False,
    ) -> list[Row]:
        """Return the rows that come if some are hit, all but for a word; computed with hit keys ``alone``, or whole."""
        golden = self._golden(block, only)
        known, hit = incoming(golden, "target"), hit if hit is not None else self.bursts[-1]
        faults = {
            "target": {
                stream: Fault(model=model or self.model, stretches=stretches, seed=seed)
                for stream, stretches in known.stretches(hit.start, len(hit)).items()
            }
        }
        if not alone:
            return self._out(replay_trial(golden, faults).output(golden, "out"))
        hits: dict[str, dict[int, Hashes]] = {}
        for element, number, keys in known.hits(hit.start, len(hit)):
            hits.setdefault(element, {})[number] = keys
        return self._out(run_trial(golden, faults, hits).output(golden, "out"))

    def _out(self, pieces: Any) -> list[Row]:
        tables = [pa.table({name: _plain(c) for name, c in piece.columns.items()}) for piece in pieces]
        return [row for table in tables for row in table.to_pylist()]

    def _golden(self, block: int, only: str | None) -> Golden:
        if (block, only) not in self.golden:
            woven = weave(self._application(only).graph(), ["target"], deep=self.model.deep)
            feed = cut_feed(
                woven, read_feed(woven, compile_graph(woven, buckets=1, tasks=1)), block_rows=block
            )
            self.golden[block, only] = play_golden(woven, feed, watch=watched(woven, "target"))
        return self.golden[block, only]

    def _application(self, only: str | None) -> Application:
        count = self.table.num_rows
        numbered = self.table.append_column(_AT, pa.array(range(count), pa.int64()))
        numbered = numbered.append_column(_KEY, pa.array([n * n % 5 for n in range(count)], pa.int64()))
        read = ", ".join(f"`{name}`" for name in ([only] if only else self.table.column_names))
        app = Application("checked")
        source = app.source("rows", rows(numbered), position=_AT)
        target = app.functor("target", source, select=f"{_AT}, {_KEY}, {read}")
        out = app.functor("shown", target, select=f"{_AT}, {read}")
        app.sink("out", out, memory())
        # An operator with a key, for trials to compute with the tuples of some.
        sums = app.aggregate("sums", target, by=_KEY, window=sliding(tuples=2), select=f"sum({_AT}) as s")
        app.sink("to_sums", sums, memory())
        return app


def _suiting(model: FaultModel, table: pa.Table | None) -> pa.Table:
    """Return the table to try a model on; refuse one that is too small, or lacks what the model changes."""
    if table is None:
        numbers = pa.array([n * 7 % 11 + 0.5 for n in range(60)])
        table = pa.table(dict.fromkeys((*model.changes, "other"), numbers))
    if table.num_rows < 12:
        raise GraphError(f"check_fault_model(...) needs a table of 12 rows or more, got {table.num_rows}")
    missing = [name for name in model.changes if name not in table.column_names]
    reasons = [model.why_not(f) for f in table.schema if f.name in model.changes]
    if missing or any(reasons):
        why = f"there is no column '{missing[0]}'" if missing else next(r for r in reasons if r)
        raise GraphError(f"check_fault_model(...) needs a table of what {model!r} can change: {why}")
    return table


def _check_changes(model: FaultModel, trials: _Trials) -> None:
    right = {row[_AT]: row for row in trials.right}
    for seed in _SEEDS:
        for row in trials.rows(seed=seed):
            same(row[_AT] in right, True, f"a tuple of the source, {row}")
            for name, value in row.items():
                if name not in model.changes and not equal(value, right[row[_AT]][name]):
                    raise AssertionError(
                        f"{name} of tuple {row[_AT]} became {value!r}; changes is {model.changes!r}"
                    )


def _check_entries(model: FaultModel) -> None:
    if not is_dataclass(model):
        raise AssertionError("its class is no dataclass: a campaign file has no entries for it")
    functions: Mapping[str, Any] = {
        f"functions.py:{f.name}": getattr(model, f.name)
        for f in fields(model)
        if callable(getattr(model, f.name))
    }
    entries = {f.name: getattr(model, f.name) for f in fields(model)}
    for name, value in entries.items():
        if callable(value):
            entries[name] = f"functions.py:{name}"
        elif isinstance(value, tuple):
            entries[name] = list(value)
    same(type(model).from_entries(entries, functions.__getitem__), model, f"the model of entries {entries}")


def _plain(values: pa.Array) -> pa.Array:
    """Return times as whole numbers: one that was changed may be beyond what Python has."""
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _sorted_if(deep: bool, found: list[Row]) -> list[Row]:
    """Put rows in an order of its own if tuples may come at other places: then where a batch ends tells where."""
    return sorted(found, key=repr) if deep else found


def _shown(hit: range) -> str:
    return f"tuples {hit.start} to {hit.stop - 1}"
