"""What each adapter moves a second, against its client library alone in a plain loop.

No Spark, but for Kafka: a source is read as a run reads it (found, numbered, kept, read back batch by batch), a sink is
written as a run writes it (each batch so that it is held once). The two ways take turns, and the ratio is of medians.
Servers are named by the environment; a case without its server is left out, and the result says so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap_bench import adapter_kafka, adapter_sinks, adapter_sources
from riprap_bench.adapter_cases import Case, NoServerError, Work
from riprap_bench.bargain_table import grid
from riprap_bench.measuring import Report, about, middle, rounded, spread

_ROWS = 1_000_000
# What takes ten times longer a row gets fewer of them.
_SLOW_ROWS = 200_000

Group = Callable[[], Iterator[tuple[str, Case]]]


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure every adapter."""
    share = 20 if quick else 1
    return measure_adapters(
        report,
        rows=_ROWS // share,
        slow_rows=_SLOW_ROWS // share,
        repetitions=1 if quick else 5,
        quick=quick,
    )


def measure_adapters(
    report: Report, *, rows: int, slow_rows: int, repetitions: int, quick: bool = False, kafka: bool = True
) -> dict[str, Any]:
    """Measure every adapter so many times."""
    described = about(rows=rows, slow_rows=slow_rows, repetitions=repetitions, quick=quick)
    lines: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as name:
        folder = Path(name)
        for title, make in _groups(folder, rows, slow_rows, kafka):
            try:
                for kind, case in make():
                    lines.append({"kind": kind, **_measured(case, folder, repetitions)})
                    report(_shown(lines[-1]))
            except NoServerError as reason:
                missing[title] = str(reason)
                report(f"{title}: {reason}")
    result: dict[str, Any] = rounded({"adapters": lines, "missing": missing, "about": described})
    return result


def _groups(folder: Path, rows: int, slow_rows: int, kafka: bool) -> Iterator[tuple[str, Group]]:
    yield "file sources", partial(_all, "source", adapter_sources.file_sources, folder, 2 * rows)
    yield "PostgreSQL source", partial(_all, "source", adapter_sources.postgres_source, rows)
    yield "Redis source", partial(_all, "source", adapter_sources.redis_source, slow_rows)
    yield "TCP source", partial(_all, "source", adapter_sources.tcp_source, rows)
    yield "file sinks", partial(_all, "sink", adapter_sinks.file_sinks, rows)
    yield "PostgreSQL sink", partial(_all, "sink", adapter_sinks.postgres_sink, rows)
    yield "SQLite sink", partial(_all, "sink", adapter_sinks.sqlite_sink, rows)
    yield "Redis sink", partial(_all, "sink", adapter_sinks.redis_sink, slow_rows)
    yield "TCP sink", partial(_all, "sink", adapter_sinks.tcp_sink, rows)
    if kafka:
        yield "Kafka", partial(adapter_kafka.kafka_cases, 2 * rows, rows)


def _all(kind: str, make: Callable[..., Iterator[Case]], *arguments: Any) -> Iterator[tuple[str, Case]]:
    return ((kind, case) for case in make(*arguments))


def _measured(case: Case, folder: Path, repetitions: int) -> dict[str, Any]:
    plain, riprap = [], []
    # The first turn of each warms up: compiled kernels, files in the page cache.
    for _ in range(repetitions + 1):
        plain.append(_rate(case, case.plain, folder))
        riprap.append(_rate(case, case.riprap, folder))
    plain, riprap = plain[1:], riprap[1:]
    return {
        "adapter": case.name,
        "library": case.library,
        "rows": case.rows,
        "plain_tuples_per_s": middle(plain),
        "plain_spread": spread(plain),
        "tuples_per_s": middle(riprap),
        "spread": spread(riprap),
        "ratio": middle(riprap) / middle(plain),
        "bar": case.bar,
    }


def _rate(case: Case, work: Work, folder: Path) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        began = time.perf_counter()
        rows = work(Path(own))
        seconds = time.perf_counter() - began
        if case.check is not None and work is case.riprap:
            rows = case.check(Path(own))
    if rows != case.rows:
        raise RunError(f"{case.name}: {rows:,} rows of {case.rows:,} came through")
    return rows / seconds


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    described = result["about"]
    rows = [
        [
            f"{line['adapter']}, {line['kind']}",
            line["library"],
            f"{line['plain_tuples_per_s']:,.0f}",
            f"{line['tuples_per_s']:,.0f}",
            "{:,.0f} to {:,.0f}".format(*line["spread"]),
            f"{line['ratio']:.2f}" + ("" if line["ratio"] >= line["bar"] else " (missed)"),
            f"{line['bar']:.1f}",
        ]
        for line in result["adapters"]
    ]
    quick = " A quick run: a smoke test, not a measurement." if described["quick"] else ""
    missing = "".join(f"\n\nNot measured: {name} ({reason})." for name, reason in result["missing"].items())
    return (
        grid(
            [
                "adapter",
                "client library",
                "it alone, tuples/s",
                "Riprap, tuples/s",
                "least to greatest",
                "ratio",
                "bar",
            ],
            rows,
        )
        + f"\n\n{described['date']}; {described['machine']}, load {described['load_before']} before; "
        f"medians of {described['repetitions']} turns.{quick}{missing}"
    )


def _shown(line: dict[str, Any]) -> str:
    return (
        f"{line['adapter']}, {line['kind']}: {line['tuples_per_s']:,.0f} tuples/s, "
        f"{line['ratio']:.2f} of {line['library']} alone"
    )
