"""The market feed has the published figures, prices that behave, and the same bytes for the same seed."""

import gzip
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from riprap.apps.market import FEED_SCHEMA, generate, read_real, write_feed

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "taq_ibm_streams" / "TradesAndQuotes.csv.gz"
EVENTS = 300_000


@pytest.fixture(scope="module")
def feed() -> pa.Table:
    return pa.Table.from_batches(generate(EVENTS, seed=1))


def gains(feed: pa.Table, lost: np.ndarray | None = None) -> np.ndarray:
    """Return the gain of each event's bargain, tuple at a time; 0 for trades and for quotes without one."""
    history: dict[str, list[tuple[float, int]]] = {}
    vwap: dict[str, float] = {}
    result = np.zeros(feed.num_rows)
    missing = np.zeros(feed.num_rows, bool) if lost is None else lost
    columns = (feed[name].to_pylist() for name in ("ticker", "kind", "price", "size"))
    for i, (ticker, kind, price, size) in enumerate(zip(*columns, strict=True)):
        if kind == "quote":
            result[i] = max(0.0, vwap.get(ticker, 0.0) - price) * size
        elif not missing[i]:
            last = history[ticker] = [*history.get(ticker, [])[-4:], (price, size)]
            vwap[ticker] = sum(p * s for p, s in last) / sum(s for _, s in last)
    return result


def seconds(feed: pa.Table) -> np.ndarray:
    micros = feed["time"].cast(pa.int64()).to_numpy()
    return (micros - micros[0] // 60_000_000 * 60_000_000) / 1e6


def is_quote(feed: pa.Table) -> np.ndarray:
    return pc.equal(feed["kind"], "quote").to_numpy()


def test_schema_and_keys(feed: pa.Table) -> None:
    assert feed.schema == FEED_SCHEMA
    assert feed["seq"].to_pylist() == list(range(1, EVENTS + 1))
    assert set(feed["kind"].unique().to_pylist()) == {"trade", "quote"}
    trades = feed.filter(pc.equal(feed["kind"], "trade"))
    quotes = feed.filter(pc.equal(feed["kind"], "quote"))
    assert trades["bid"].null_count == trades["bid_size"].null_count == trades.num_rows
    assert sum(column.null_count for column in quotes.columns) == 0
    assert sum(trades[name].null_count for name in ("time", "ticker", "price", "size")) == 0


def test_four_events_in_five_are_quotes(feed: pa.Table) -> None:
    assert is_quote(feed).mean() == pytest.approx(0.8, abs=0.01)


def test_rates(feed: pa.Table) -> None:
    time = seconds(feed)
    assert (np.diff(time) >= 0).all()
    assert EVENTS / (time[-1] - time[0]) == pytest.approx(500, rel=0.01)
    assert np.bincount(time.astype(int)).max() == 2200


def test_a_few_tickers_have_most_of_the_events(feed: pa.Table) -> None:
    counts = np.sort(feed["ticker"].value_counts().field("counts").to_numpy())[::-1]
    assert 2900 < counts.size <= 3099
    assert 0.04 < counts[:10].sum() / EVENTS < 0.12
    assert 0.2 < counts[:100].sum() / EVENTS < 0.4


def test_few_tickers_can_be_had() -> None:
    (batch,) = generate(2000, tickers=3)
    assert set(batch["ticker"].to_pylist()) == {"A", "B", "C"}


def test_prices_are_positive_cents_and_sizes_positive(feed: pa.Table) -> None:
    quotes = feed.filter(pc.equal(feed["kind"], "quote"))
    for prices in (feed["price"].to_numpy(), quotes["bid"].to_numpy()):
        assert (prices == np.rint(prices * 100) / 100).all()
        assert prices.min() > 0
    assert (quotes["bid"].to_numpy() < quotes["price"].to_numpy()).all()
    assert feed["size"].to_numpy().min() > 0


def test_share_of_bargains(feed: pa.Table) -> None:
    assert 0.12 < (gains(feed) > 0)[is_quote(feed)].mean() < 0.18


def test_losing_trades_for_16_seconds_makes_the_gain_too_large(feed: pa.Table) -> None:
    time, golden = seconds(feed), gains(feed)
    ratios = []
    for start in (100, 200, 300, 400, 500):
        faulty = gains(feed, lost=(time >= start) & (time < start + 16))
        affected = faulty != golden
        ratios.append(faulty[affected].sum() / golden[affected].sum())
    assert 1.2 < np.median(ratios) < 4


def test_tickers_move_with_the_market(feed: pa.Table) -> None:
    quotes = feed.filter(pc.equal(feed["kind"], "quote"))
    tickers = np.array(quotes["ticker"].to_pylist())
    busiest = [ticker for ticker, _ in Counter(tickers.tolist()).most_common(200)]
    middle = (quotes["price"].to_numpy() + quotes["bid"].to_numpy()) / 2
    time, ends = seconds(quotes), np.arange(20, 600, 10)
    paths = []
    for ticker in busiest:
        mine = np.flatnonzero(tickers == ticker)
        paths.append(middle[mine[np.searchsorted(time[mine], ends) - 1]])
    moves = np.diff(np.log(np.array(paths)))
    others = (moves.sum(axis=0) - moves) / (len(moves) - 1)
    correlations = [np.corrcoef(one, rest)[0, 1] for one, rest in zip(moves, others, strict=True)]
    # Independent tickers would have 0 here, with a standard error below 0.01.
    assert np.mean(correlations) > 0.03


def test_content_does_not_depend_on_the_batches() -> None:
    whole = pa.Table.from_batches(generate(70_000, seed=5))
    pieces = list(generate(70_000, seed=5, block=999))
    assert {piece.num_rows for piece in pieces[:-1]} == {999}
    assert pa.Table.from_batches(pieces).equals(whole)


def test_a_shorter_feed_is_the_beginning_of_a_longer_one() -> None:
    longer = pa.Table.from_batches(generate(70_000, seed=5))
    assert pa.Table.from_batches(generate(31_000, seed=5)).equals(longer.slice(0, 31_000))


def test_seeds_differ() -> None:
    first, second = (next(generate(1000, seed=seed)) for seed in (1, 2))
    for column in ("time", "ticker", "price", "size"):
        assert first[column] != second[column]


@pytest.mark.parametrize("wrong", [{"events": -1}, {"events": 1, "tickers": 0}, {"events": 1, "block": 0}])
def test_impossible_feeds_are_refused_at_once(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a feed needs"):
        generate(**wrong)


def test_no_events_is_no_batches() -> None:
    assert list(generate(0)) == []


def test_files_are_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    heard: list[int] = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_feed(
            tmp_path / name, 50_000, seed=seed, progress=heard.append, rows_per_file=20_000, row_group=8_000
        )
    a, b, c = ([file.read_bytes() for file in sorted((tmp_path / name).iterdir())] for name in "abc")
    assert a == b
    assert a != c
    assert heard == [20_000, 40_000, 50_000] * 3


def test_files_hold_the_feed(tmp_path: Path) -> None:
    write_feed(tmp_path / "feed", 50_000, seed=3, rows_per_file=20_000, row_group=8_000)
    files = sorted((tmp_path / "feed").iterdir())
    assert [file.name for file in files] == [f"part-0000{number}.parquet" for number in range(3)]
    tables = [pq.read_table(file) for file in files]
    assert pa.concat_tables(tables).equals(pa.Table.from_batches(generate(50_000, seed=3)))
    footer = pq.read_metadata(files[0])
    assert footer.num_row_groups == 3
    columns = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    assert [c.path_in_schema for c in columns if c.has_dictionary_page] == ["ticker", "kind"]


def test_a_feed_is_not_mixed_with_an_older_one(tmp_path: Path) -> None:
    write_feed(tmp_path, 100)
    with pytest.raises(FileExistsError, match=r"part-00000\.parquet"):
        write_feed(tmp_path, 100)


def line(kind: str, **columns: str) -> str:
    """Return a line of the real format: IBM at 14:30:01.5, the other columns empty unless named by number."""
    fields = ["IBM", "27-DEC-2005", "14:30:01.500", "-5", kind, *[""] * 25]
    for name, value in columns.items():
        fields[int(name.removeprefix("c")) - 1] = value
    return ",".join(fields)


def real_file(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_reading_real_lines(tmp_path: Path) -> None:
    path = real_file(
        tmp_path / "small.csv",
        [
            "#RIC,Date[G],Time[G]",
            line("Trade", c7="83.5", c8="200"),
            line("Trade", c23="9.08"),
            "######### LATE EVENTS #########",
            line("Quote", c11="83.4", c12="3", c15="83.64", c16="45"),
            line("Quote", c11="83.4", c12="3"),
            line("Quote", c15="83.65"),
        ],
    )
    table = read_real(path)
    assert table.schema.equals(FEED_SCHEMA)
    assert table.schema.metadata == {b"riprap.dropped": b"2"}
    time = datetime(2005, 12, 27, 14, 30, 1, 500_000, tzinfo=UTC)
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (1, time, "IBM", "trade", 83.5, 200, None, None),
        (2, time, "IBM", "quote", 83.64, 45, 83.4, 3),
        (3, time, "IBM", "quote", 83.65, 0, None, None),
    ]


def test_reading_a_file_of_comments(tmp_path: Path) -> None:
    table = read_real(real_file(tmp_path / "empty.csv", ["#RIC", ""]))
    assert table.num_rows == 0
    assert table.schema.equals(FEED_SCHEMA)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("IBM,27-DEC-2005", "expected 30 columns, got 2"),
        (line("Trade", c1=""), "the ticker .column 1. is empty"),
        (line("Order"), "expected the type Trade or Quote .column 5., got 'Order'"),
        (line("Trade", c3="14h30"), "expected a time like .*, got '27-DEC-2005 14h30'"),
        (line("Trade", c7="cheap", c8="1"), "expected a number, 0 or more, in column 7, got 'cheap'"),
        (line("Trade", c7="-1", c8="1"), "expected a number, 0 or more, in column 7, got '-1'"),
        (line("Quote", c15="nan", c16="1"), "expected a number, 0 or more, in column 15, got 'nan'"),
        (line("Quote", c15="1", c16="0.5"), "expected a whole number in column 16, got '0.5'"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, bad: str, says: str) -> None:
    path = real_file(tmp_path / "bad.csv", ["# comment", line("Trade", c7="1", c8="1"), bad])
    with pytest.raises(ValueError, match=rf"bad\.csv, line 3: {says}"):
        read_real(path)


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(gzip.compress((line("Trade", c7="1", c8="1") + "\n").encode())[:-9])
    with pytest.raises(ValueError, match=r"cut\.csv\.gz, line \d+: cannot be read"):
        read_real(path)


@pytest.mark.skipif(not REAL.exists(), reason="the real slice (shared/data) is not on this machine")
def test_reading_the_real_slice() -> None:
    table = read_real(REAL)
    assert table.num_rows == 29_982
    assert table.schema.metadata == {b"riprap.dropped": b"17"}
    quotes = is_quote(table)
    assert quotes.sum() == 23_411
    assert len(table["ticker"].unique()) == 1919
    assert (gains(table) > 0)[quotes].mean() == pytest.approx(0.138, abs=0.001)
