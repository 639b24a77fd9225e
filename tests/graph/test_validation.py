"""What is wrong with an application is said when it is described: where, what was got, and what to do."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import riprap as rr
from riprap.durations import UNITS

Build = Callable[[rr.Application, rr.Stream, rr.Stream], object]


def refusal(build: Build) -> str:
    """Describe something wrong; return what was said, with our own line as HERE and without the line's text."""
    app = rr.Application("wrong")
    trades = app.source("trades", rr.rows([], "k string, price double, size bigint, at timestamp"))
    other = app.source("other", rr.rows([], "k int, size bigint"))
    with pytest.raises(rr.GraphError) as caught:
        build(app, trades, other)
    line = build.__code__.co_firstlineno
    said = str(caught.value).replace(f"{__file__}:{line}", "HERE")
    return said.removesuffix("\n    " + linecache.getline(__file__, line).strip())


def wide(tuples: int = 3) -> Any:
    return rr.sliding(tuples=tuples)


class SparkColumn:
    """As Spark's columns are: shown like this, and neither true nor false."""

    def __repr__(self) -> str:
        return "Column<'n > 1'>"

    def __bool__(self) -> bool:
        raise ValueError("Cannot convert column into bool")


OTHER = rr.Application("elsewhere")
FOREIGN = OTHER.source("foreign", rr.rows([], "k string"))

# fmt: off
REFUSALS: dict[str, tuple[Build, str]] = {
    "unknown column": (
        lambda a, t, o: a.functor("f", t, select="prise * size as x"),
        "Functor 'f' (HERE): no column 'prise'\n  prise * size as x\n  ^^^^^\n"
        "did you mean 'price'? There are: at, k, price, size",
    ),
    "unknown column in a condition": (
        lambda a, t, o: a.functor("f", t, where="volume > 3"),
        "Functor 'f' (HERE): no column 'volume'\n  volume > 3\n  ^^^^^^\nThere are: at, k, price, size",
    ),
    "condition of a wrong type": (
        lambda a, t, o: a.functor("f", t, where="price + 1"),
        "Functor 'f' (HERE): a condition is boolean, this is double\n  price + 1\n"
        "Write a comparison, such as x <> 0",
    ),
    "condition of a join of a wrong type": (
        lambda a, t, o: a.join("j", t, a.functor("u", t, select="*"), by="k", windows=(wide(), wide()), where="t.k", select="k"),  # noqa: E501
        "Join 'j' (HERE): no source 't'\n  t.k\n  ^^^\nThere are: trades, u",
    ),
    "bad SQL": (
        lambda a, t, o: a.functor("f", t, where="price >"),
        "Functor 'f' (HERE): ",
    ),
    "columns in a list": (
        lambda a, t, o: a.functor("f", t, select=["k", "price"]),  # type: ignore[arg-type]
        "Functor 'f' (HERE): SQL is given as a text, this is a list: ['k', 'price']\nWrite it out, as \"k, price\"",
    ),
    "a condition that is a column of Spark": (
        lambda a, t, o: a.functor("f", t, where=SparkColumn()),  # type: ignore[arg-type]
        "Functor 'f' (HERE): SQL is given as a text, this is a SparkColumn: Column<'n > 1'>\n"
        "Write it out, as \"price > 3 and size is not null\"",
    ),
    "a condition that is a function": (
        lambda a, t, o: a.join("j", t, a.functor("u", t, select="*"), by="k", windows=(wide(), wide()), where=len, select="k"),  # type: ignore[arg-type]  # noqa: E501
        "Join 'j' (HERE): SQL is given as a text, this is a builtin_function_or_method: <built-in",
    ),
    "unknown aggregate": (
        lambda a, t, o: a.aggregate("agg", t, by="k", window=wide(), select="medain(price) as m"),
        "Aggregate 'agg' (HERE): no aggregate and no function medain()\n  medain(price) as m\n"
        "  ^^^^^^^^^^^^\ndid you mean 'median' or 'mean' or 'min'? There are: abs, ",
    ),
    "nothing to do": (
        lambda a, t, o: a.functor("f", t),
        "Functor 'f' (HERE): it does nothing. Give it where=, select= or both",
    ),
    "output without a name": (
        lambda a, t, o: a.functor("f", t, select="price * size"),
        "Functor 'f' (HERE): price * size has no name",
    ),
    "duplicate name": (
        lambda a, t, o: a.functor("other", t, select="*"),
        "Functor 'other' (HERE): the name is taken by Source at ",
    ),
    "bad name": (
        lambda a, t, o: a.functor("no good", t, select="*"),
        "Functor 'no good' (HERE): its name is 'no good'. Names are letters, digits and '_', starting with a letter",
    ),
    "a name that is no text": (
        lambda a, t, o: a.functor(3, t, select="*"),  # type: ignore[arg-type]
        "Functor '3' (HERE): its name is 3. Names are letters, digits and '_', starting with a letter",
    ),
    "stream of another application": (
        lambda a, t, o: a.functor("f", FOREIGN, select="*"),
        "Functor 'f' (HERE): it reads stream 'foreign' (k string) of application 'elsewhere'. "
        "There are here: trades, other",
    ),
    "not a stream": (
        lambda a, t, o: a.sink("out", "trades", rr.memory()),  # type: ignore[arg-type]
        "Sink 'out' (HERE): it reads 'trades'. Give it the stream that app.source(...) and others return",
    ),
    "a folder that another sink writes to": (
        lambda a, t, o: (a.sink("one", t, rr.parquet("out")), a.sink("two", o, rr.csv("./x/../out/"))),
        "Sink 'two' (HERE): sink 'one' (HERE) writes to the folder ./x/../out/ already, there spelled out. "
        "Give each sink its own",
    ),
    "a path without a format to write": (
        lambda a, t, o: a.sink("out", t, "out.xlsx"),
        "Sink 'out' (HERE): 'out.xlsx' ends in '.xlsx', which is no format to write. Name a folder that ends in "
        ".parquet, .csv or .json or in nothing (Parquet), or write rr.parquet(...), rr.csv(...) or rr.json(...)",
    ),
    "not a sink": (
        lambda a, t, o: a.sink("out", t, rr.rows([], "a int")),  # type: ignore[arg-type]
        "Sink 'out' (HERE): it writes to Rows(",
    ),
    "a path of files that need a schema": (
        lambda a, t, o: a.source("s", "x.csv"),
        "Source 's' (HERE): files(...) of csv needs schema=, such as 'ticker string, price double'",
    ),
    "a path of no files": (
        lambda a, t, o: a.source("s", "nowhere/x.parquet"),
        "Source 's' (HERE): no Parquet file matches nowhere/x.parquet: check the path, or give schema=",
    ),
    "not a source": (
        lambda a, t, o: a.source("s", pa.table({"a": [1]})),  # type: ignore[arg-type]
        "Source 's' (HERE): it reads pyarrow.Table",
    ),
    "position that does not exist": (
        lambda a, t, o: a.source("s", rr.rows([], "a int"), position="seq"),
        "Source 's' (HERE): position= names column 'seq', which does not exist. It has: a",
    ),
    "position of a wrong type": (
        lambda a, t, o: a.source("s", rr.rows([], "a double"), position="a"),
        "Source 's' (HERE): position= must name a column of whole numbers, 'a' is double. It has: a",
    ),
    "ordering that does not exist": (
        lambda a, t, o: a.source("s", rr.rows([], "a int"), ordering="at"),
        "Source 's' (HERE): ordering= names column 'at', which does not exist. It has: a",
    ),
    "ordering of a wrong type": (
        lambda a, t, o: a.source("s", rr.rows([], "a double"), ordering="a"),
        "Source 's' (HERE): ordering= must name a column of whole numbers, dates or timestamps, 'a' is double. "
        "It has: a",
    ),
    "column of a type we do not have": (
        lambda a, t, o: a.source(
            "s", rr.from_spark(id, schema=pa.schema([("a", pa.map_(pa.string(), pa.int8()))]))
        ),
        "Source 's' (HERE): type map<string, int8> of a is not supported\nSupported types: boolean, ",
    ),
    "window of an aggregate without tuples": (
        lambda a, t, o: a.aggregate("agg", t, by="k", window=wide(0), select="count(*) as n"),
        "Aggregate 'agg' (HERE): its window is sliding(0 tuples), which never holds a tuple. Give it a size",
    ),
    "not a window": (
        lambda a, t, o: a.aggregate("agg", t, by="k", window=5, select="count(*) as n"),  # type: ignore[arg-type]
        "Aggregate 'agg' (HERE): window= takes a window, got 5. Write rr.sliding(...) or rr.tumbling(...)",
    ),
    "not an output rule": (
        lambda a, t, o: a.aggregate("agg", t, window=wide(), emit=2, select="count(*) as n"),  # type: ignore[arg-type]
        "Aggregate 'agg' (HERE): emit= takes an output rule, got 2. Write rr.every(...) or rr.on_close()",
    ),
    "key that does not exist": (
        lambda a, t, o: a.aggregate("agg", t, by="ticker", window=wide(), select="count(*) as n"),
        "Aggregate 'agg' (HERE): by= names column 'ticker', which trades lacks. It has: k, price, size, at",
    ),
    "key that is no name": (
        lambda a, t, o: a.aggregate("agg", t, by=None, window=wide(), select="count(*) as n"),  # type: ignore[arg-type]
        "Aggregate 'agg' (HERE): by= is None. Name a column, or several in a list",
    ),
    "key named twice": (
        lambda a, t, o: a.aggregate("agg", t, by=("k", "k"), window=wide(), select="count(*) as n"),
        "Aggregate 'agg' (HERE): by=('k', 'k') names a column twice. Name each once",
    ),
    "key selected again": (
        lambda a, t, o: a.aggregate("agg", t, by="k", window=wide(), select="k, count(*) as n"),
        "Aggregate 'agg' (HERE): select= names 'k' again. The key's columns come first by themselves",
    ),
    "column outside an aggregate": (
        lambda a, t, o: a.aggregate("agg", t, by="k", window=wide(), select="price + sum(size) as x"),
        "Aggregate 'agg' (HERE): column 'price' is neither a key nor inside an aggregate",
    ),
    "sum of text": (
        lambda a, t, o: a.aggregate("agg", t, window=wide(), select="sum(k) as x"),
        "Aggregate 'agg' (HERE): sum needs numbers, got string: k",
    ),
    "join without a key": (
        lambda a, t, o: a.join("j", t, o, by=(), windows=(wide(), wide()), select="price"),
        "Join 'j' (HERE): a join needs a key. Give it by=, a column that both streams have",
    ),
    "join key of different types": (
        lambda a, t, o: a.join("j", t, o, by="k", windows=(wide(), wide()), select="price"),
        "Join 'j' (HERE): the key 'k' is string and int. Cast one side to the other",
    ),
    "join key that one side lacks": (
        lambda a, t, o: a.join("j", t, o, by="price", windows=(wide(), wide()), select="price"),
        "Join 'j' (HERE): by= names column 'price', which other lacks. It has: k, size",
    ),
    "both ports the same stream": (
        lambda a, t, o: a.join("j", t, t, by="k", windows=(wide(), wide()), select="price"),
        "Join 'j' (HERE): both ports read stream 'trades'. Give one side another name with a functor select='*'",
    ),
    "both windows empty": (
        lambda a, t, o: a.join("j", t, o, by="size", windows=(wide(0), wide(0)), select="price"),
        "Join 'j' (HERE): both windows are of size 0, so no tuple can ever meet another. Give one a size",
    ),
    "one window": (
        lambda a, t, o: a.join("j", t, o, by="size", windows=wide(), select="price"),
        "Join 'j' (HERE): windows= takes two windows, got Window(shape='sliding', tuples=3, ",
    ),
    "ambiguous column": (
        lambda a, t, o: a.join("j", t, a.functor("u", t, select="*"), by="k", windows=(wide(), wide()), select="price"),
        "Join 'j' (HERE): column 'price' is ambiguous\n  price\n  ^^^^^\nWrite trades.price or u.price",
    ),
    "policy on a functor": (
        lambda a, t, o: a.functor("f", t, select="*", protect=rr.checkpoint(every="1s")),
        "Functor 'f' (HERE): protect=rr.checkpoint(...) saves state, and a functor has none. "
        "Move the policy to a stateful operator, or leave it out",
    ),
    "policy on a source": (
        lambda a, t, o: a.source("s", rr.rows([], "a int"), protect=rr.eventual()),
        "Source 's' (HERE): protect=rr.eventual(...) saves state, and a source has none. "
        "Move the policy to a stateful operator, or leave it out",
    ),
    "policy on a sink": (
        lambda a, t, o: a.sink("out", t, rr.memory(), protect=rr.checkpoint(every="1s")),
        "Sink 'out' (HERE): protect=rr.checkpoint(...) saves state, and a sink has none. "
        "Move the policy to a stateful operator, or leave it out",
    ),
    "not a policy": (
        lambda a, t, o: a.aggregate("agg", t, window=wide(), select="count(*) as n", protect="10s"),  # type: ignore[arg-type]
        "Aggregate 'agg' (HERE): protect='10s' is not a policy. Write rr.checkpoint(every='10s') or another",
    ),
    "unordered source of a consistent region": (
        lambda a, t, o: a.source("s", rr.from_spark(str, schema="a int"), protect=rr.consistent(period="1s")),
        "Source 's' (HERE): it cannot start a consistent region: a DataFrame without position= cannot be replayed. "
        "Name its position= column",
    ),
    "function registered twice": (
        lambda a, t, o: [a.function("twice", len, returns="int"), a.function("Twice", len, returns="int")],
        "function 'Twice' (HERE): there is a function of that name already",
    ),
    "function of a bad name": (
        lambda a, t, o: a.function("2x", len, returns="int"),
        "function at HERE: a name is letters, digits and '_', got '2x'",
    ),
}
# fmt: on


@pytest.mark.parametrize("wrong", REFUSALS)
def test_what_is_wrong_is_said_at_the_users_line(wrong: str) -> None:
    build, wanted = REFUSALS[wrong]

    said = refusal(build)

    assert said.startswith(wanted)


def test_the_users_line_is_shown() -> None:
    app = rr.Application("shown")
    with pytest.raises(rr.GraphError) as caught:
        app.functor("f", "nothing", select="*")  # type: ignore[arg-type]

    assert str(caught.value).splitlines()[-1].strip().startswith('app.functor("f", "nothing", select="*")')


def test_a_refused_operator_is_not_there() -> None:
    app = rr.Application("again")
    source = app.source("s", rr.rows([], "a int"))
    with pytest.raises(rr.GraphError):
        app.functor("f", source, select="b")

    app.sink("out", app.functor("f", source, select="a"), rr.memory())

    assert [o.name for o in app.graph()] == ["s", "f", "out"]


@pytest.mark.parametrize("name", ["", "a b", "1st", "a-b", None, "é"])
def test_an_application_has_a_plain_name(name: Any) -> None:
    with pytest.raises(rr.GraphError, match=r"an application's name is letters, digits and '_', got "):
        rr.Application(name)


@pytest.mark.parametrize("tuples", [-1, 1.5, "3", True])
def test_windows_have_a_whole_size(tuples: Any) -> None:
    with pytest.raises(rr.GraphError) as caught:
        rr.sliding(tuples=tuples)

    assert str(caught.value) == f"sliding(tuples=...) takes a whole number of at least 0, got {tuples!r}"


@pytest.mark.parametrize("tuples", [0, -1, 1.5, "3", True])
def test_outputs_come_every_so_many_tuples(tuples: Any) -> None:
    with pytest.raises(rr.GraphError) as caught:
        rr.every(tuples=tuples)

    assert str(caught.value) == f"every(tuples=...) takes a whole number of at least 1, got {tuples!r}"


@pytest.mark.parametrize(
    "duration",
    [
        "",
        "ten",
        "10",
        "9 fortnights",
        "-1s",
        "1s and 2s",
        timedelta(0),
        "0s",
        0,
        -2.0,
        math.inf,
        math.nan,
        None,
        True,
    ],
)
def test_durations_are_positive_times(duration: Any) -> None:
    takes = f"takes a time such as '10s', '250ms' or '2m', got {duration!r}. {UNITS}"

    for what, make in {
        "checkpoint(every=...)": lambda: rr.checkpoint(every=duration),
        "consistent(period=...)": lambda: rr.consistent(period=duration),
    }.items():
        with pytest.raises(rr.GraphError) as caught:
            make()
        assert str(caught.value) == f"{what} {takes}"


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("10s", 10), ("250ms", 0.25), (" 2 m ", 120), ("1.5min", 90), ("1h", 3600), (3, 3), (0.5, 0.5)],
)
def test_durations_are_read(duration: Any, seconds: float) -> None:
    assert rr.checkpoint(every=duration).every == pytest.approx(seconds)


@pytest.mark.parametrize("keep", [0, -1, 1.0, True])
def test_a_checkpoint_keeps_at_least_one(keep: Any) -> None:
    with pytest.raises(
        rr.GraphError, match=r"checkpoint\(keep=\.\.\.\) takes a whole number of at least 1, got "
    ):
        rr.checkpoint(every="1s", keep=keep)


def message(make: Callable[[], object]) -> str:
    with pytest.raises(rr.GraphError) as caught:
        make()
    return str(caught.value)


def test_a_function_says_what_it_returns() -> None:
    app = rr.Application("functions")

    assert "function 'f' (" in message(lambda: app.function("f", len, returns="nonsense"))
    assert "returns=DataType(uint8): type uint8" in message(
        lambda: app.function("f", len, returns=pa.uint8())
    )


def test_a_json_sink_of_a_binary_column_is_refused_when_built() -> None:
    app = rr.Application("app")
    source = app.source("source", rr.rows([], "n int, raw binary"))

    with pytest.raises(
        rr.GraphError, match=r"Sink 'out' \(.*test_validation.py:\d+\): a JSON file cannot hold .*'raw'"
    ):
        app.sink("out", source, rr.json("out"))
    app.sink("out", source, rr.parquet("out"))
