"""Make a program that fails smaller: leave out whatever is not needed for it to fail in the same way."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.graphs.model import Operator
from tests.graphs.program import Circumstances, Program, check, meaning

from riprap.compiler import compile_graph
from riprap.errors import GraphError

Case = tuple[Program, Circumstances]
# Seconds to spend on it.
PATIENCE = 60


def verdict(program: Program, around: Circumstances) -> str | None:
    """Run a program; say how it fails, None if it does not. A placement may be impossible."""
    graph = program.application().graph()
    try:
        compile_graph(graph, buckets=1, tasks=1)
        check(program, around)
    except GraphError as error:
        return "cannot be placed" if program.places else f"is refused: {error}"
    except AssertionError:
        return "puts out something else"
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        line = traceback.extract_tb(error.__traceback__)[-1]
        return f"raises {type(error).__name__} in {Path(line.filename).name}, {line.name}"
    return None


def explain(program: Program, around: Circumstances, found: str) -> str:
    """Say how the smallest program that can be found fails."""
    program, around = shrink(program, around, found)
    why = "but not always"
    try:
        check(program, around)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return f"it {found}: {why}\n\n{written(program, around)}"


def shrink(program: Program, around: Circumstances, found: str) -> Case:
    """Take away as long as it fails in the same way."""
    end = time.monotonic() + PATIENCE
    smaller: Case | None = (program, around)
    while smaller is not None:
        program, around = smaller
        smaller = next((case for case in _smaller(program, around) if _fails(case, found, end)), None)
    return program, around


def _fails(case: Case, found: str, end: float) -> bool:
    if time.monotonic() > end or not case[0].sinks:
        return False
    try:
        meaning(case[0])
        return verdict(*case) == found
    except Exception:
        # What was taken away is missing elsewhere.
        return False


def _smaller(program: Program, around: Circumstances) -> Iterator[Case]:
    yield from ((program, less) for less in _plainer(around))
    for part in ("places", "composites"):
        if getattr(program, part):
            yield replace(program, **{part: ()}), around
    for number, sink in enumerate(program.sinks):
        if len(program.sinks) > 1:
            yield _connected(replace(program, sinks=(sink,))), around
        for stream in sink if len(sink) > 1 else ():
            fewer = tuple(s for s in sink if s != stream)
            yield _connected(replace(program, sinks=_put(program.sinks, number, fewer))), around
    for number in range(len(program.operators)):
        yield from ((_connected(less), around) for less in _without(program, number))
    for number, source in enumerate(program.sources):
        for rows in _fewer(source.rows):
            yield replace(program, sources=_put(program.sources, number, replace(source, rows=rows))), around
    for number, operator in enumerate(program.operators):
        for less in _simpler(operator):
            yield _connected(replace(program, operators=_put(program.operators, number, less))), around
    for number, source in enumerate(program.sources):
        for column in range(1, len(source.schema)):
            rows = tuple(_cut(row, column) for row in source.rows)
            less = replace(source, schema=_cut(source.schema, column), rows=rows)
            yield replace(program, sources=_put(program.sources, number, less)), around


def _plainer(around: Circumstances) -> Iterator[Circumstances]:
    plain = Circumstances()
    for part in ("held_back", "tasks", "ends"):
        if getattr(around, part) != getattr(plain, part):
            yield replace(around, **{part: getattr(plain, part)})
    for number in range(len(around.ends)):
        yield replace(around, ends=_cut(around.ends, number), tasks=_cut(around.tasks, number))
    for number, back in enumerate(around.held_back):
        if back:
            yield replace(around, held_back=_put(around.held_back, number, ()))
    yield from (replace(around, buckets=fewer) for fewer in (1, 2) if fewer < around.buckets)


def _without(program: Program, number: int) -> Iterator[Program]:
    """Leave out an operator, and let those after it read one of its inputs; or leave out a stream of its ports."""
    operator = program.operators[number]
    rest = _cut(program.operators, number)
    for stream in dict.fromkeys(s for port in operator.ports for s in port):
        instead = dict.fromkeys(operator.outputs, stream)
        operators = tuple(replace(o, ports=tuple(_renamed(port, instead) for port in o.ports)) for o in rest)
        sinks = tuple(_renamed(sink, instead) for sink in program.sinks)
        yield replace(program, operators=operators, sinks=sinks)
    for place, port in enumerate(operator.ports):
        for stream in port if len(port) > 1 else ():
            fewer = _put(operator.ports, place, tuple(s for s in port if s != stream))
            yield replace(program, operators=_put(program.operators, number, replace(operator, ports=fewer)))


def _simpler(operator: Operator) -> Iterator[Operator]:
    plain: dict[str, Any] = {"where": None, "select": None, "emit": None, "outer": "inner"}
    for part, value in plain.items():
        if getattr(operator, part, value) != value:
            yield replace(operator, **{part: value})
    if getattr(operator, "variables", ()):
        yield replace(operator, variables=(), by=())
    for part in ("select", "calls", "by", "order"):
        value = getattr(operator, part, None)
        if isinstance(value, tuple):
            yield from (replace(operator, **{part: _cut(value, number)}) for number in range(len(value)))


def _connected(program: Program) -> Program:
    """Leave out what has no input any more, or reaches no sink."""
    made = {s.name for s in program.sources}
    operators = []
    for operator in program.operators:
        if all(s in made for port in operator.ports for s in port):
            operators.append(operator)
            made.update(operator.outputs)
    sinks = [tuple(s for s in sink if s in made) for sink in program.sinks]
    read = {s for sink in sinks for s in sink}
    for operator in reversed(operators):
        if read.intersection(operator.outputs):
            read.update(s for port in operator.ports for s in port)
    kept = tuple(o for o in operators if read.intersection(o.outputs))
    heard = any(o.clocked for o in kept)
    names = {o.name for o in kept}
    places = [(element, tuple(n for n in placed if n in names)) for element, placed in program.places]
    return Program(
        sources=tuple(s for s in program.sources if (heard if s.tick is not None else s.name in read)),
        operators=kept,
        sinks=tuple(sink for sink in sinks if sink),
        places=tuple((element, placed) for element, placed in places if placed),
        composites=tuple(c for c in program.composites if c in names),
    )


def _fewer(rows: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    size = len(rows)
    while size:
        yield from (rows[:start] + rows[start + size :] for start in range(0, len(rows), size))
        size //= 2


def _cut(values: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    return values[:number] + values[number + 1 :]


def _put(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])


def _renamed(streams: tuple[str, ...], instead: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(instead.get(s, s) for s in streams))


def written(program: Program, around: Circumstances) -> str:
    """Write a case as Python."""
    sources = "".join(f"        {source!r},\n" for source in program.sources)
    operators = "".join(f"        {operator!r},\n" for operator in program.operators)
    rest = f"sinks={program.sinks!r}, places={program.places!r}, composites={program.composites!r}"
    return f"Program(\n    sources=(\n{sources}    ),\n    operators=(\n{operators}    ),\n    {rest},\n)\n{around!r}"
