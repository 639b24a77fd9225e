"""The plan Spark makes for an application's query, without running it."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

from riprap.cli.spark_log import spark_session
from riprap.compiler import Layout


def spark_plan(layout: Layout, *, master: str | None) -> str:
    """Return Spark's plans of every element's query, from parsed to physical. This starts a session."""
    from riprap.runtime.query import answers_of
    from riprap.runtime.settings import Setting, save_setting
    from riprap.runtime.site import Site
    from riprap.runtime.task import save_plan
    from riprap.state.ledger import Ledger
    from riprap.state.pages import PageStore

    with tempfile.TemporaryDirectory(prefix="riprap-explain-") as name:
        folder = Path(name)
        # Spark asks the source for its schema only, so none of these places needs to exist.
        site = Site(
            ledger=Ledger(str(folder / "ledger")),
            pages=PageStore(str(folder / "state"), 0),
            results=PageStore(str(folder / "results"), 0),
            key=str(folder / "key"),
        )
        texts = []
        with spark_session(master, folder / "spark.log", layout.graph) as session:
            for number, plan in enumerate(layout.plans):
                setting = Setting(
                    plan=str(folder / f"plan-{number}.pickle"),
                    sources=str(folder / "sources"),
                    folder=str(folder),
                    tables=str(folder / "tables"),
                    site=site,
                    start=0,
                    batch_rows=1,
                    finite=True,
                    flush=False,
                    rates={},
                )
                save_plan(Path(setting.plan), plan)
                save_setting(folder / f"setting-{number}.json", setting)
                query = answers_of(session, layout.graph, plan, folder / f"setting-{number}.json")
                printed = io.StringIO()
                # explain() is the one way that also plans a query which is not running, and it only prints.
                with contextlib.redirect_stdout(printed):
                    query.explain(extended=True)
                title = f"{plan.name}\n" if len(layout.plans) > 1 else ""
                texts.append(title + printed.getvalue().strip())
        return "\n\n".join(texts)
