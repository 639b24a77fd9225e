"""The plan Spark makes where it reads an application's sources, without running it."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

from riprap.cli.spark_log import spark_session
from riprap.compiler import Layout


def spark_plan(layout: Layout, *, master: str | None) -> str:
    """Return, for every element, Spark's plans from parsed to physical, or that it has none. This starts a session."""
    from riprap.runtime.ingest import answers_of

    with tempfile.TemporaryDirectory(prefix="riprap-explain-") as name:
        texts = []
        with spark_session(master, Path(name) / "spark.log", layout.graph) as session:
            for plan in layout.plans:
                title = f"{plan.name}\n" if len(layout.plans) > 1 else ""
                if not plan.ingests:
                    texts.append(f"{title}A job of {plan.tasks} tasks that stay: Spark has nothing to plan.")
                    continue
                printed = io.StringIO()
                # explain() is the one way that also plans a query which is not running, and it only prints. Nothing
                # runs, so that the element's setting need not exist.
                with contextlib.redirect_stdout(printed):
                    answers_of(session, layout.graph, plan, Path(name) / "setting.json", 1).explain(
                        extended=True
                    )
                texts.append(title + printed.getvalue().strip())
        return "\n\n".join(texts)
