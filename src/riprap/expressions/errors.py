"""Say what is wrong with an expression, when it is built and when it runs.

ValueError       <- ExpressionError    the text is wrong: found while the graph is built
ArithmeticError  <- EvaluationError    a row is wrong: found while the stage runs
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_text(given: object, example: str) -> None:
    """Refuse what is not SQL in a text: a list of columns, a Python function, a column of Spark's."""
    if isinstance(given, str):
        return
    shown = " ".join(repr(given).split())
    if isinstance(given, list | tuple) and given and all(isinstance(each, str) for each in given):
        example = ", ".join(given)
    raise ExpressionError(
        "",
        f"SQL is given as a text, this is a {type(given).__name__}: {shown[:60]}{'...' if shown[60:] else ''}",
        f'Write it out, as "{example}"',
    )


class ExpressionError(ValueError):
    """Report SQL text that Riprap cannot accept, with the place and a way out.

    >>> print(ExpressionError("price * sise", "no column 'sise'", "did you mean 'size'?", start=8, end=12))
    no column 'sise'
      price * sise
              ^^^^
    did you mean 'size'?
    """

    def __init__(
        self, text: str, problem: str, hint: str = "", start: int | None = None, end: int | None = None
    ) -> None:
        super().__init__(text, problem, hint, start, end)
        self.text = text
        self.problem = problem
        self.hint = hint
        self.start = start
        self.end = end

    def __str__(self) -> str:
        parts = [self.problem]
        if self.text:
            parts.append(_underlined(self.text, self.start, self.end))
        if self.hint:
            parts.append(self.hint)
        return "\n".join(parts)


class EvaluationError(ArithmeticError):
    """Report a row for which an expression has no value, such as a division by zero.

    >>> print(EvaluationError("notional / volume", "division by zero"))
    division by zero in: notional / volume
    """

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(expression, problem)
        self.expression = expression
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem} in: {self.expression}"


class Misuse(Exception):
    """Carry a problem from a builder, which does not know the text, to the parser, which does."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint


class KernelFailure(Exception):
    """Carry a problem from a kernel, which does not know the expression, to the node that called it."""


def near(name: str, choices: Iterable[str]) -> str:
    """Suggest close names, then list what exists.

    >>> near("sise", ["price", "size"])
    "did you mean 'size'? There are: price, size"
    """
    names = sorted(set(choices))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    listing = f"There are: {', '.join(names)}" if names else "There are none"
    if not close:
        return listing
    return f"did you mean {' or '.join(repr(each) for each in close)}? {listing}"


def _underlined(text: str, start: int | None, end: int | None) -> str:
    if start is None or end is None or "\n" in text:
        return f"  {text}"
    return f"  {text}\n  {' ' * start}{'^' * max(1, end - start)}"
