"""Compiled code computes what Arrow computes: the same values, or the same failure, on every row."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from riprap.expressions import (
    EvaluationError,
    Expression,
    ExpressionError,
    Scope,
    UserFunction,
    Variables,
    parse_select,
    parse_variables,
)
from riprap.expressions.jit import compiled as compiled_sources
from riprap.expressions.logic import case
from riprap.expressions.loops import write_program
from riprap.expressions.parsing import column
from riprap.expressions.scalars import can_write
from riprap.expressions.scope import ScopeColumn

from .drawing import expressions, tables

NAN, INF = math.nan, math.inf
TOGETHER = 8  # compiling more at once takes longer for each
WHOLE = ["a + b", "a - b", "a * b", "a % b", "a div b", "-a", "abs(a)", "a <=> b", "a not in (1, null)"]
FRACTION = ["a + b", "a - b", "a * b", "a / b", "a % b", "-a", "abs(a)", "floor(a)", "ceil(a)"]
CHOSEN = [
    "greatest(a, b)",
    "least(a, b, a)",
    "nullif(a, b)",
    "a is null",
    "a in (0, 7)",
    "a between -1 and b",
]
COMPARED = [f"a {operator} b" for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>")]


def casts(*types: str) -> list[str]:
    return [f"{how}(a as {type})" for how in ("cast", "try_cast") for type in types]


LIMITS: dict[str, tuple[pa.DataType, list[object], list[str]]] = {
    "tinyint": (pa.int8(), [0, 1, -1, 7, 127, -128, None], [*WHOLE, "cast(a as bigint)"]),
    "int": (pa.int32(), [0, 1, -1, 7, 2**31 - 1, -(2**31), None], [*WHOLE, *casts("tinyint")]),
    "bigint": (
        pa.int64(),
        [0, 1, -1, 3037000500, 2**63 - 1, -(2**63), None],
        [*WHOLE, *CHOSEN, "a / b", "floor(a)", "a < b", *casts("smallint", "int", "float", "boolean")],
    ),
    "float": (
        pa.float32(),
        [0.0, -0.0, 0.10000000149011612, -2.5, NAN, -INF, 2.0**31],
        [*FRACTION, "greatest(a, b)", *casts("int", "bigint", "double")],
    ),
    "double": (
        pa.float64(),
        [0.0, -0.0, None, -2.5, NAN, INF, 2.0**63],
        [*FRACTION, *COMPARED, *CHOSEN, "ln(a)", "isnan(a)", *casts("tinyint", "bigint", "float", "boolean")],
    ),
}


def parsed(text: str, schema: pa.Schema) -> Expression | None:
    try:
        return parse_select(f"{text} as result", Scope.of(schema))[0].expression
    except ExpressionError:
        return None


def exact(values: Sequence[object]) -> list[object]:
    """Make values that are equal only if they are the same bits; one NaN is as good as another."""
    return [
        ("nan" if math.isnan(value) else struct.pack(">d", value)) if isinstance(value, float) else value
        for value in values
    ]


def agree(texts: Sequence[str], table: pa.Table) -> int:
    """Compile texts, a few at a time, and compare with Arrow row by row; return how many could be compiled."""
    found = {text: parsed(text, table.schema) for text in texts}
    chosen = [(text, each) for text, each in found.items() if each is not None and can_write(each)]
    for start in range(0, len(chosen), TOGETHER):
        agree_together(dict(chosen[start : start + TOGETHER]), table)
    return len(chosen)


def agree_together(chosen: dict[str, Expression], table: pa.Table) -> None:
    """Compile expressions into one program.

    Each is under a condition that is a column of its own, so that a row of one of them can be had alone.
    """
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    rows = [{name: each[row : row + 1] for name, each in columns.items()} for row in range(table.num_rows)]
    updates, expected, failures = [], [], []
    for number, (text, expression) in enumerate(chosen.items()):
        wanted: list[object] = []
        for row, alone in enumerate(rows):
            try:
                wanted += expression.evaluate(alone, 1).to_pylist()
            except EvaluationError as error:
                wanted.append(None)
                failures.append((number, row, str(error)))
        condition = column(ScopeColumn(source="", name=f"on{number}", type=pa.bool_()))
        updates.append((f"$v{number}", case([(condition, expression)], None)))
        expected.append((text, wanted))
    program = write_program(updates, columns_too=True)
    before = [pa.nulls(1, update.type) for _, update in updates]
    off = {f"on{number}": np.ones(len(rows), np.bool_) for number in range(len(updates))}
    for number, row, _ in failures:
        off[f"on{number}"][row] = False
    flags = {name: pa.array(each) for name, each in off.items()}
    after, _ = program.run(columns | flags, np.zeros(len(rows), np.int32), before)
    for (text, wanted), mine in zip(expected, after, strict=True):
        mine.validate(full=True)
        assert exact(mine.to_pylist()) == exact(wanted), text
    for number, row, problem in failures:
        flags = {name: pa.array([name == f"on{number}"]) for name in off}
        with pytest.raises(EvaluationError) as raised:
            program.run(rows[row] | flags, np.zeros(1, np.int32), before)
        assert str(raised.value) == problem, expected[number][0]


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(table=tables(), texts=st.lists(expressions(2), min_size=40, max_size=40, unique=True))
def test_random_expressions_agree_with_arrow(table: pa.Table, texts: list[str]) -> None:
    assert agree(texts, table) > 10


@pytest.mark.parametrize("name", LIMITS)
def test_operators_agree_with_arrow_at_the_limits(name: str) -> None:
    type, values, texts = LIMITS[name]
    left, right = zip(*itertools.product(values, values), strict=True)
    table = pa.table({"a": pa.array(left, type), "b": pa.array(right, type)})
    assert agree(texts, table) == len(texts)


def compiled(texts: Sequence[str], columns: dict[str, pa.Array]) -> list[tuple[Expression, pa.Array]]:
    """Compile texts, all of which can be, and run them."""
    schema = pa.schema([(name, each.type) for name, each in columns.items()])
    made = [each for text in texts if (each := parsed(text, schema)) is not None]
    assert len(made) == len(texts)
    program = write_program([(f"$v{n}", each) for n, each in enumerate(made)], columns_too=True)
    rows = len(next(iter(columns.values())))
    after, _ = program.run(columns, np.zeros(rows, np.int32), [pa.nulls(1, each.type) for each in made])
    return list(zip(made, after, strict=True))


def test_dates_and_times_agree_with_arrow() -> None:
    """Over all there are, beyond Python's years."""
    days = pa.array([0, -1, 18262, 2**31 - 1, -(2**31), None], pa.int32())
    micros = pa.array([0, -1, 86_400_000_000, 2**63 - 1, -(2**63), None], pa.int64())
    columns = {
        "dt": days.view(pa.date32()),
        "ts": micros.view(pa.timestamp("us", tz="UTC")),
        "nz": micros.view(pa.timestamp("us")),
    }
    texts = ["cast(ts as date)", "cast(ts as timestamp_ntz)", "cast(ts as bigint)", "cast(nz as date)"]
    texts += ["cast(date'2020-01-01' as timestamp)", "dt < date'1969-12-31'", "ts >= timestamp'1970-01-02'"]
    texts += ["greatest(ts, timestamp'2020-01-01')", "coalesce(dt, date'2020-01-01')"]
    for expression, mine in compiled(texts, columns):
        assert mine.equals(expression.evaluate(columns, 6)), expression.sql
    with pytest.raises(EvaluationError, match=r"timestamp overflow in: cast\(dt as timestamp\)"):
        compiled(["cast(dt as timestamp)"], columns)


def test_powers_agree_with_arrow_within_an_ulp() -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -2.5, 1e300, 709.7, -745.0, NAN, INF, -INF, None]
    left, right = zip(*itertools.product(numbers, numbers), strict=True)
    columns = {"a": pa.array(left, pa.float64()), "b": pa.array(right, pa.float64())}
    for expression, mine in compiled(["exp(a)", "ln(a)", "sqrt(a)", "pow(a, b)"], columns):
        for a, b in zip(mine.to_pylist(), expression.evaluate(columns, len(left)).to_pylist(), strict=True):
            assert exact([a]) == exact([b]) or abs(a - b) <= math.ulp(b), expression.sql


def variables(
    initials: dict[str, str], update: str, schema: dict[str, pa.DataType], *functions: UserFunction
) -> Variables:
    users = {each.name: each for each in functions}
    return parse_variables(initials, update, Scope.of(pa.schema(schema)), users)


def after(made: Variables, **columns: pa.Array) -> dict[str, list[object]]:
    """Return the variables after each row of one key."""
    rows = len(next(iter(columns.values())))
    found, _ = made.run(columns, np.zeros(rows, np.int32), made.initial(1))
    return {name: each.to_pylist() for name, each in found.items()}


def inputs(made: Variables) -> list[str]:
    return [each.expression.sql for each in made.program.inputs]


def test_what_depends_on_columns_only_is_left_to_arrow() -> None:
    schema = {"a": pa.float64(), "s": pa.string(), "m": pa.decimal128(10, 2), "n": pa.int64()}
    assert inputs(variables({"v": "0e0"}, "v + sqrt(a) * 2e0 as v", schema)) == ["sqrt(a) * 2e0"]
    assert inputs(variables({"v": "0e0"}, "if(upper(s) = 'X', v + m, v) as v", schema)) == [
        "upper(s) = 'X'",
        "m",
    ]
    assert inputs(variables({"v": "0"}, "n * n as v", schema)) == ["n * n"]
    # It must not raise where v is null, and it is no slower compiled.
    assert inputs(variables({"v": "0"}, "v + n * n as v", schema)) == ["n"]
    assert inputs(variables({"v": "0"}, "v + cast(1 as tinyint) as v", schema)) == []


def test_failures_of_columns_alone_raise_before_the_loop() -> None:
    made = variables({"v": "0"}, "10 div n as v", {"n": pa.int64()})
    with pytest.raises(EvaluationError, match="division by zero in: 10 div n"):
        after(made, n=pa.array([1, 0]))


def test_a_condition_on_columns_guards_what_cannot_be_compiled() -> None:
    calls: list[list[object]] = []

    def twice(numbers: pa.Array) -> pa.Array:
        calls.append(numbers.to_pylist())
        return pc.multiply(numbers, 2)

    schema = {"ok": pa.bool_(), "s": pa.string(), "n": pa.int64()}
    user = UserFunction("twice", twice, returns=pa.int64())
    made = variables(
        {"v": "0", "w": "0"},
        "if(v >= 0 and ok, v + cast(s as bigint), v) as v, "
        "case when not ok then w when n > 2 then twice(n) else w end as w",
        schema,
        user,
    )
    ok = pa.array([True, False, None, True, True])
    found = after(made, ok=ok, s=pa.array(["1", "x", "y", "2", "3"]), n=pa.array([1, 2, 3, 4, 5]))
    assert found == {"v": [1, 1, 1, 3, 6], "w": [0, 0, 6, 8, 10]}
    assert calls == [[3, 4, 5]]
    assert "case when ok then cast(s as bigint) end" in inputs(made)


def test_what_may_fail_beside_a_variable_fails_only_where_it_is_needed() -> None:
    def odd(numbers: pa.Array) -> pa.Array:
        if any(each % 2 == 0 for each in numbers.to_pylist()):
            raise ValueError("even")
        return numbers

    user = UserFunction("odd", odd, returns=pa.int64())
    made = variables({"v": "cast(0 as bigint)"}, "if(v < 3, v + 1, odd(n)) as v", {"n": pa.int64()}, user)
    assert after(made, n=pa.array([2, 4, 6, 7, 9, 11])) == {"v": [1, 2, 3, 7, 9, 11]}
    with pytest.raises(EvaluationError, match=r"user function odd failed: ValueError\('even'\) in: odd\(n\)"):
        after(made, n=pa.array([2, 4, 6, 7, 8, 11]))
    never = variables({"v": "0"}, "if(v < 3, v + 1, cast('x' as int)) as v", {"n": pa.int64()})
    assert after(never, n=pa.array([1, 1])) == {"v": [1, 2]}
    with pytest.raises(EvaluationError, match=r"not a int in: cast\('x' as int\)"):
        after(never, n=pa.array([1, 1, 1, 1]))


def test_what_depends_on_variables_is_lazy_too() -> None:
    made = variables(
        {"v": "0", "a": "false", "b": "false", "c": "0", "d": "0"},
        "n as v, v <> 0 and 10 div v > 1 as a, v = 0 or 10 div v > 1 as b, coalesce(nullif(v, 0), 1 div (v + 1)) as c, "
        "case when v = 0 then 7 when 10 div v > 1 then 8 else 100 div (v - 1) end as d",
        {"n": pa.int64()},
    )
    assert after(made, n=pa.array([0, 1, None, 8, 0])) == {
        "v": [0, 1, None, 8, 0],
        "a": [False, False, True, None, False],
        "b": [True, True, True, None, False],
        "c": [1, 1, 1, None, 8],
        "d": [7, 7, 8, None, 14],
    }


def test_strings_in_any_layout() -> None:
    made = variables(
        {"v": "''", "n": "0", "low": "'zz'"},
        "coalesce(s, v) as v, if(v = s or s = 'b', n + 1, n) as n, least(low, s) as low",
        {"s": pa.string()},
    )
    plain = pa.array(["b", "a", None, "a", "ß", "a"])
    wanted = after(made, s=plain)
    assert wanted == {
        "v": ["b", "a", "a", "a", "ß", "a"],
        "n": [1, 1, 1, 2, 2, 2],
        "low": ["b", "a", "a", "a", "a", "a"],
    }
    doubled = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, 3, 2, 4, 0], pa.int8()), ["a", "b", "a", None, "ß"]
    )
    several = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 2, 3, 0], pa.int8()), ["a", "b", "a", "ß"])
    longer = pa.concat_arrays([pa.array(["x"]), plain])
    layouts = [doubled, several, plain.cast(pa.large_string()), longer[1:], longer.dictionary_encode()[1:]]
    for layout in [*layouts, pa.chunked_array([plain[:2], plain[2:]])]:
        assert after(made, s=layout) == wanted


def test_numbers_in_any_place() -> None:
    made = variables(
        {"v": "0", "t": "true"}, "v + n as v, t and ok as t", {"n": pa.int64(), "ok": pa.bool_()}
    )
    wanted = {"v": [1, None, None], "t": [True, None, False]}
    numbers, flags = pa.array([7] * 13 + [1, None, 5]), pa.array([False] * 13 + [True, None, False])
    assert after(made, n=numbers[13:], ok=flags[13:]) == wanted
    shifted = pa.py_buffer(b"." + np.array([1, 0, 5]).tobytes())[1:]
    odd = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), shifted])
    assert after(made, n=odd, ok=flags[13:]) == wanted
    whole = pa.array([1, None, 5], pa.int64()).dictionary_encode()
    assert after(made, n=whole, ok=pa.chunked_array([flags[13:]])) == wanted


def test_the_source_has_nothing_of_the_text() -> None:
    made = variables(
        {"n); evil(": "';evil()'"},
        "if(`n); evil(` = 'evil' or `evil[0]` > 1.5e300, '\\nevil()', `n); evil(`) as `n); evil(`",
        {"evil[0]": pa.float64()},
    )
    assert "evil" not in made.program.source
    assert after(made, **{"evil[0]": pa.array([2.0, INF, 0.0])}) == {
        "n); evil(": [";evil()", "\nevil()", "\nevil()"]
    }


def test_equal_sources_are_compiled_once() -> None:
    first, second = (variables({"v": "17"}, "v * 3 as v", {"n": pa.int64()}) for _ in range(2))
    after(first, n=pa.array([1]))
    known = compiled_sources.cache_info().misses
    assert after(second, n=pa.array([1, 1])) == after(first, n=pa.array([1, 1])) == {"v": [51, 153]}
    assert compiled_sources.cache_info().misses == known
