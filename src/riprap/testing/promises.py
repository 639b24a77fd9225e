"""What checks have in common: promises that are tried one after the other, and a report of those that are broken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from riprap.kernels.user_code import FAILURES, describe

Kind = TypeVar("Kind")


class BrokenPromise(AssertionError):
    """Something does not do what it promises. ``broken`` says of each promise how, ``kept`` names the others."""

    def __init__(self, what: str, broken: dict[str, str], kept: list[str]) -> None:
        self.broken = broken
        self.kept = kept
        lines = [f"{what} breaks {len(broken)} of {len(broken) + len(kept)} promises:"]
        for promise, how in broken.items():
            lines += [f"- {promise}", *(f"    {line}" for line in how.splitlines())]
        super().__init__("\n".join(lines))


class Promises:
    """Promises of one thing, as they are tried: each in a ``with`` block, of which any failure breaks it."""

    def __init__(self, what: object) -> None:
        self._what = str(what)
        self._broken: dict[str, str] = {}
        self._kept: list[str] = []

    @contextmanager
    def promise(self, words: str) -> Iterator[None]:
        """Try a promise; whatever fails breaks it, and the next is tried."""
        try:
            yield
        except FAILURES as error:
            self._broken[words] = str(error) if type(error) is AssertionError else describe(error)
        else:
            self._kept.append(words)

    @property
    def broken(self) -> bool:
        """Whether a promise was broken so far."""
        return bool(self._broken)

    def report(self) -> list[str]:
        """Return the promises that were kept, in words, or raise :class:`BrokenPromise`."""
        if self._broken:
            raise BrokenPromise(self._what, self._broken, self._kept)
        return self._kept


def same(got: Any, wanted: Any, what: str) -> None:
    """Compare, and say what was got and what was wanted; NaN is NaN, and -0.0 is not 0.0."""
    if not equal(got, wanted):
        raise AssertionError(f"{what}: got {shown(got)}, wanted {shown(wanted)}")


def same_rows(got: list[Any], wanted: list[Any], what: str) -> None:
    """Compare rows, and name the first that differs."""
    for number, (left, right) in enumerate(zip(got, wanted, strict=False)):
        same(left, right, f"{what}, row {number}")
    if len(got) != len(wanted):
        more, rows = ("more", got) if len(got) > len(wanted) else ("missing", wanted)
        first = min(len(got), len(wanted))
        raise AssertionError(
            f"{what}: got {len(got)} rows, wanted {len(wanted)}; the first {more} is {shown(rows[first])}"
        )


def raises(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    """Check that a call raises an error of a kind."""
    try:
        found = call()
    except kind:
        return
    raise AssertionError(f"{what}: got {shown(found)}, wanted {kind.__name__}")


def equal(one: Any, other: Any) -> bool:
    """Say whether two values are the same; NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def pickled(value: Kind) -> Kind:
    """Return what another process would have of a value that is part of the graph."""
    # The pickler that graphs travel by.
    from pyspark import cloudpickle

    copy: Kind = cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
    return copy


def shown(value: object) -> str:
    """Write a value for people, the beginning of it if it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text):,} characters)"
