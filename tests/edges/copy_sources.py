"""Copy sources to files as a job says, in a session of its own.

{"sources": {"redis": {"call": "from_redis", "url": "...", ...}}, "out": "...", "options": {"master": "local[1]"}}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.edges.rigs import copying_of, made


def copy_sources(sources: dict[str, dict[str, Any]], out: str, options: dict[str, Any]) -> None:
    app = copying_of({name: made(**described) for name, described in sources.items()}, Path(out))
    with app.run(config={"spark.log.level": "OFF"}, **options) as run:
        run.wait()


if __name__ == "__main__":
    copy_sources(**json.loads(Path(sys.argv[1]).read_text()))
