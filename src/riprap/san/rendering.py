"""Turn code of the small language into Python that both Numba and the interpreter run, with the same outcome.

Places are entries of an array of integers, parameters of one of floats. Where Python and Numba would differ the text
says what is meant: operands of ``and`` are conditions, a power is a float, what is assigned to a place must be whole.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from typing import Literal

from riprap.san.code import BINARY, COMPARE, dotted, expression, read_by, written_by

CodeType = Literal["int", "float", "bool"]
NameTable = Mapping[str, tuple[str, CodeType]]  # what a name is in the text, and of which kind

_FUNCTIONS = {name: f"math.{name}" for name in ("floor", "ceil", "exp", "log", "sqrt")}


def render_condition(node: ast.expr, names: NameTable) -> str:
    """Return the Python of an expression that is true or false.

    >>> render_condition(expression("n > 2 and k"), {"n": ("m[0]", "int"), "k": ("p[0]", "float")})
    '((m[0] > 2) and (p[0] != 0))'
    """
    text, kind = _render(node, names)
    return text if kind == "bool" else f"({text} != 0)"


def render_float(node: ast.expr, names: NameTable) -> str:
    """Return the Python of an expression that is a float."""
    text, kind = _number(node, names)
    return text if kind == "float" else f"float({text})"


def _number(node: ast.expr, names: NameTable) -> tuple[str, CodeType]:
    """Render what is to be reckoned with: Numba does not always take a condition for a number."""
    text, kind = _render(node, names)
    return (f"(1 if {text} else 0)", "int") if kind == "bool" else (text, kind)


def _render(node: ast.expr, names: NameTable) -> tuple[str, CodeType]:
    match node:
        case ast.Constant(value=value):
            kind: CodeType = (
                "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
            )
            return ("math.inf" if value == math.inf else repr(value)), kind
        case ast.Name() | ast.Attribute():
            return names[dotted(node)]
        case ast.BinOp(left=left, op=op, right=right):
            (a, one), (b, other) = _number(left, names), _number(right, names)
            if isinstance(op, ast.Pow):
                return f"(float({a}) ** {b})", "float"
            whole = "float" not in (one, other) and not isinstance(op, ast.Div)
            return f"({a} {BINARY[type(op)]} {b})", "int" if whole else "float"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"(not {render_condition(operand, names)})", "bool"
        case ast.UnaryOp(op=op, operand=operand):
            text, kind = _render(operand, names)
            return (
                f"({'-' if isinstance(op, ast.USub) else '+'}{text})",
                "float" if kind == "float" else "int",
            )
        case ast.BoolOp(op=op, values=values):
            word = " and " if isinstance(op, ast.And) else " or "
            return f"({word.join(render_condition(v, names) for v in values)})", "bool"
        case ast.Compare(left=left, ops=ops, comparators=others):
            parts = "".join(
                f" {COMPARE[type(o)]} {_number(v, names)[0]}" for o, v in zip(ops, others, strict=True)
            )
            return f"({_number(left, names)[0]}{parts})", "bool"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            (a, one), (b, other) = _number(body, names), _number(orelse, names)
            kind = "float" if "float" in (one, other) else "int"
            return f"({a} if {render_condition(test, names)} else {b})", kind
        case ast.Call(func=ast.Name(id=name), args=args):
            texts, kinds = zip(*(_number(a, names) for a in args), strict=True)
            kind = "float" if "float" in kinds or name in ("exp", "log", "sqrt") else "int"
            kind = "int" if name in ("floor", "ceil") else kind
            return f"{_FUNCTIONS.get(name, name)}({', '.join(texts)})", kind
    raise AssertionError(ast.dump(node))


def render_statements(nodes: tuple[ast.stmt, ...], names: NameTable) -> Iterator[str]:
    """Yield the lines of a gate's function, and after them of a check that no place went below zero."""
    for node in nodes:
        yield from _statement(node, names)
    for place in sorted(set(written_by(nodes))):
        yield f"if {names[place][0]} < 0:"
        yield f"    e[0] = NEGATIVE; e[2] = {names[place][0][2:-1]}"


def _statement(node: ast.stmt, names: NameTable) -> Iterator[str]:
    match node:
        case ast.Assign(targets=[target], value=value):
            yield _assignment(target, value, names)
        case ast.AugAssign(target=target, op=op, value=value):
            before = ast.parse(dotted(target), mode="eval").body
            yield _assignment(target, ast.BinOp(before, op, value), names)
        case ast.If(test=test, body=body, orelse=orelse):
            yield f"if {render_condition(test, names)}:"
            for inner in body:
                yield from (f"    {line}" for line in _statement(inner, names))
            if orelse:
                yield "else:"
                for inner in orelse:
                    yield from (f"    {line}" for line in _statement(inner, names))
        case _:
            yield "pass"


def _assignment(target: ast.expr, value: ast.expr, names: NameTable) -> str:
    place = names[dotted(target)][0]
    text, kind = _number(value, names)
    return f"{place} = {text if kind == 'int' else f'whole({text}, {place[2:-1]}, e)'}"


def constant(text: str, values: Mapping[str, float]) -> float | None:
    """Return what an expression comes to if it needs no other names than those given, else None.

    >>> constant("2 * x", {"x": 1.5}), constant("2 * y", {"x": 1.5})
    (3.0, None)
    """
    node = expression(text)
    if not set(read_by(node)) <= set(values):
        return None
    names: NameTable = {name: (f"p[{name!r}]", "float") for name in values}
    try:
        return float(eval(render_float(node, names), {"math": math, "p": values}))
    except (ArithmeticError, ValueError):
        return math.nan
