"""Mistakes that people make in any program: a step, term, axis or line of the solution is another.

They are read off the solution's syntax tree, so an exercise declares only the mistakes that need
words of their own. Who gives the answers of one of these programs is wrong where they are.
"""

import ast
import copy
from collections.abc import Iterator, Sequence

_Change = tuple[str, str, ast.AST]
"""The name of a mistake, what to say of it, and the node in place of the right one."""

_KEPT = (
    "`keepdim=True` is missing. Without it the axis is gone, and a row meets the number of another "
    "row, or of none."
)
_SIGNS: dict[type[ast.operator], tuple[str, type[ast.operator]]] = {
    ast.Add: ("+", ast.Sub),
    ast.Sub: ("-", ast.Add),
    ast.Mult: ("*", ast.Div),
    ast.Div: ("/", ast.Mult),
}
_MODULES = ("torch", "nn", "F", "math", "np", "self")
_REDUCTIONS = ("sum", "mean", "max", "amax", "var", "argmax")
_EXCHANGED = {"sum": "mean", "mean": "sum"}
_LONGEST = 40  # characters of the solution in a sentence


def general_mistakes(solution: str, starter: str) -> dict[str, tuple[str, Sequence[str]]]:
    """Return by name what to say of a mistake, and the programs with it in one or in all places.

    Args:
        solution: a program that solves the exercise.
        starter: what the exercise gives of it, where there is no mistake.
    """
    tree, starter_lines = ast.parse(solution), set(map(str.strip, starter.splitlines()))
    lines, places = solution.splitlines(), dict[str, tuple[str, list[tuple[int, ast.AST]]]]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        if lines[node.lineno - 1].strip() not in starter_lines:
            for name, says, other in _changes(node):
                places.setdefault(name, (says, []))[1].append((id(node), other))
    mistakes: dict[str, tuple[str, Sequence[str]]] = {}
    for name, (says, changes) in places.items():
        memos = [{place: other} for place, other in changes]
        if len(memos) > 1:
            memos.append(dict(changes))
        # a copy in which the nodes of the memo are what it says
        copies = [ast.unparse(copy.deepcopy(tree, dict(memo))) for memo in memos]
        mistakes[name] = says, list(dict.fromkeys(copies))
    return mistakes


def _changes(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Call():
            yield from _call_changes(node)
        case ast.BinOp(left, operator, right) if type(operator) in _SIGNS:
            sign, other = _SIGNS[type(operator)]
            words = _code(f"{sign} {ast.unparse(right)}")
            yield f"without {words}", f"A term or factor is missing: `{words}`.", left
            if sign in "+*":
                words = _code(f"{ast.unparse(left)} {sign}")
                yield f"without {words}", f"A term or factor is missing: `{words}`.", right
            wrong = _SIGNS[other][0]
            says = f"There is a `{wrong}` where `{sign}` belongs."
            yield f"{wrong} for {sign}", says, ast.BinOp(left, other(), right)
        case ast.UnaryOp(ast.USub(), operand):
            yield "minus lost", "A minus sign is missing.", operand
        case ast.Return(ast.Tuple([first, *others] as parts)) if others:
            says = "The parts of the answer are in the wrong order."
            yield "parts swapped", says, ast.Return(ast.Tuple(parts[::-1]))
            says = "Only the first part of the answer is returned."
            yield "only one part", says, ast.Return(first)
        case ast.IfExp(test, body, other):
            condition, one, two = map(_code, map(ast.unparse, (test, body, other)))
            says = f"It is always `{one}`, where `{two}` belongs unless `{condition}`."
            yield f"always {one}", says, body
            says = f"It is always `{two}`, where `{one}` belongs if `{condition}`."
            yield f"always {two}", says, other
        case ast.If(test, _, []):
            words = _code(f"if {ast.unparse(test)}")
            yield f"without {words}", f"A case is not handled: `{words}`.", ast.Pass()
        case ast.Expr(ast.Call()):
            words = _code(ast.unparse(node))
            yield f"without {words}", f"A line is missing, such as `{words}`.", ast.Pass()


def _call_changes(node: ast.Call) -> Iterator[_Change]:
    """Yield a call over another axis, without a setting, of another function, and what it is of."""
    function = ast.unparse(node.func)
    name, root = function.rpartition(".")[2], function.partition(".")[0]
    for keyword in node.keywords:
        yield from _keyword_changes(node, keyword, name)
    if name in _EXCHANGED and isinstance(node.func, ast.Attribute):
        other = _EXCHANGED[name]
        called = ast.Attribute(node.func.value, other)
        says = f"A {other} is taken where a {name} belongs."
        yield f"{other} for {name}", says, ast.Call(called, node.args, node.keywords)
    inner = node.args[0] if node.args else None
    if isinstance(node.func, ast.Attribute) and root not in _MODULES:
        inner = node.func.value
    if name == "transpose" and inner is not None:
        step = _code(ast.unparse(node))
        says = (
            f"`{step}` swaps two axes and leaves the others. Here none are swapped, or all are "
            "turned round, the batch too, as by `.T`."
        )
        yield f"without {step}", says, inner
        yield f"without {step}", says, ast.Attribute(inner, "T")
    elif inner is not None and not isinstance(inner, ast.Starred):
        yield f"without {name}", f"A step is missing: `{name}`.", inner


def _keyword_changes(node: ast.Call, keyword: ast.keyword, name: str) -> Iterator[_Change]:
    """Yield a call of a function of this name with another axis, or without the setting."""
    others = [other for other in node.keywords if other is not keyword]
    if keyword.arg == "keepdim":
        yield "axis not kept", _KEPT, _with(node, others)
    elif keyword.arg in ("dim", "axis"):
        for axis in (0, 1, -2, -1):
            over = ast.keyword(keyword.arg, ast.Constant(axis))
            says = f"A sum, mean, largest value or softmax runs over axis {axis}, not over the"
            yield f"over axis {axis}", f"{says} right one.", _with(node, [over, *others])
        if name in _REDUCTIONS:
            says = "One number is taken of the whole tensor, in place of one for each row."
            yield "one for all", says, _with(node, [])
    else:
        words = _code(ast.unparse(keyword))
        yield f"without {words}", f"`{words}` is missing.", _with(node, others)


def _with(node: ast.Call, keywords: list[ast.keyword]) -> ast.Call:
    return ast.Call(node.func, node.args, keywords)


def _code(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} …"
