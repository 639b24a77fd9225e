"""Word count: how often each word occurs in the files of a folder (see docs/word-count.md)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.graph.connectors import SinkConnector, SourceConnector

_BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}']+"


def words_of(lines: pa.Array) -> pa.Array:
    """List the words of lines, one after the other: runs of letters, digits and apostrophes, in lower case.

    >>> words_of(pa.array(["Don't panic, it's 'only' me:", "o'neill + 2"])).to_pylist()
    ["don't", 'panic', "it's", 'only', 'me', "o'neill", '2']
    """
    plain = pc.replace_substring(pc.utf8_lower(lines), "\N{RIGHT SINGLE QUOTATION MARK}", "'")
    # An apostrophe at either end is a quotation mark.
    words = pc.utf8_trim(pc.list_flatten(pc.split_pattern_regex(plain, _BETWEEN_WORDS)), "'")
    return words.filter(pc.not_equal(words, ""))


class Split(rr.CustomOperator):
    """Split lines into words. A word that comes several times at once is put out once, with how often."""

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        counts = pc.value_counts(words_of(batch.column("line")))
        self.submit(pa.table({"word": counts.field("values"), "times": counts.field("counts")}))


def wordcount(feed: str | Path | SourceConnector, out: SinkConnector) -> rr.Application:
    """Describe word count: whenever a word has come up, how often it has so far."""
    app = rr.Application("wordcount")
    connector = rr.folder_scan(feed, format="text") if isinstance(feed, str | Path) else feed
    source = app.source("Source", connector)
    words = app.custom("Split", Split, source, schema="word string, times bigint", stateless=True)
    assert isinstance(words, rr.Stream)
    counts = app.functor(
        "Count", words, by="word", variables={"n": "cast(0 as bigint)"}, update="n + times as n",
        select="word, n",
    )  # fmt: skip
    app.sink("Sink", counts, out)
    return app
