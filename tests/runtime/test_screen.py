"""A script that calls app.run() has its screen to itself."""

from __future__ import annotations

import re
from pathlib import Path

from tests.runtime.harness import PROGRAMS, Programs, lines_of


def test_nothing_of_spark_is_on_the_screen(programs: Programs, tmp_path: Path) -> None:
    programs.finish(programs.start("quiet.py", tmp_path, {}))

    bad, failed, line, ended = (tmp_path / "stdout").read_text().splitlines()
    assert bad == "bad 0 []"
    assert re.fullmatch(
        r"Custom 'turn' \(.*\) failed at position 1 of source 'in': ZeroDivisionError: .*", failed
    )
    assert re.fullmatch(rf"    {PROGRAMS}/quiet.py:\d+ in on_tuple: self.submit\(.*\)", line)
    assert ended.startswith(
        "riprap.errors.RunError: the run has ended, and the Spark session that it had made with it"
    )

    # All that is there to say: that nothing was left.
    (said,) = (tmp_path / "stderr").read_text().splitlines()
    assert re.fullmatch(
        r"Source 'in': all 2 records are bad, and nothing is left\. The first: .*\. They are in .*", said
    )

    (event,) = (e for e in lines_of(tmp_path / "runs/zero/latest/events.jsonl") if e["event"] == "failed")
    assert event["message"] == f"{failed}\n{line}"
    # Spark's own words are in the run's folder.
    assert line in (tmp_path / "runs/zero/latest/spark.log").read_text()
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_file()] == []
