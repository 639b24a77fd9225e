"""Number the rows of a server, which a thread fetches ahead of the batches."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from riprap.adapters.retrying import Retry, Tell
from riprap.errors import ConnectionLost, OperatorError, RiprapError, RunError
from riprap.feeds.fetch_stop import FetchStop
from riprap.feeds.quarantine import set_aside
from riprap.feeds.segments import FeedSegment, SegmentLog
from riprap.graph import connectors
from riprap.graph.connectors import Cursor, Fetched
from riprap.kernels.user_code import FAILURES, describe
from riprap.operators.source import Source
from riprap.state.leases import lock

_POLL_SECONDS = 0.1
# How many batches are fetched ahead of the one at hand.
_BATCHES_AHEAD = 3
# A server that hung up without a word is back when it says something, or has not hung up for so long.
_STANDS_SECONDS = 5.0
# How long a process of a driver that is gone may take to end.
_OTHERS_SECONDS = 30.0
# How long to wait for the thread when it is to end: a server may take its time to answer.
_END_SECONDS = 5.0


class FetchedFeed:
    """The rows of a server, fetched by a thread while batches go on."""

    def __init__(
        self, source: Source, folder: Path, quarantine: Path, *, finite: bool, batch_rows: int, tell: Tell
    ) -> None:
        connector = source.connector
        assert isinstance(connector, connectors.Source)
        self._what = f"source '{source.name}' ({source.location})"
        self._tell = tell
        try:
            self._fetcher = connector.fetcher(tell)
        except RiprapError:
            raise
        except FAILURES as error:
            raise OperatorError(f"{self._what} failed to make its fetcher: {describe(error)}") from error
        self._lock = _hold(folder, self._what)
        try:
            self.log = SegmentLog(folder)
        except BaseException:
            os.close(self._lock)
            raise
        self._source = source
        self._connector = connector
        self._quarantine = quarantine
        self._finite = finite
        # Such a source is a connection that ends when the server closes it; others end when they have no more for now.
        self._forgets = connector.PROMISE.word == "forgets"
        self._leaving = FetchStop(folder)
        self._left = False
        self._hung_up = False
        self._ahead = _BATCHES_AHEAD * batch_rows
        self._closed = threading.Event()
        self._retry = Retry(f"{self._what}, {connector}", connector.patience, tell, sleep=self._pause)
        self._number = len(self.log.segments)
        self._taken = 0
        self._room = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def upto(self, start: int, rows: int) -> int:
        if start > self.log.rows:
            raise RunError(
                f"{self._what}: {start:,} rows are on record, and the list in {self.log.folder} has {self.log.rows:,}: "
                "others would get their numbers. Put the folder back from a copy, or start a new run"
            )
        self._taken = start
        self._room.set()
        if self._thread is None and not self.ended:
            self._thread = threading.Thread(target=self._run, name=f"fetch {self._source.name}", daemon=True)
            self._thread.start()
        end = min(self.log.rows, start + rows)
        if end == start and self._failure is not None:
            raise self._failure
        return end

    def find(self, end: int) -> None:
        # Nothing to do: what an earlier process saw is spooled.
        return

    def ends_file(self, end: int) -> bool:
        # What a server has is in no files.
        return False

    def release(self, offset: int) -> None:
        # The row before the offset stays: the next one's position must not be smaller.
        while self.log.segments and self.log.segments[0].end < offset and len(self.log.segments) > 1:
            Path(self.log.segments.pop(0).path).unlink(missing_ok=True)

    def close(self) -> None:
        self._closed.set()
        self._room.set()
        if self._thread is None:
            os.close(self._lock)
        else:
            # It lets go of the folder itself: nobody else may number rows before it has ended.
            self._thread.join(_END_SECONDS)

    @property
    def over(self) -> bool:
        return self._left or self.ended

    @property
    def ended(self) -> bool:
        return self._finite and self.log.end is not None

    def fix(self) -> None:
        self._finite = True

    def _run(self) -> None:
        try:
            while not self._is_to_end and not self._read_all():
                self._closed.wait(_POLL_SECONDS)
            if self._leaving.asked:
                self._let_go()
                # The list says nothing of it: the input has not ended, and whoever takes the run up reads on.
                self._left = True
                self._leaving.answer(self.log.rows)
        except BaseException as error:
            # For the thread that asks for rows: it is raised there.
            self._failure = error
        finally:
            self._let_go()
            os.close(self._lock)

    @property
    def _is_to_end(self) -> bool:
        return self._closed.is_set() or self._leaving.asked

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def _read_all(self) -> bool:
        """Fetch what there is; return whether that is all there is going to be."""
        cursor = self.log.segments[-1].cursor if self.log.segments else None
        began, brought = time.monotonic(), False
        try:
            for fetched in self._fetch(cursor):
                brought = brought or fetched is not None
                if brought or not self._hung_up or time.monotonic() - began >= _STANDS_SECONDS:
                    self._works()
                if fetched is not None:
                    self._keep(fetched)
                if self._closed.is_set() or (fetched is None and self._leaving.asked):
                    return True
            if self._forgets and not self._finite and not brought:
                self._hung_up = True
                raise ConnectionLost("closed by the server")
        except ConnectionLost as error:
            self._let_go()
            if self._is_to_end:
                return True
            self._retry.lost(error)
            return False
        self._works()
        if self._finite:
            self.log.finish()
        return self._finite

    def _let_go(self) -> None:
        """Close the connection; one that is gone may fail even at that, which is then nothing new."""
        try:
            self._fetcher.close()
        except FAILURES as error:
            self._tell("warning", what=self._what, message=f"failed to close: {describe(error)}")

    def _works(self) -> None:
        self._hung_up = False
        self._retry.works()

    def _fetch(self, cursor: Cursor) -> Iterator[Fetched | None]:
        try:
            for fetched in self._fetcher.fetch(cursor):
                if fetched is not None and fetched.table.schema != self._connector.schema:
                    raise RunError(f"it fetched '{fetched.table.schema}', which is not its schema")
                yield fetched
        except RunError as error:
            raise RunError(f"{self._what}: {error}") from error
        except (ConnectionLost, RiprapError):
            raise
        except FAILURES as error:
            raise OperatorError(f"{self._what} failed to fetch: {describe(error)}") from error

    def _keep(self, fetched: Fetched) -> None:
        number = self._number
        set_aside(self._source, self._quarantine, number, fetched.bad)
        path = self.log.spool(number, fetched.table)
        self.log.add(
            FeedSegment(
                file="fetched",
                path=str(path),
                kind="arrow",
                start=self.log.rows,
                rows=fetched.table.num_rows,
                bad=len(fetched.bad),
                cursor=fetched.cursor,
            )
        )
        self._number += 1
        while self.log.rows - self._taken > self._ahead and not self._is_to_end:
            self._room.wait(_POLL_SECONDS)
            self._room.clear()


def _hold(folder: Path, what: str) -> int:
    """Wait until nobody else fetches into a folder, and keep others from it for as long as this process lives.

    A process that fetches outlives the driver it worked for by a moment, and would go on numbering rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder / "fetching.lock", os.O_CREAT | os.O_RDWR, 0o600)
    if not lock(held, wait=_OTHERS_SECONDS):
        os.close(held)
        raise RunError(
            f"{what}: another process still fetches into {folder}. End it, and take the run up again"
        )
    return held
