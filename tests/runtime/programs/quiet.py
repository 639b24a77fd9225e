"""What a user's script sees on the screen: what it prints, and what Riprap has to say to people; nothing of Spark."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import riprap as rr


class Reciprocal(rr.CustomOperator):
    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.submit({"r": 1 / tuple["n"]})


def numbers(name: str, feed: str) -> rr.Application:
    app = rr.Application(name)
    source = app.source("in", rr.files(feed, schema="n bigint"))
    app.sink("out", app.custom("turn", Reciprocal, source, schema="r double", stateless=True), f"{name}-out")
    return app


def main() -> None:
    Path("bad.csv").write_text("n\nx\ny\n")
    Path("zero.csv").write_text("n\n4\n0\n")
    for name in ("bad", "zero"):
        try:
            with numbers(name, f"{name}.csv").run(master="local[2]") as run:
                run.wait()
                print(name, run.dataframe("out").count(), run.table("out")["r"].to_pylist())
        except rr.OperatorError as error:
            print(error)
        assert (run.folder / "spark.log").exists()
    try:
        run.dataframe("out")
    except rr.RunError:
        print(traceback.format_exc().splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
