"""Variables: what their texts become, and that they hold what a plain loop over the tuples would leave in them."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from riprap.expressions import (
    EvaluationError,
    ExpressionError,
    Scope,
    UserFunction,
    Variables,
    parse_schema,
    parse_variables,
    type_name,
)

SCHEMA = parse_schema(
    "price double, size bigint, tiny tinyint, name string, ok boolean, money decimal(10,2), raw binary, day date"
)
SCOPE = Scope.of(SCHEMA)
START = {"n": "0", "total": "0.0", "previous": "cast(null as double)"}
UPDATE = "n + 1 as n, total + price as total, price as previous"
TYPES = {8: "tinyint", 32: "int", 64: "bigint"}
LIMIT = date(2020, 1, 1)
Row = dict[str, Any]
State = dict[str, object]


def parse(variables: dict[str, str], update: str, *functions: UserFunction) -> Variables:
    return parse_variables(variables, update, SCOPE, {each.name: each for each in functions})


def columns(rows: list[Row]) -> dict[str, pa.Array]:
    names = {name for row in rows for name in row} or set(SCHEMA.names)
    return {
        field.name: pa.array([row[field.name] for row in rows], field.type)
        for field in SCHEMA
        if field.name in names
    }


def run(
    made: Variables, rows: list[Row], keys: list[int] | None = None, before: dict[str, pa.Array] | None = None
) -> tuple[dict[str, list[object]], dict[str, list[object]]]:
    code = np.array(keys if keys is not None else [0] * len(rows), np.int32)
    start = before if before is not None else made.initial(int(code.max(initial=0)) + 1)
    after, last = made.run(columns(rows), code, start)
    for arrays, length in ((after, len(rows)), (last, len(start[made.schema.names[0]]))):
        assert pa.schema([(name, each.type) for name, each in arrays.items()]) == made.schema
        for array in arrays.values():
            array.validate(full=True)
            assert len(array) == length
    first, second = ({name: each.to_pylist() for name, each in found.items()} for found in (after, last))
    return first, second


def test_all_variables_change_at_once_and_per_key() -> None:
    made = parse({"a": "1", "b": "2", "kept": "'x'"}, "b as a, a as b")
    before = made.initial(2)
    after, last = run(made, [{"ok": True}] * 3, [0, 1, 0], before)
    assert before == made.initial(2)
    assert after == {"a": [2, 2, 1], "b": [1, 1, 2], "kept": ["x"] * 3}
    assert last == {"a": [1, 2], "b": [2, 1], "kept": ["x", "x"]}


def test_the_description_of_variables() -> None:
    made = parse(START, UPDATE)
    assert made.sql == (
        "n int = 0, total double = 0.0, previous double = cast(null as double); "
        "n + 1 as n, total + price as total, price as previous"
    )
    assert made.columns == {"price"}
    assert made.schema == parse_schema("n int, total double, previous double")
    assert {name: each.to_pylist() for name, each in made.initial(2).items()} == {
        "n": [0, 0],
        "total": [0.0, 0.0],
        "previous": [None, None],
    }
    assert made == parse(START, UPDATE)
    assert parse({"my n": "0"}, "`my n` + size as `MY N`").sql == "`my n` bigint = 0; `my n` + size as `my n`"


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_variables_pickle_without_the_compiled_code(dumps: Callable[[object], bytes]) -> None:
    made = parse(START, UPDATE)
    fresh = dumps(made)
    first = run(made, [{"price": 2.0}])
    again = pickle.loads(dumps(made))
    assert len(dumps(made)) == len(fresh)
    assert again == made
    assert run(again, [{"price": 2.0}]) == first


@pytest.mark.parametrize(
    ("initial", "update", "type"),
    [
        ("0", "v + 1", "int"),
        ("0", "v + size", "bigint"),
        ("0", "v + price", "double"),
        ("0.0", "v + price", "double"),
        ("0.5", "price", "double"),
        ("0e0", "1", "double"),
        ("0", "tiny", "int"),
        ("cast(0 as tinyint)", "v + tiny", "tinyint"),
        ("cast(0 as float)", "v + 1", "double"),
        ("cast(0 as float)", "v * v", "float"),
        ("null or true", "v and ok", "boolean"),
        ("cast(null as string)", "name", "string"),
        ("date'2020-01-01'", "day", "date"),
        ("cast(money_of(1) as double)", "v", "double"),
    ],
)
def test_variables_are_as_wide_as_their_updates(initial: str, update: str, type: str) -> None:
    half = UserFunction("money_of", lambda n: n.cast(pa.float64()), returns=pa.float64())
    assert type_name(parse({"v": initial}, f"{update} as v", half).schema.field("v").type) == type


def test_widening_goes_round() -> None:
    made = parse({"a": "0.0", "b": "0", "c": "0"}, "b as a, c as b, price as c")
    assert [str(type) for type in made.schema.types] == ["double"] * 3
    after, _ = run(made, [{"price": 1.5}, {"price": 2.5}, {"price": 3.5}])
    assert after == {"a": [0.0, 0.0, 1.5], "b": [0.0, 1.5, 2.5], "c": [1.5, 2.5, 3.5]}


@pytest.mark.parametrize(
    ("variables", "update", "problem", "hint"),
    [
        ({}, "1 as n", "there are no variables", "Give each a name"),
        ({"": "0"}, "1 as n", "a variable has no name", ""),
        ({"Price": "0"}, "1 as Price", "variable Price has the name of column price", "Rename"),
        ({"n": "0", "N": "0"}, "1 as n", "variable N has the name of variable n", "Rename"),
        ({"n": "size"}, "1 as n", "variable n starts from column size", "constant"),
        ({"n": "1, 2"}, "1 as n", "variable n starts from one expression", ""),
        ({"n": "1 as n"}, "1 as n", "variable n starts from one expression", ""),
        ({"n": "null"}, "1 as n", "variable n is null without a type", "cast(null as double)"),
        ({"n": "1 / 0"}, "1 as n", "variable n has no initial value: division by zero in: 1 / 0", ""),
        ({"n": "0"}, "", "the expression is empty", ""),
        ({"n": "0"}, "n + 1", "n + 1 has no name", "n + 1 as name"),
        ({"n": "0"}, "n + 1 as m", "no variable 'm' to update with n + 1", "There are: n"),
        ({"n": "0"}, "price", "no variable 'price' to update with price", "There are: n"),
        ({"n": "0"}, "n + 1 as n, 2 as N", "two updates of variable n", "Keep one"),
        ({"n": "0"}, "m + 1 as n", "no column 'm'", "There are: day"),
        ({"n": "0"}, "sum(n) as n", "sum() is an aggregate", ""),
        (
            {"n": "0"},
            "name as n",
            "variable n starts as int, its update is string: name",
            "cast(null as string)",
        ),
        ({"n": "false"}, "1 as n", "variable n starts as boolean, its update is int: 1", "cast(null as int)"),
        (
            {"n": "date'2020-01-01'"},
            "cast(day as timestamp) as n",
            "starts as date",
            "cast(null as timestamp)",
        ),
        ({"n": "0.0"}, "n + 0.5 as n", "variable n is decimal", "0e0 or cast(0 as double)"),
        ({"n": "0.0"}, "size as n", "variable n is decimal", "0e0 or cast(0 as double)"),
        ({"n": "0"}, "n + money as n", "variable n is decimal", "0e0 or cast(0 as double)"),
        ({"n": "0"}, "if(n > 0.5, 1, 2) as n", "n > 0.5 depends on a variable", "write 1.5e0"),
        ({"n": "'a'"}, "upper(n) as n", "upper(n) depends on a variable", "may use + - *"),
        (
            {"n": "0"},
            "n + length(cast(n as string)) as n",
            "length(cast(n as string)) depends",
            "may use + - *",
        ),
        ({"n": "0"}, "twice(n) as n", "twice(n) depends on a variable", "may use + - *"),
        ({"n": "0e0"}, "round(n, 2) as n", "round(n, 2) depends on a variable", "may use + - *"),
    ],
)
def test_mistakes_are_explained(variables: dict[str, str], update: str, problem: str, hint: str) -> None:
    twice = UserFunction("twice", lambda n: n, returns=pa.int32())
    with pytest.raises(ExpressionError) as raised:
        parse(variables, update, twice)
    assert problem in raised.value.problem
    assert hint in raised.value.hint
    assert raised.value.text in (update, *variables.values())


def test_expressions_nested_too_deeply_are_refused() -> None:
    deep = "n + 1"
    for _ in range(40):
        deep = f"case when n > 0 then {deep} end"
    with pytest.raises(ExpressionError, match="nested too deeply"):
        parse({"n": "0"}, f"{deep} as n")


def test_qualified_columns() -> None:
    scope = Scope.qualified({"quotes": SCHEMA, "trades": SCHEMA})
    made = parse_variables({"n": "0"}, "n + quotes.size - trades.size as n", scope)
    assert made.columns == {"quotes.size", "trades.size"}
    rows = {"quotes.size": pa.array([5]), "trades.size": pa.array([3])}
    assert made.run(rows, np.zeros(1, np.int32), made.initial(1))[1]["n"].to_pylist() == [2]
    with pytest.raises(ExpressionError, match=r"variable size has the name of column trades\.size"):
        parse_variables({"size": "0"}, "1 as size", scope)


def test_states_are_checked() -> None:
    made = parse(START, UPDATE)
    rows = {"price": pa.array([1.0])}
    with pytest.raises(ValueError, match="codes of keys from 3 to 3, but there are 2 keys"):
        made.run(rows, np.array([3], np.int32), made.initial(2))
    with pytest.raises(TypeError, match="variable total before the rows: 2 of int32, not 2 of double"):
        made.run(rows, np.array([1], np.int32), made.initial(2) | {"total": pa.array([1, 2], pa.int32())})
    with pytest.raises(TypeError, match="variable total before the rows: 3 of double, not 2 of double"):
        made.run(rows, np.array([1], np.int32), made.initial(2) | {"total": pa.array([1.0, 2.0, 3.0])})


def test_no_rows_and_no_keys() -> None:
    made = parse({"n": "0", "s": "'x'", "t": "false"}, "n + size as n, name as s, ok as t")
    assert run(made, [], before=made.initial(2))[1] == {"n": [0, 0], "s": ["x", "x"], "t": [False, False]}
    assert run(made, [], before=made.initial(0)) == ({"n": [], "s": [], "t": []},) * 2


class Failed(Exception):
    """What a step of a reference raises: the failing expression and the problem."""


@dataclass(frozen=True)
class Machine:
    """Variables, and what a tuple does to them in plain Python."""

    variables: dict[str, str]
    update: str
    start: State
    step: Callable[[Any, Any], State]


def whole(value: int, expression: str, bits: int = 64) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Failed(expression, f"{TYPES[bits]} overflow")
    return value


def count(v: Any, t: Any) -> State:
    return {"n": whole(v["n"] + 1, "n + 1", 32)}


def add(v: Any, t: Any) -> State:
    lost = v["total"] is None or t["size"] is None
    return {
        "total": None if lost else whole(v["total"] + t["size"], "total + size"),
        "little": v["little"] if t["tiny"] is None else whole(v["little"] + t["tiny"], "little + tiny", 8),
    }


def above(a: float, b: float) -> bool:
    """In SQL's order, where NaN is the greatest."""
    return not math.isnan(b) if math.isnan(a) else a > b


def extremes(v: Any, t: Any) -> State:
    price, top, low = t["price"], v["top"], v["low"]
    if price is None:
        return {"top": top, "low": low, "new": None}
    return {
        "top": price if top is None or above(price, top) else top,
        "low": price if low is None or above(low, price) else low,
        "new": top is None or not above(top, price),
    }


def previous(v: Any, t: Any) -> State:
    rise = None if v["last"] is None or t["price"] is None else t["price"] - v["last"]
    return {
        "last": t["price"],
        "rise": rise,
        "late": v["since"] is not None and v["since"] > LIMIT,
        "since": t["day"],
    }


def changes(v: Any, t: Any) -> State:
    changed = v["last"] is None or (t["name"] is not None and v["last"] != t["name"])
    return {
        "last": t["name"],
        "earlier": "-" if v["last"] == t["name"] == "a" else v["last"],
        "n": v["n"] + changed,
        "most": max(
            (each for each in (v["most"], t["name"]) if each is not None), key=str.encode, default=None
        ),
    }


def ewma(v: Any, t: Any) -> State:
    price, mean = t["price"], v["mean"]
    return {"mean": mean if price is None else price if mean is None else 0.9 * mean + 0.1 * price}


def counters(v: Any, t: Any) -> State:
    up = v["up"] if t["price"] is None else v["up"] + 1 if above(t["price"], 2.0) else 0
    return {"up": up, "seen": v["seen"] + (v["up"] in (1, 3))}


def booleans(v: Any, t: Any) -> State:
    either, every = {v["ever"], t["ok"]}, {v["always"], t["ok"]}
    return {
        "ever": True if True in either else None if None in either else False,
        "always": False if False in every else None if None in every else True,
        "same": v["same"] == t["ok"],
    }


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divisions(v: Any, t: Any) -> State:
    size, rest, part = t["size"], v["rest"], v["part"]
    if size is None:
        return {"rest": None, "part": None}
    if rest is not None:
        rest = whole(rest + 100, "rest + 100")
        if size == 0:
            raise Failed("(rest + 100) % size", "division by zero")
        rest -= toward_zero(rest, size) * size
    if part is not None:
        if size == 0:
            raise Failed("part div size", "division by zero")
        part = whole(toward_zero(part, size), "part div size")
    return {"rest": rest, "part": part}


def lazy(v: Any, t: Any) -> State:
    near = t["size"] is not None and 0 < abs(t["size"]) < 10
    return {"hits": v["hits"] + (toward_zero(10, t["size"]) if near else 0), "gone": None}


def number(text: str) -> int:
    if text not in ("12", "-7"):
        raise Failed("cast(name as bigint)", "not a bigint")
    return int(text)


def parsing(v: Any, t: Any) -> State:
    n, total = v["n"], v["total"]
    n = number(t["name"]) if n > 2 and t["name"] is not None else n + 1
    if t["ok"] and total is not None:
        total = None if t["name"] is None else total + number(t["name"])
    return {"n": n, "total": total}


MACHINES = {
    "count": Machine({"n": "2147483643"}, "n + 1 as n", {"n": 2147483643}, count),
    "sum": Machine(
        {"total": "0", "little": "cast(0 as tinyint)"},
        "total + size as total, coalesce(little + tiny, little) as little",
        {"total": 0, "little": 0},
        add,
    ),
    "extremes": Machine(
        {"top": "cast(null as double)", "low": "cast(null as double)", "new": "cast(null as boolean)"},
        "greatest(top, price) as top, least(low, price) as low, price >= coalesce(top, price) as new",
        {"top": None, "low": None, "new": None},
        extremes,
    ),
    "previous": Machine(
        {
            "last": "cast(null as double)",
            "rise": "cast(null as double)",
            "late": "false",
            "since": "date'1970-01-01'",
        },
        "price as last, price - last as rise, coalesce(since > date'2020-01-01', false) as late, day as since",
        {"last": None, "rise": None, "late": False, "since": date(1970, 1, 1)},
        previous,
    ),
    "changes": Machine(
        {"last": "cast(null as string)", "earlier": "'?'", "n": "0", "most": "cast(null as string)"},
        "name as last, case when last = name and name = 'a' then '-' else last end as earlier, "
        "case when last is null or last <> name then n + 1 else n end as n, greatest(most, name) as most",
        {"last": None, "earlier": "?", "n": 0, "most": None},
        changes,
    ),
    "ewma": Machine(
        {"mean": "cast(null as double)"},
        "coalesce(0.9e0 * mean + 0.1e0 * price, price, mean) as mean",
        {"mean": None},
        ewma,
    ),
    "counters": Machine(
        {"up": "0", "seen": "0"},
        "case when price > 2e0 then up + 1 when price is null then up else 0 end as up, "
        "if(up in (1, 3), seen + 1, seen) as seen",
        {"up": 0, "seen": 0},
        counters,
    ),
    "booleans": Machine(
        {"ever": "false", "always": "true", "same": "true"},
        "ever or ok as ever, always and ok as always, same <=> ok as same",
        {"ever": False, "always": True, "same": True},
        booleans,
    ),
    "divisions": Machine(
        {"rest": "cast(50 as bigint)", "part": "-9223372036854775808"},
        "(rest + 100) % size as rest, part div size as part",
        {"rest": 50, "part": -(2**63)},
        divisions,
    ),
    "lazy": Machine(
        {"hits": "0", "gone": "cast(null as bigint)"},
        "case when size <> 0 and size between -9 and 9 then hits + 10 div size else hits end as hits, "
        "gone + 1 div size as gone",
        {"hits": 0, "gone": None},
        lazy,
    ),
    "parsing": Machine(
        {"n": "0", "total": "0"},
        "if(n > 2 and name is not null, cast(name as bigint), n + 1) as n, "
        "case when ok then total + cast(name as bigint) else total end as total",
        {"n": 0, "total": 0},
        parsing,
    ),
}


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), strategy, strategy, strategy)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.integers(0, 2),
            "price": maybe(st.sampled_from([0.0, -0.0, 1.5, 2.5, -3.25, math.nan, math.inf, -math.inf])),
            "size": maybe(st.one_of(st.integers(-12, 12), st.sampled_from([2**62, -(2**62), 2**63 - 1]))),
            "tiny": maybe(st.sampled_from([1, 5, -60, 60])),
            "name": maybe(st.sampled_from(["a", "b", "12", "-7", "", "日本", "Z"])),
            "ok": maybe(st.booleans()),
            "day": maybe(st.dates(date(2019, 1, 1), date(2021, 1, 1))),
        }
    ),
    max_size=14,
)


def exact(values: list[object]) -> list[object]:
    """Make values that are equal only if they are the same bits; one NaN is as good as another."""
    return [
        ("nan" if math.isnan(value) else struct.pack(">d", value)) if isinstance(value, float) else value
        for value in values
    ]


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_variables_hold_what_a_loop_leaves_in_them(name: str, data: st.DataObject) -> None:
    machine = MACHINES[name]
    made = parse(machine.variables, machine.update)
    rows: list[Row] = data.draw(ROWS)
    keys = [row["key"] for row in rows]
    states = dict.fromkeys(range(3), machine.start)
    wanted: list[State] = []
    failure = found = None
    try:
        for row in rows:
            states[row["key"]] = machine.step(states[row["key"]], row)
            wanted.append(states[row["key"]])
    except Failed as failed:
        failure = failed.args
    cut = data.draw(st.integers(0, len(rows)))
    try:
        first, middle = made.run(columns(rows[:cut]), np.array(keys[:cut], np.int32), made.initial(3))
        second, last = made.run(columns(rows[cut:]), np.array(keys[cut:], np.int32), middle)
    except EvaluationError as error:
        found = (error.expression, error.problem)
    assert found == failure
    if failure is not None:
        return
    assert set(second) == set(machine.start)
    for variable, array in second.items():
        values = first[variable].to_pylist() + array.to_pylist()
        assert exact(values) == exact([state[variable] for state in wanted])
        assert exact(last[variable].to_pylist()) == exact([states[key][variable] for key in range(3)])
