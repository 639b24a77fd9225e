"""Regular expressions find here what they find in Spark, which has Java's, or are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from riprap.expressions import Expression, ExpressionError, Scope, parse_select
from riprap.expressions.literals import string

from .test_same_as_spark import compare_with_spark

TEXTS = [
    "", "a", "ab", "aab", "abab", "b a", "AB", "a\n", "b\r\n", "\na", "a1_b", "a\x0bb", "a\u2028", "\u212ask", "\u017f",
    "éa", "x=1;y=22", "aaa", "日本a", "😀b", "a\tb", ".*", "a-b", "k", "[a]", "a\\b", "ba\r", None,
]  # fmt: skip
COLUMN = pa.array(TEXTS, pa.string())
ATOMS = [
    *(
        "a",
        "b",
        "k",
        "a",
        "b",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\S",
        r"\W",
        r"\.",
        r"\x61",
        r"\u2028",
        r"\n",
        r"\\",
        "é",
    ),
    *(
        "[ab]",
        "[^a]",
        r"[\w=]",
        "[a-z]",
        r"[^\s]",
        "[-a]",
        "[a-]",
        r"[\S\n]",
        "[Y-b]",
        r"\p{Alpha}",
        r"\P{L}",
        "=",
    ),
    *("😀", "(?i:k)", "(?s:.)", r"\Qa.\E", "&", "-"),
]
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}?"]
FLAGS = ["", "", "", "(?i)", "(?s)", "^", r"\A", "(?-i)"]
ENDS = ["", "", "", "$", r"\z", r"\Z"]


def patterns(depth: int) -> st.SearchStrategy[str]:
    items: st.SearchStrategy[str] = st.tuples(st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS)).map(
        "".join
    )
    if depth > 0:
        inner = patterns(depth - 1)
        group = st.tuples(st.sampled_from(["(", "(?:"]), inner, st.just(")"), st.sampled_from(QUANTIFIERS))
        items = st.one_of(items, group.map("".join))
    run = st.lists(items, min_size=1, max_size=3).map("".join)
    whole = st.tuples(st.sampled_from(FLAGS), run, st.sampled_from(ENDS)).map("".join)
    return st.one_of(whole, st.lists(run, min_size=1, max_size=2).map("|".join))


TEMPLATES = [
    "t rlike {}",
    "regexp_extract(t, {}, 0)",
    "regexp_extract(t, {})",
    "regexp_extract(t, {}, 2)",
    "regexp_replace(t, {}, '<$0>')",
    "regexp_replace(t, {}, r'\\$$1')",
    "split(t, {})",
    "split(t, {}, 2)",
]


@settings(
    max_examples=1,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(drawn=st.lists(patterns(2), min_size=60, max_size=60, unique=True))
def test_random_patterns_match_as_in_spark(spark: SparkSession, drawn: list[str]) -> None:
    frame = spark.createDataFrame(pa.table({"t": COLUMN})).coalesce(1)
    computed: list[tuple[str, Expression, pa.Array]] = []
    for pattern in drawn:
        for template in TEMPLATES:
            text = template.format(string(pattern).sql)
            try:
                (named,) = parse_select(f"{text} as y", Scope.of(pa.schema({"t": pa.string()})))
            except ExpressionError:
                continue
            computed.append((text, named.expression, named.expression.evaluate({"t": COLUMN}, len(COLUMN))))
    assert len(computed) > 100
    compare_with_spark(frame, computed)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a++", "a possessive quantifier"),
        (r"(a)\1", r"a backreference \1"),
        ("(?=a)", "lookahead"),
        ("(?<!a)b", "lookbehind"),
        ("(?>a)", "an atomic group"),
        ("(a*)+", "a repetition of what can be empty"),
        ("[a-z&&[^b]]", "&& in a set"),
        ("[[:alpha:]]", "a [ in a set"),
        ("(?m)^a", "the flag (?m"),
        ("a{", "a { that is no count"),
        ("*a", "a * that repeats nothing"),
        ("(a", "a ( that is not closed"),
        ("a)", "a ) that closes nothing"),
        (r"\R", r"\R"),
        ("a{2000}", "a count {2000}"),
    ],
)
def test_what_re2_cannot_match_as_java_does_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_select(f"t rlike {string(pattern).sql} as y", Scope.of(pa.schema({"t": pa.string()})))
    assert caught.value.problem == f"regular expression {pattern!r} has {problem}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("regexp_replace(t, 'a*', '')", "regexp_replace by a pattern that can match an empty text: 'a*'"),
        ("regexp_replace(t, 'a$', '')", "regexp_replace by a pattern with $: 'a$'"),
        ("regexp_replace(t, 'a', '$1')", "replacement '$1' names a group that 'a' does not have"),
        ("split(t, '^a')", "split by '^a', which looks at more than the match"),
        ("regexp_extract(t, 'a')", "regexp_extract asks for group 1, 'a' has 0"),
        ("t rlike t", "rlike needs a string literal here, got t"),
        ("t rlike '(a$)b'", "$ stands elsewhere than at the end of the regular expression, "
         "or in the group that is asked for"),
        ("t[0]", "[ ] needs an array, got string: t"),
        ("element_at(split(t, ','), 0)", "element_at counts from 1, or from the end from -1: there is no 0"),
    ],
)  # fmt: skip
def test_what_would_be_found_elsewhere_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_select(f"{text} as y", Scope.of(pa.schema({"t": pa.string()})))
    assert caught.value.problem == problem
