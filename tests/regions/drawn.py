"""Operators of the fault matrix that put out something else each time, and what must hold of it all the same."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from tests.regions.making import ROWS, Made, Streams

import riprap as rr

_FACES = 1_000_000
_WINDOW = 4


class Dice(rr.CustomOperator):
    """Rolls for each tuple, and adds up what it has rolled."""

    def __init__(self) -> None:
        super().__init__()
        self.rolled = 0

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        roll = random.SystemRandom().randrange(1, _FACES)
        self.rolled += roll
        self.submit({"seq": tuple["seq"], "k": tuple["k"], "roll": roll, "rolled": self.rolled})

    def checkpoint(self) -> Any:
        return self.rolled

    def reset(self, saved: Any) -> None:
        self.rolled = saved

    def reset_to_initial_state(self) -> None:
        self.rolled = 0


class Noise(rr.CustomOperator):
    """Adds a number to each tuple, and remembers nothing."""

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.submit({**tuple, "noise": random.SystemRandom().randrange(1, _FACES)})


def dice(made: Made) -> Streams:
    """Roll for each tuple, add noise to each roll, and let several elements read what came of it."""
    app, read = made.app, made.source("read")
    schema = "seq bigint, k string, roll bigint, rolled bigint"
    rolls = app.custom("rolls", Dice, read, schema=schema, deterministic=False)
    noisy = app.custom(
        "noisy", Noise, rolls, schema=f"{schema}, noise bigint", stateless=True, deterministic=False
    )
    sums = app.aggregate(
        "sums",
        rolls,
        by="k",
        window=rr.sliding(tuples=_WINDOW),
        select="last(seq) as seq, sum(roll) as total",
    )
    last = app.aggregate("last", rolls, by="seq", window=rr.tumbling(tuples=1), select="last(roll) as roll")
    again = app.aggregate(
        "again", noisy, by="seq", window=rr.tumbling(tuples=1),
        select="last(roll) as roll, last(noise) as noise",
    )  # fmt: skip
    return {
        "rolls": app.functor("rolls_only", rolls, select="seq, k, roll, rolled"),
        "noisy": app.functor("noisy_only", noisy, select="seq, roll, noise"),
        "sums": sums,
        "last": last,
        "again": again,
    }


def check_dice(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Check that each tuple was rolled for once, and that everybody saw that roll."""
    rolls = [(int(row["seq"]), row["k"], int(row["roll"]), int(row["rolled"])) for row in found["rolls"]]
    assert [seq for seq, *_ in rolls] == list(range(ROWS))
    assert [rolled for *_, rolled in rolls] == list(accumulate(roll for _, _, roll, _ in rolls))

    seen = [(seq, roll) for seq, _, roll, _ in rolls]
    assert sorted((int(row["seq"]), int(row["roll"])) for row in found["last"]) == seen
    noise = [(int(row["seq"]), int(row["roll"]), int(row["noise"])) for row in found["noisy"]]
    assert [(seq, roll) for seq, roll, _ in noise] == seen
    again = sorted((int(row["seq"]), int(row["roll"]), int(row["noise"])) for row in found["again"])
    assert again == noise

    windows: dict[str, list[int]] = {}
    sums = []
    for seq, k, roll, _ in rolls:
        window = windows.setdefault(k, [])
        window.append(roll)
        sums.append((seq, sum(window[-_WINDOW:])))
    assert [(int(row["seq"]), int(row["total"])) for row in found["sums"]] == sums
