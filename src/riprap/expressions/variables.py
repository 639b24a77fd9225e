"""Variables that a stateful operator keeps for each key: where they start, and how each tuple changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from riprap.expressions.casts import coerce
from riprap.expressions.coercion import common_type
from riprap.expressions.compiled import Program
from riprap.expressions.errors import EvaluationError, ExpressionError, Misuse, near
from riprap.expressions.loops import write_program
from riprap.expressions.parsing import Binder, Functions, Named, column, parse_items
from riprap.expressions.scope import Scope, ScopeColumn
from riprap.expressions.source import DTYPES
from riprap.expressions.tree import Columns, Expression, columns_of, quoted
from riprap.expressions.types import INTERVAL, NULL, is_decimal, is_numeric, normalise, type_name

Types = Mapping[str, pa.DataType]
_TYPES = f"Variables are {', '.join(type_name(type) for type in DTYPES if type != INTERVAL)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A value kept for each key; `update` is the next one, over the tuple's columns and all variables."""

    name: str
    type: pa.DataType
    initial: Expression
    update: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Variables that every tuple updates, all at once: new values are computed from the old ones."""

    each: tuple[Variable, ...]
    program: Program

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(variable.name, variable.type) for variable in self.each])

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the tuple that the updates read."""
        return columns_of(*(variable.update for variable in self.each)) - set(self.schema.names)

    @property
    def sql(self) -> str:
        """Describe the variables in full: equal texts mean equal states and equal updates."""
        states = [f"{quoted(each.name)} {type_name(each.type)} = {each.initial.sql}" for each in self.each]
        updates = [f"{each.update.sql} as {quoted(each.name)}" for each in self.each]
        return f"{', '.join(states)}; {', '.join(updates)}"

    def initial(self, keys: int) -> dict[str, pa.Array]:
        """Return what the variables of new keys start from."""
        return {each.name: each.initial.evaluate({}, keys) for each in self.each}

    def run(
        self, columns: Columns, code: npt.NDArray[np.int32], before: Mapping[str, pa.Array]
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Update the variables with rows in their order; row i has the key `code[i]`, an index into `before`.

        Return the variables after each row, and after the last one for each key.
        """
        states = [normalise(before[each.name]) for each in self.each]
        for each, state in zip(self.each, states, strict=True):
            if state.type != each.type or len(state) != len(states[0]):
                raise TypeError(
                    f"variable {each.name} before the rows: {len(state)} of {state.type}, "
                    f"not {len(states[0])} of {each.type}"
                )
        after, last = self.program.run(columns, code, states)
        names = self.schema.names
        return dict(zip(names, after, strict=True)), dict(zip(names, last, strict=True))


def parse_variables(
    variables: Mapping[str, str], update: str, scope: Scope, functions: Functions | None = None
) -> Variables:
    """Parse variables, given by the constants they start from, and the list of their updates.

    >>> made = parse_variables(
    ...     {"n": "0", "total": "0e0"},
    ...     "n + 1 as n, total + price as total",
    ...     Scope.of(pa.schema({"price": pa.float64()})),
    ... )
    >>> made.sql
    'n int = 0, total double = 0e0; n + 1 as n, total + price as total'
    >>> rows = {"price": pa.array([2.0, 3.0, 4.0])}
    >>> after, last = made.run(rows, np.array([0, 1, 0], np.int32), made.initial(2))
    >>> after["total"].to_pylist(), last["n"].to_pylist()
    ([2.0, 3.0, 6.0], [2, 1])

    A variable is as wide as its updates need: 0 that grows by a bigint is a bigint. One that has no update
    keeps its value.
    """
    _check_names(variables, update, scope)
    initials = {name: _initial(name, each, functions or {}) for name, each in variables.items()}
    updates = _Updates(text=update, scope=scope, functions=functions or {}, initials=initials)
    types = updates.settled_types()
    typed = tuple(
        Variable(
            name=name,
            type=types[name],
            initial=coerce(initials[name], types[name]),
            update=coerce(expression, types[name]),
        )
        for name, expression in updates.bound(types).items()
    )
    try:
        program = write_program([(each.name, each.update) for each in typed])
    except Misuse as misuse:
        raise ExpressionError(update, misuse.problem, misuse.hint) from None
    return Variables(each=typed, program=program)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Updates:
    """The text of the updates, bound anew whenever a variable turns out to need a wider type."""

    text: str
    scope: Scope
    functions: Functions
    initials: Mapping[str, Expression]

    def settled_types(self) -> Types:
        """Widen variables to what their updates compute, until nothing changes."""
        types: Types = {name: initial.type for name, initial in self.initials.items()}
        # A type widens at most seven times. Only decimals, which are refused, may gain a digit again and again.
        for _ in range(8 * len(types)):
            bound = self.bound(types)
            wider = {name: self._wider(name, types[name], bound[name]) for name in types}
            if wider == types:
                break
            types = wider
        for name, type in types.items():
            if is_decimal(type):
                raise self._error(
                    f"variable {name} is {type_name(type)}, which a variable cannot be",
                    "Start from a double, such as 0e0 or cast(0 as double), or cast the update to double",
                )
            if type not in DTYPES or type == INTERVAL:
                raise self._error(f"variable {name} is {type_name(type)}, which a variable cannot be", _TYPES)
        return types

    def bound(self, types: Types) -> dict[str, Expression]:
        """Build the update of every variable; one without an update stays as it is."""
        own = [ScopeColumn(source="", name=name, type=type) for name, type in types.items()]
        scope = Scope(entries=(*self.scope.entries, *own), shared=self.scope.shared)
        binder = Binder(text=self.text, scope=scope, functions=self.functions)
        updates: dict[str, Expression] = {}
        for item in parse_items(self.text):
            named = binder.named(item)
            name = self._variable(binder, item, named)
            if name in updates:
                raise binder.error(item, f"two updates of variable {name}", "Keep one of them")
            updates[name] = named.expression
        return {entry.name: updates.get(entry.name, column(entry)) for entry in own}

    def _variable(self, binder: Binder, item: exp.Expression, named: Named) -> str:
        if named.name in self.initials:
            return named.name
        for name in self.initials:
            if name.lower() == named.name.lower():
                return name
        raise binder.error(
            item,
            f"no variable {named.name!r} to update with {named.expression.sql}",
            near(named.name, self.initials),
        )

    def _wider(self, name: str, type: pa.DataType, update: Expression) -> pa.DataType:
        if update.type == type:
            return type
        if not is_numeric(type) or not is_numeric(update.type):
            raise self._error(
                f"variable {name} starts as {type_name(type)}, its update is {type_name(update.type)}: {update.sql}",
                f"Cast the initial value, such as cast(null as {type_name(update.type)}), or the update",
            )
        return common_type([replace(self.initials[name], type=type), update])

    def _error(self, problem: str, hint: str) -> ExpressionError:
        return ExpressionError(self.text, problem, hint)


def _check_names(variables: Mapping[str, str], update: str, scope: Scope) -> None:
    if not variables:
        raise ExpressionError(
            update, "there are no variables", "Give each a name and a constant to start from"
        )
    taken = {entry.key.lower(): f"column {entry.key}" for entry in scope.entries}
    taken |= {entry.name.lower(): f"column {entry.key}" for entry in scope.entries}
    for name in variables:
        if not name:
            raise ExpressionError(update, "a variable has no name")
        if name.lower() in taken:
            raise ExpressionError(
                update, f"variable {name} has the name of {taken[name.lower()]}", "Rename the variable"
            )
        taken[name.lower()] = f"variable {name}"


def _initial(name: str, text: str, functions: Functions) -> Expression:
    items = parse_items(text)
    if len(items) != 1 or isinstance(items[0], exp.Alias):
        raise ExpressionError(text, f"variable {name} starts from one expression without a name")
    binder = Binder(text=text, scope=Scope(entries=()), functions=functions)
    for reference in items[0].find_all(exp.Column):
        raise binder.error(
            reference, f"variable {name} starts from column {reference.sql('spark')}", "Start from a constant"
        )
    initial = binder.bind(items[0])
    if initial.type == NULL:
        raise ExpressionError(text, f"variable {name} is null without a type", "Write cast(null as double)")
    try:
        initial.evaluate({}, 1)
    except EvaluationError as error:
        raise ExpressionError(text, f"variable {name} has no initial value: {error}") from None
    return initial
