"""Whoever gets the results of a run, with a clock of their own: a server that is sent lines, a reader of a folder."""

from __future__ import annotations

import io
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

SEEN = "seen"
_LOOK_SECONDS = 0.002
_RECEIVE_BYTES = 1 << 20


class Consumer(Protocol):
    """Takes results while a run goes on, as a context manager; on a port of this host, if it has one."""

    port: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def table(self) -> pa.Table:
        """Return what came, with the moment at which each row was seen."""


class OwnRecord:
    """Takes what a function inside the run's process has seen, which left it in a folder at the end."""

    port = 0

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def table(self) -> pa.Table:
        return pq.read_table(self._folder)


class FolderWatch:
    """Looks for new files in a folder every two milliseconds, those whose names match a pattern."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = re.compile(pattern)
        self._seen: dict[Path, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        changed = -1
        while not self._over.wait(_LOOK_SECONDS):
            try:
                now = os.stat(self._folder).st_mtime_ns
            except FileNotFoundError:
                continue
            # The kernel's clock ticks every few milliseconds: two changes of one tick look like one.
            if now != changed or time.time_ns() - now < 50_000_000:
                changed = now
                self._list()

    def _list(self) -> None:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                if path not in self._seen and self._pattern.fullmatch(entry.name):
                    self._seen[path] = time.time()

    def moments(self) -> list[float]:
        """Return when each file was seen first, oldest first; while watching goes on, too."""
        return list(self._seen.values())

    def files(self) -> list[tuple[Path, float]]:
        """Return the files, too; some may be gone by now."""
        return list(self._seen.items())


class FolderReader(FolderWatch):
    """Reads the Parquet files of a file sink, once it is over."""

    port = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, r"part-.*\.parquet")

    def table(self) -> pa.Table:
        return pa.concat_tables(with_moment(pq.read_table(p), seen) for p, seen in self._seen.items())


class LineServer:
    """A server that takes one connection and reads JSON lines from it to their end."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._received: list[tuple[float, bytes]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        # Wakes up a thread that still waits for a connection.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    def _listen(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(_RECEIVE_BYTES):
                self._received.append((time.time(), data))

    def table(self) -> pa.Table:
        rows = pyarrow.json.read_json(io.BytesIO(b"".join(data for _, data in self._received)))
        # A row is seen when the end of its line is.
        lines = [data.count(b"\n") for _, data in self._received]
        return rows.append_column(SEEN, pa.array(np.repeat([moment for moment, _ in self._received], lines)))


def with_moment(table: pa.Table, moment: float) -> pa.Table:
    """Say of every row when it was seen."""
    return table.append_column(SEEN, pa.array(np.full(table.num_rows, moment)))
