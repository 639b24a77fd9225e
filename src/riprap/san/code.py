"""The small language of nets: what gates, rates, probabilities and rewards are written in.

It is a part of Python, so it needs no manual: numbers, places and parameters by name, arithmetic, comparisons,
``and``, ``or``, ``not``, ``a if c else b``, and the functions below. A function of a gate is a few statements that
assign to places, and ``if``. As text, code can be compared, pickled, shown, renamed and compiled.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache

from riprap.san.errors import CodeError

Code = str | int | float

FUNCTIONS = ("min", "max", "abs", "floor", "ceil", "exp", "log", "sqrt")
BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def text_of(code: Code) -> str:
    """Return code as text: numbers may be given as such.

    >>> text_of(0.5), text_of(" a + 1 ")
    ('0.5', 'a + 1')
    """
    if isinstance(code, bool) or not isinstance(code, str | int | float):
        raise CodeError(f"code is text or a number, not {code!r}")
    return textwrap.dedent(code).strip() if isinstance(code, str) else repr(code)


@lru_cache(maxsize=65536)
def expression(text: str) -> ast.expr:
    """Parse an expression and check that nothing but the small language is in it."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise CodeError(f"'{text}' is not an expression: {getattr(error, 'msg', error)}") from None
    _check(tree, text)
    return tree


@lru_cache(maxsize=65536)
def statements(text: str) -> tuple[ast.stmt, ...]:
    """Parse statements and check that nothing but the small language is in them."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise CodeError(f"'{text}' are no statements: {getattr(error, 'msg', error)}") from None
    for statement in body:
        _check_statement(statement, text)
    return tuple(body)


def _check_statement(node: ast.stmt, text: str) -> None:
    match node:
        case ast.Assign(targets=[target], value=value):
            dotted(target, text)
            _check(value, text)
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in BINARY:
            dotted(target, text)
            _check(value, text)
        case ast.If(test=test, body=body, orelse=orelse):
            _check(test, text)
            for inner in (*body, *orelse):
                _check_statement(inner, text)
        case ast.Pass():
            pass
        case _:
            raise CodeError(
                f"'{ast.unparse(node)}' is neither an assignment to a place nor an if, in '{text}'"
            )


def _check(node: ast.expr, text: str) -> None:
    inner: list[ast.expr] = []
    match node:
        case ast.Constant(value=bool() | int() | float()):
            pass
        case ast.Name() | ast.Attribute():
            dotted(node, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            inner = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            inner = [operand]
        case ast.BoolOp(values=values):
            inner = values
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(o) in COMPARE for o in ops):
            inner = [left, *others]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            inner = [test, body, orelse]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            least, most = (2, 99) if name in ("min", "max") else (1, 1)
            if not least <= len(args) <= most:
                raise CodeError(f"'{ast.unparse(node)}' has {len(args)} arguments, in '{text}'")
            inner = args
        case _:
            raise CodeError(
                f"'{ast.unparse(node)}' is not in the language of nets, in '{text}'. There are names, numbers, "
                f"+ - * / // % **, comparisons, and, or, not, x if c else y, and {', '.join(FUNCTIONS)}"
            )
    for each in inner:
        _check(each, text)


def dotted(node: ast.expr, text: str = "") -> str:
    """Return the name that a node stands for; dots are part of it."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value, text)}.{name}"
    raise CodeError(f"'{ast.unparse(node)}' is not the name of a place, in '{text}'")


def read_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that an expression or a statement reads.

    >>> sorted(set(read_by(statements("a.x += b; c = 1")[0])))
    ['a.x', 'b']
    """
    match node:
        case ast.Name() | ast.Attribute():
            yield dotted(node)
        case ast.Call(args=args):
            for each in args:
                yield from read_by(each)
        case ast.Assign(value=value):
            yield from read_by(value)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from read_by(child)


def written_by(nodes: tuple[ast.stmt, ...]) -> Iterator[str]:
    """Yield the names that statements assign to.

    >>> list(written_by(statements("if a: b = 1")))
    ['b']
    """
    for node in nodes:
        match node:
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                yield dotted(target)
            case ast.If(body=body, orelse=orelse):
                yield from written_by((*body, *orelse))


class _Rename(ast.NodeTransformer):
    def __init__(self, names: Callable[[str], str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.visit_Attribute(node)

    def visit_Attribute(self, node: ast.Name | ast.Attribute) -> ast.expr:
        name = ast.parse(self.names(dotted(node)), mode="eval").body
        return name if isinstance(node.ctx, ast.Load) else _stored(name)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return ast.Call(node.func, [self.visit(each) for each in node.args], [])


def _stored(name: ast.expr) -> ast.expr:
    assert isinstance(name, ast.Name | ast.Attribute)
    name.ctx = ast.Store()
    return name


def rename(text: str, names: Callable[[str], str]) -> str:
    """Give other names to what code names.

    >>> rename("a = min(a, b)", "left.{}".format)
    'left.a = min(left.a, left.b)'
    """
    tree = _Rename(names).visit(ast.parse(text))
    return ast.unparse(ast.fix_missing_locations(tree))
