"""Times and rates of a command line: numbers that are shown again as they were given."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from riprap.durations import seconds

Number = TypeVar("Number")


class Quantity(float):
    """A number of seconds, or of events a second, with the words it was given in.

    >>> Quantity(5400.0, "90m") / 60, Quantity(5400.0, "90m").words
    (90.0, '90m')
    """

    words: str

    def __new__(cls, value: float, words: str) -> Quantity:
        quantity = super().__new__(cls, value)
        quantity.words = words
        return quantity


def read_time(text: str) -> Quantity:
    """Read a time, as ``90m``, ``3.5s`` or a number of seconds.

    >>> read_time("90m").words, read_time("16").words
    ('90m', '16 s')
    """
    number = _number(text)
    try:
        value = seconds("a time", text) if number is None else number
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a time is at least 0, got {text}")
    return Quantity(value, text if number is None else f"{text} s")


def read_rate(text: str) -> Quantity:
    """Read a rate: so many events a second, or a time, in which there is one.

    >>> read_rate("90m").words, read_rate("1.85e-4").words
    ('one in 90m', '1.85e-4/s')
    """
    number = _number(text)
    if number is None:
        return Quantity(1.0 / read_time(text), f"one in {text}")
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"a rate is at least 0, got {text}")
    return Quantity(number, f"{text}/s")


def list_of(read: Callable[[str], Number]) -> Callable[[str], tuple[Number, ...]]:
    """Return what reads a list with commas between."""

    def read_list(text: str) -> tuple[Number, ...]:
        return tuple(read(each.strip()) for each in text.split(","))

    return read_list


def as_given(value: float) -> str:
    """Return a quantity in the words it was given in."""
    return value.words if isinstance(value, Quantity) else f"{value:g}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
