"""A driver process: a Spark session and some of a run's elements, told by the supervisor what to do.

python -m riprap.runtime.supervision.driver IN OUT          the descriptors of its two pipes

    supervisor -> driver                                          driver -> supervisor
    open    folder, master, config, paths, log, warm              ready       master, java, cores
    start   process, elements, aside, resume, how to run            not started error, message
    retry   element                                               started     element, restore, lost, batch
    set aside  element, until it is retried                       failed      element, error, message, batch, final
    stop    finish what is under way; or, resume, leave it        caught up   element
    halt    between two batches, at once                          beat        elements: {name: a Pulse}, quiet: seconds
                                                                              since the JVM has answered
                                                                  ended       element

A driver whose pipe is closed has lost its supervisor, and ends itself.
"""

from __future__ import annotations

import io
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from riprap.compiler import compile_graph
from riprap.errors import RiprapError
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.source import Source
from riprap.ownership import read_file
from riprap.runtime.crew import Crew, Report
from riprap.runtime.folder import RunFolder
from riprap.runtime.kafka import BrokerWatch, check_connector, session_config
from riprap.runtime.launch import Launch
from riprap.runtime.link import Link, Message
from riprap.runtime.precompilation import Precompilation
from riprap.runtime.resident.slots import share_of
from riprap.runtime.session import make_session
from riprap.runtime.site import Housing
from riprap.runtime.stage import Pulse
from riprap.runtime.start import hire_early, layout_of, spark_of, stages_of
from riprap.runtime.supervision.failures import SPARK_GONE
from riprap.runtime.supervision.presence import announce, withdraw
from riprap.runtime.supervision.warm_up import warm_up

BEAT_SECONDS = 0.1
_POLL_SECONDS = 0.05


class SparkGoneError(Exception):
    """The JVM of this process does not answer, or has stopped Spark: nothing can be tried again here."""


def check_spark(session: SparkSession) -> None:
    """Raise an error unless there is a Spark to work with. A JVM that hangs gives no answer, and no error."""
    try:
        stopped = session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError) as error:
        raise SparkGoneError from error
    if stopped:
        raise SparkGoneError


def report_by(link: Link, session: SparkSession) -> Report:
    """Tell the supervisor what an element has come to; without Spark it is the process that has failed."""

    def report(what: str, **details: Any) -> None:
        if what == "failed":
            check_spark(session)
        link.send(what, **details)

    return report


class Driver:
    """The main loop of a driver process."""

    def __init__(self, link: Link, inbox: queue.Queue[Message], opening: Message) -> None:
        self._link = link
        self._inbox = inbox
        self._opening = opening
        self._folder = RunFolder(Path(opening["folder"]), time.time)
        self._crew: Crew | None = None
        self._brokers: BrokerWatch | None = None
        self._process = ""
        self._lock: IO[str] | None = None
        self._halting = False
        self._answered = 0.0
        self._pulses: dict[str, Pulse] = {}

    def serve(self) -> None:
        """Make a session, then do what the supervisor says until it says to halt."""
        loaded = self._load()
        if loaded is None:
            return
        graph, options = loaded
        compiling = Precompilation()
        session = self._session(graph)
        if session is None:
            return
        compiling.tell(self._folder.event)
        if self._opening["warm"]:
            warm_up(session, self._folder.path)
        self._link.send("ready", cores=session.sparkContext.defaultParallelism, **spark_of(session))
        self._answered = time.monotonic()
        threading.Thread(target=self._watch_spark, args=(session,), name="watch Spark", daemon=True).start()
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        while True:
            message = self._next()
            match message:
                case {"say": "start"}:
                    self._start(graph, options, session, message)
                case {"say": "retry", "element": element} if self._crew is not None:
                    self._crew.retry(element)
                case {"say": "set aside", "element": element} if self._crew is not None:
                    self._crew.set_aside(element)
                case {"say": "stop", "resume": resume} if self._crew is not None:
                    self._crew.stop(resume=resume)
                case {"say": "halt"}:
                    break
            if self._crew is not None:
                self._crew.watch()
        self._halt(session)

    def _load(self) -> tuple[Graph, RunOptions] | None:
        try:
            loaded: tuple[Graph, RunOptions] = cloudpickle.loads(
                read_file(self._folder.path / "graph.pickle")
            )
        except Exception as error:
            why = f"the application cannot be loaded in a driver process: {type(error).__name__}: {error}"
            self._link.send("not started", error="GraphError", message=why)
            return None
        return loaded

    def _session(self, graph: Graph) -> SparkSession | None:
        try:
            config = session_config(graph, self._opening["config"])
            log = Path(self._opening["log"])
            session = make_session(self._opening["master"], config, log, elements=len(layout_of(graph).plans))
            check_connector(session, graph)
        except RiprapError as error:
            self._link.send("not started", error=type(error).__name__, message=str(error))
        except Exception as error:
            self._link.send("not started", error="RunError", message=f"Spark did not start: {error}")
        else:
            return session
        return None

    def _next(self) -> Message:
        try:
            return self._inbox.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            return {}

    def _start(self, graph: Graph, options: RunOptions, session: SparkSession, order: Message) -> None:
        hire_early(graph)
        housing = Housing(**order["housing"])
        options = replace(options, store=order["store"])
        own = [plan for plan in layout_of(graph).plans if plan.name in order["elements"]]
        share = share_of(session, order["tasks"], stages_of(own), resident=options.resident)
        if options.resident is None:
            share.tell(self._folder.event, order["tasks"])
        layout = compile_graph(graph, buckets=order["buckets"], tasks=share.tasks)
        launch = Launch(
            graph=graph,
            session=session,
            folder=self._folder,
            resume=False,
            options=options,
            stays=share.stays,
        )
        plans = [plan for plan in layout.plans if plan.name in order["elements"]]
        folders = (housing.state, housing.results)
        pages = {plan.name: [str(Path(folder) / plan.name) for folder in folders] for plan in plans}
        self._process = order["process"]
        self._lock = announce(self._folder.path, self._process, pages)
        sources = [s for plan in plans for s in plan.graph.of_kind(Source)]
        whole = [graph[s.name] for s in sources]
        crew = Crew(launch, plans, housing, report_by(self._link, session))
        self._crew = crew
        crew.begin(set(order["elements"]) - set(order["aside"]), resume=order["resume"])
        # Elements have looked for their brokers before they started.
        self._brokers = BrokerWatch((s for s in whole if isinstance(s, Source)), self._folder.event)
        if order["stopping"] is not None:
            crew.stop(resume=order["stopping"] == "resume")

    def _beat(self) -> None:
        """Give signs of life. They do not pass through the JVM, which may stand still for a while."""
        while not self._halting:
            quiet = time.monotonic() - self._answered
            self._link.send("beat", elements=self._pulses, quiet=quiet)
            self._pulses = {}
            time.sleep(BEAT_SECONDS)

    def _watch_spark(self, session: SparkSession) -> None:
        """See whether there is a Spark; one that hangs gives no answer, which the signs of life say."""
        while not self._halting:
            try:
                check_spark(session)
                self._pulses = self._crew.pulse() if self._crew is not None else {}
            except SparkGoneError:
                if not self._halting:
                    os._exit(SPARK_GONE)
            except Exception:
                # An element that is being started or ended has no answer.
                pass
            self._answered = time.monotonic()
            time.sleep(BEAT_SECONDS)

    def _halt(self, session: SparkSession) -> None:
        self._halting = True
        if self._crew is not None:
            self._crew.halt()
        if self._brokers is not None:
            self._brokers.stop()
        if self._lock is not None:
            withdraw(self._folder.path, self._process)
        session.stop()


class _Stdout(io.TextIOWrapper):
    """Where users' functions print. When nobody reads it any more, they go on all the same."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._fall_silent()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def _listen(link: Link, inbox: queue.Queue[Message]) -> None:
    for message in link.messages():
        inbox.put(message)
    # The supervisor is gone. The JVM is in our process group, and must not go on without us.
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    """Serve until told to halt."""
    incoming, outgoing = int(sys.argv[1]), int(sys.argv[2])
    for number in (incoming, outgoing):
        os.set_inheritable(number, False)
    sys.stdout = _Stdout(sys.stdout.buffer, sys.stdout.encoding, line_buffering=sys.stdout.isatty())
    link = Link(incoming, outgoing)
    inbox: queue.Queue[Message] = queue.Queue()
    threading.Thread(target=_listen, args=(link, inbox), name="listen", daemon=True).start()
    opening = inbox.get()
    sys.path[:] = [*opening["paths"], *(p for p in sys.path if p not in opening["paths"])]
    try:
        Driver(link, inbox, opening).serve()
    except SparkGoneError:
        os._exit(SPARK_GONE)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of Spark's gateway may linger; all that counts is on record.
    os._exit(0)


if __name__ == "__main__":
    main()
