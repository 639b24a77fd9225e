"""Run a command with PostgreSQL, Redis and Kafka at hand, as the tests start them.

python benchmarks/with_servers.py riprap bench adapters --json --out benchmarks/results/adapters.json
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.services.kafka import Kafka
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.server import UnavailableError


def main(command: list[str]) -> int:
    """Start what can be started, run the command, and return its exit code."""
    environment = dict(os.environ)
    with contextlib.ExitStack() as stack:
        for name, make, address in (
            ("RIPRAP_BENCH_POSTGRES", Postgres, lambda server: server.url),
            ("RIPRAP_BENCH_REDIS", Redis, lambda server: server.url),
            ("RIPRAP_BENCH_KAFKA", Kafka, lambda server: server.address),
        ):
            try:
                environment[name] = address(stack.enter_context(make()))
            except UnavailableError as reason:
                print(reason, file=sys.stderr)
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
