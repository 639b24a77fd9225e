"""Describe an application: each call adds one operator, checked on the spot, and starts nothing."""

from __future__ import annotations

import dataclasses
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, get_args

import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, UserAggregate, UserFunction, parse_schema
from riprap.graph.builder import Builder
from riprap.graph.checks import NAME
from riprap.graph.graph import Graph, Restart
from riprap.graph.location import Location
from riprap.graph.operator import Operator
from riprap.graph.options import RunOptions, by_name
from riprap.graph.replicas import replicate, replicate_all
from riprap.graph.stream import Stream
from riprap.operators.aggregate import aggregate
from riprap.operators.barrier import barrier
from riprap.operators.custom import custom
from riprap.operators.deduplicate import deduplicate
from riprap.operators.delay import delay
from riprap.operators.functor import functor
from riprap.operators.gate import gate
from riprap.operators.join import join
from riprap.operators.lookup import lookup
from riprap.operators.punctor import punctor
from riprap.operators.sink import sink
from riprap.operators.sort import sort
from riprap.operators.source import clock, source
from riprap.operators.split import split
from riprap.operators.throttle import throttle
from riprap.operators.top import top
from riprap.operators.union import union

if TYPE_CHECKING:
    from riprap.runtime.run import Run

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


class Application(Builder):
    """A dataflow graph under construction.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([{"word": "a"}], "word string"))
    >>> counts = app.aggregate("counts", words, by="word", window=rr.sliding(tuples=10), select="count(*) as n")
    >>> app.sink("out", counts, rr.memory())
    >>> [operator.name for operator in app.graph()]
    ['words', 'counts', 'out']
    """

    # The operators there are: of each the function that adds one.
    source = source
    clock = clock
    functor = functor
    aggregate = aggregate
    join = join
    sort = sort
    top = top
    barrier = barrier
    punctor = punctor
    split = split
    union = union
    delay = delay
    throttle = throttle
    deduplicate = deduplicate
    gate = gate
    lookup = lookup
    custom = custom
    sink = sink
    # Those that run as several replicas.
    replicate = replicate
    replicate_all = replicate_all

    def __init__(self, name: str, within: Builder | None = None) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise GraphError(f"an application's name is letters, digits and '_', got {name!r}")
        super().__init__(name, within)

    def graph(self) -> Graph:
        """Check the application as a whole and return it as a value.

        >>> app = rr.Application("demo")
        >>> app.sink("out", app.source("words", rr.rows([], "word string")), rr.memory())
        >>> app.graph()["words"].schema.names
        ['word']
        """
        open_loops = [name for name, stream in self._loops.items() if stream is None]
        if open_loops:
            raise GraphError(f"loop '{open_loops[0]}' is open: close it with app.close(loop, stream)")
        operators = [
            dataclasses.replace(o, control=tuple(self._loops.get(s) or s for s in o.control))
            if o.control
            else o
            for o in self._operators.values()
        ]
        groups = [
            g if g.operators else dataclasses.replace(g, operators=_inner(operators))
            for g in self._groups.values()
        ]
        return Graph.of(self.name, operators, self._places, self._restarts, self._processes, groups)

    @by_name(RunOptions)
    def run(self, options: RunOptions) -> Run:
        """Run the application on Spark, and return at once. Use the run as a context manager, and wait for it.

        Options are those of :class:`riprap.RunOptions`; :class:`riprap.Run` has an example.
        """
        # The one step from a description to its effect: only here does Spark get imported.
        from riprap.runtime.start import run

        return run(self.graph(), options)

    def composite(
        self,
        name: str,
        build: Callable[Concatenate[Application, Arguments], Made],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Made:
        """Add a sub-graph under a name: ``build`` is called with a place to add operators to, and may be used again.

        Its operators are called ``name.operator``. What it returns, mostly streams, is returned.

        >>> def cleaned(place, words):
        ...     return place.functor("long", words, where="length(word) > 3")
        >>> app = rr.Application("demo")
        >>> words = app.source("words", rr.rows([], "word string"))
        >>> print(app.composite("cleaned", cleaned, words))
        stream 'cleaned.long' (word string)
        """
        location = Location.of_caller()
        inner = Application(name, self)
        if any(o.startswith(inner.prefix) for o in self._operators):
            raise GraphError(
                f"composite '{inner.prefix[:-1]}' ({location}): there is one of that name already"
            )
        return build(inner, *args, **kwargs)

    def place(
        self,
        element: str,
        *operators: Stream | str,
        restart: Restart = "resume",
        process: str | None = None,
    ) -> None:
        """Put operators into a processing element of their own: one Spark query, which fails and restarts by itself.

        Name operators by their streams, or sinks and others by name. ``restart`` says where the element goes on reading
        when it is started again: "resume", where it stopped, or "live", with what comes from then on; what it
        passes over is lost, and counted. ``process`` names a Spark driver process for it, which elements may share, so
        that it can die alone; without it the element is in the main one. That is for ``riprap run``: ``app.run()`` has
        all elements in its own process.

        >>> app = rr.Application("demo")
        >>> words = app.source("words", rr.rows([], "word string"))
        >>> long = app.functor("long", words, where="length(word) > 3")
        >>> app.place("filter", long, restart="live")
        """
        location = Location.of_caller()
        if restart not in get_args(Restart):
            raise GraphError(
                f"place '{element}' ({location}): restart= is 'resume' or 'live', got {restart!r}"
            )
        if not isinstance(element, str) or not NAME.fullmatch(element):
            raise GraphError(f"place at {location}: a name is letters, digits and '_', got {element!r}")
        if process is not None and (not isinstance(process, str) or not NAME.fullmatch(process)):
            raise GraphError(
                f"place '{element}' ({location}): process= is a name of letters, digits and '_', got {process!r}"
            )
        if not operators:
            raise GraphError(f"place '{element}' ({location}): it names no operator")
        for operator in self.named(f"place '{element}' ({location})", operators):
            if self._places.get(operator.name, element) != element:
                raise GraphError(
                    f"place '{element}' ({location}): '{operator.name}' is in '{self._places[operator.name]}' already"
                )
            self._places[operator.name] = element
        self._restarts[element] = restart
        if process is not None and self._processes.setdefault(element, process) != process:
            raise GraphError(
                f"place '{element}' ({location}): it is in process '{self._processes[element]}' already"
            )

    def loop(self, name: str, schema: str | pa.Schema) -> Stream:
        """Give out a stream that is made later, to put on a control port; :meth:`close` says which it is.

        >>> class Records(rr.CustomOperator):
        ...     best = 0
        ...     def on_tuple(self, port, tuple):
        ...         if port == "control":
        ...             self.best = max(self.best, tuple["v"])
        ...         elif tuple["v"] > self.best:
        ...             self.submit(tuple)
        ...     def checkpoint(self):
        ...         return self.best
        ...     def reset(self, saved):
        ...         self.best = saved
        >>> app = rr.Application("demo")
        >>> values = app.source("values", rr.rows([], "v bigint"))
        >>> best = app.loop("best", "v bigint")
        >>> records = app.custom("records", Records, values, schema="v bigint", control=best)
        >>> app.close(best, records)
        """
        location = Location.of_caller()
        if self.taken(self.prefix + name) is not None or self.prefix + name in self._loops:
            raise GraphError(f"loop '{name}' ({location}): the name is taken")
        try:
            parsed = parse_schema(schema) if isinstance(schema, str) else schema
        except ExpressionError as error:
            raise GraphError(f"loop '{name}' ({location}): {error}") from error
        self._loops[self.prefix + name] = None
        return Stream(self.prefix + name, parsed, self.root)

    def close(self, loop: Stream, stream: Stream) -> None:
        """Say which stream a loop is."""
        location = Location.of_caller()
        if loop.name not in self._loops:
            raise GraphError(f"close at {location}: '{loop.name}' is no loop. Make one with app.loop(...)")
        if self._loops[loop.name] is not None:
            raise GraphError(f"close at {location}: loop '{loop.name}' is '{self._loops[loop.name]}' already")
        if loop.schema != stream.schema:
            raise GraphError(f"close at {location}: {loop} was announced, and it is {stream}")
        self._loops[loop.name] = stream.name

    def function(
        self,
        name: str,
        function: Callable[..., pa.Array],
        *,
        returns: str | pa.DataType,
        deterministic: bool = True,
    ) -> None:
        """Register a function over Arrow arrays for use in the expressions of operators added after it. One that draws,
        or asks for the time, says ``deterministic=False``: what comes of it in a consistent region is held for a while.

        >>> import pyarrow.compute as pc
        >>> app = rr.Application("demo")
        >>> app.function("capital", pc.utf8_capitalize, returns="string")
        >>> words = app.source("words", rr.rows([], "word string"))
        >>> print(app.functor("named", words, select="capital(word) as name"))
        stream 'named' (name string)
        """
        location, kind = self._declared("function", name, returns)
        try:
            self.functions[name.lower()] = UserFunction(name, function, kind, deterministic)
        except ExpressionError as error:
            raise GraphError(f"function '{name}' ({location}): returns={returns!r}: {error}") from error

    def aggregate_function(
        self,
        name: str,
        function: Callable[..., pa.Array],
        *,
        returns: str | pa.DataType,
        deterministic: bool = True,
    ) -> None:
        """Register an aggregate: a function that gets a list array a argument (a window an element) and returns a value
        a window, for use in the ``select=`` of aggregates added after it. ``deterministic`` is as for functions.

        >>> import pyarrow.compute as pc
        >>> app = rr.Application("demo")
        >>> app.aggregate_function("held", pc.list_value_length, returns="int")
        >>> words = app.source("words", rr.rows([], "word string"))
        >>> print(app.aggregate("sizes", words, window=rr.sliding(tuples=9), select="held(word) as n"))
        stream 'sizes' (n int)
        """
        location, kind = self._declared("aggregate function", name, returns)
        try:
            self.aggregate_functions[name.lower()] = UserAggregate(name, function, kind, deterministic)
        except ExpressionError as error:
            raise GraphError(
                f"aggregate function '{name}' ({location}): returns={returns!r}: {error}"
            ) from error

    def _declared(self, what: str, name: str, returns: str | pa.DataType) -> tuple[Location, pa.DataType]:
        location = Location.of_caller()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise GraphError(f"{what} at {location}: a name is letters, digits and '_', got {name!r}")
        if name.lower() in self.functions or name.lower() in self.aggregate_functions:
            raise GraphError(f"{what} '{name}' ({location}): there is a function of that name already")
        try:
            kind = parse_schema(f"it {returns}").field(0).type if isinstance(returns, str) else returns
        except ExpressionError as error:
            raise GraphError(f"{what} '{name}' ({location}): returns={returns!r}: {error}") from error
        return location, kind


def _inner(operators: Iterable[Operator]) -> tuple[str, ...]:
    """Name all operators but sources and sinks."""
    return tuple(o.name for o in operators if o.ports and o.outputs)


def load(path: str | Path) -> Application:
    """Load the application that ``file.py:name`` names.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "app.py"
    ...     _ = file.write_text("import riprap as rr; app = rr.Application('demo')")
    ...     rr.load(f"{file}:app").name
    'demo'
    """
    file, _, name = str(path).rpartition(":")
    if not file:
        raise GraphError(f"'{path}' names no application: write file.py:name")
    if not Path(file).is_file():
        raise GraphError(f"'{file}' does not exist (asked for '{path}')")
    globals_of = runpy.run_path(file, run_name="riprap_application")
    value = globals_of.get(name)
    if callable(value) and not isinstance(value, Application):
        value = value()
    if not isinstance(value, Application):
        names = [n for n, v in globals_of.items() if isinstance(v, Application)]
        raise GraphError(f"'{file}' has no application '{name}'; it has: {', '.join(names) or 'none'}")
    return value
