"""Draw expressions over the columns of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from tests.graphs.data import POOL, VALUES
from tests.graphs.expressions import Call, Expression, Literal
from tests.graphs.luck import Luck
from tests.graphs.routing import Named


def literal(luck: Luck, kind: str) -> Literal:
    value = None
    while value is None or value != value:
        value = VALUES[kind](luck)
    return Literal(value, kind)


def condition(luck: Luck, columns: Sequence[Expression], *, deep: bool = True) -> Expression:
    """Draw something that is true, false or unknown of a tuple."""
    shape = luck.pick(["compare"] * 4 + ["null"] + (["not", "and", "or"] if deep else []))
    if shape in ("and", "or"):
        both = (condition(luck, columns, deep=False), condition(luck, columns, deep=False))
        return Call(shape, both, "boolean")
    if shape == "not":
        return Call("not", (condition(luck, columns, deep=False),), "boolean")
    left = luck.pick(columns)
    if shape == "null":
        return Call(luck.pick(["is null", "is not null"]), (left,), "boolean")
    like = [c for c in columns if c.type == left.type and c != left]
    right = luck.pick(like) if like and luck.once_in(2) else literal(luck, left.type)
    return Call(luck.pick(["=", "<>", "<", "<=", ">"]), (left, right), "boolean")


def expression(luck: Luck, columns: Sequence[Expression], kind: str, name: str) -> Expression:
    """Draw an expression of a type, mostly a column as it is: that of the same name if there is one."""
    like = [c for c in columns if c.type == kind]
    if not like:
        return literal(luck, kind)
    own = [c for c in like if getattr(c, "name", None) == name]
    if own and luck.once_in(2):
        return own[0]
    column, other = luck.pick(like), luck.pick(like)
    shape = luck.pick(["column"] * 3 + ["coalesce", "case", "compute"])
    if shape == "coalesce":
        return Call("coalesce", (column, literal(luck, kind)), kind)
    if shape == "case":
        otherwise = luck.pick([other, Literal(None, kind)])
        return Call("case", (condition(luck, columns, deep=False), column, otherwise), kind)
    if shape == "compute" and kind == "string":
        return Call("concat", (column, other), kind)
    if shape == "compute" and kind != "timestamp":
        return Call(luck.pick(["+", "-", "*"]), (column, literal(luck, kind)), kind)
    return column


def selection(luck: Luck, columns: Sequence[Expression]) -> Named:
    """Draw named expressions, mostly for all columns of the pool that there are."""
    there = {c.type for c in columns}
    names = [name for name, kind in POOL.items() if kind in there]
    if luck.once_in(3):
        names = luck.some(names, 1, len(names))
    return tuple((name, expression(luck, columns, POOL[name], name)) for name in names)
