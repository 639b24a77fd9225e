"""The functions of the dialect, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from riprap.expressions import arithmetic, lists, logic, matching, mathematics, strings, times
from riprap.expressions.errors import Misuse, near
from riprap.expressions.tree import Expression
from riprap.expressions.users import UserFunction, user_call

Build = Callable[[Sequence[Expression]], Expression]
_ANY = 1000


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the dialect: how many arguments it takes, and what builds its node."""

    build: Build
    least: int
    most: int


def _abs(arguments: Sequence[Expression]) -> Expression:
    return arithmetic.absolute(arguments[0])


def _mod(arguments: Sequence[Expression]) -> Expression:
    return arithmetic.arithmetic("%", *arguments)


BUILTINS: Mapping[str, Builtin] = {
    "abs": Builtin(_abs, 1, 1),
    "ceil": Builtin(mathematics.ceil, 1, 1),
    "ceiling": Builtin(mathematics.ceil, 1, 1),
    "coalesce": Builtin(logic.coalesce, 1, _ANY),
    "concat": Builtin(strings.concat, 1, _ANY),
    "contains": Builtin(strings.contains, 2, 2),
    "date_trunc": Builtin(times.date_trunc, 2, 2),
    "day": Builtin(times.day, 1, 1),
    "element_at": Builtin(lists.element_at, 2, 2),
    "endswith": Builtin(strings.ends_with, 2, 2),
    "exp": Builtin(mathematics.exponential, 1, 1),
    "floor": Builtin(mathematics.floor, 1, 1),
    "get": Builtin(lists.get, 2, 2),
    "greatest": Builtin(mathematics.greatest, 2, _ANY),
    "hour": Builtin(times.hour, 1, 1),
    "if": Builtin(logic.if_, 3, 3),
    "isnan": Builtin(mathematics.isnan, 1, 1),
    "least": Builtin(mathematics.least, 2, _ANY),
    "length": Builtin(strings.length, 1, 1),
    "ln": Builtin(mathematics.natural_log, 1, 1),
    "lower": Builtin(strings.lower, 1, 1),
    "minute": Builtin(times.minute, 1, 1),
    "mod": Builtin(_mod, 2, 2),
    "month": Builtin(times.month, 1, 1),
    "nullif": Builtin(logic.nullif, 2, 2),
    "pow": Builtin(mathematics.power, 2, 2),
    "power": Builtin(mathematics.power, 2, 2),
    "regexp": Builtin(matching.regexp_like, 2, 2),
    "regexp_extract": Builtin(matching.regexp_extract, 2, 3),
    "regexp_like": Builtin(matching.regexp_like, 2, 2),
    "regexp_replace": Builtin(matching.regexp_replace, 3, 3),
    "rlike": Builtin(matching.regexp_like, 2, 2),
    "round": Builtin(mathematics.round_, 1, 2),
    "second": Builtin(times.second, 1, 1),
    "size": Builtin(lists.size, 1, 1),
    "split": Builtin(matching.split, 2, 3),
    "sqrt": Builtin(mathematics.sqrt, 1, 1),
    "startswith": Builtin(strings.starts_with, 2, 2),
    "substring": Builtin(strings.substring, 2, 3),
    "substr": Builtin(strings.substring, 2, 3),
    "timestamp_micros": Builtin(partial(times.after_1970, name="timestamp_micros", micros=1), 1, 1),
    "timestamp_millis": Builtin(partial(times.after_1970, name="timestamp_millis", micros=1000), 1, 1),
    "timestamp_seconds": Builtin(partial(times.after_1970, name="timestamp_seconds", micros=1_000_000), 1, 1),
    "to_timestamp": Builtin(times.to_timestamp, 1, 2),
    "trim": Builtin(strings.trim, 1, 1),
    "unix_micros": Builtin(partial(times.since_1970, name="unix_micros", micros=1), 1, 1),
    "unix_millis": Builtin(partial(times.since_1970, name="unix_millis", micros=1000), 1, 1),
    "unix_seconds": Builtin(partial(times.since_1970, name="unix_seconds", micros=1_000_000), 1, 1),
    "upper": Builtin(strings.upper, 1, 1),
    "year": Builtin(times.year, 1, 1),
}
AGGREGATES = (
    "avg",
    "collect_list",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "percentile",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
)


def build_call(name: str, arguments: Sequence[Expression], users: Mapping[str, UserFunction]) -> Expression:
    """Build a call of a user's function or of a builtin, or raise Misuse that lists what exists."""
    if name in users:
        return user_call(users[name], arguments)
    builtin = BUILTINS.get(name.lower())
    if builtin is None:
        if name.lower() in AGGREGATES:
            raise Misuse(f"{name}() is an aggregate, which has no place here", "Use an aggregate operator")
        raise Misuse(
            f"no function {name}()",
            f"{near(name.lower(), [*BUILTINS, *users])}. Or bring your own: app.function({name!r}, ...)",
        )
    if not builtin.least <= len(arguments) <= builtin.most:
        raise Misuse(f"{name}() takes {_count(builtin)}, got {len(arguments)}")
    return builtin.build(arguments)


def _count(builtin: Builtin) -> str:
    if builtin.most == _ANY:
        return f"at least {builtin.least} arguments"
    if builtin.least == builtin.most:
        return f"{builtin.least} argument{'s' if builtin.least > 1 else ''}"
    return f"{builtin.least} to {builtin.most} arguments"
