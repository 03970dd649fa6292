"""Runs a student's code: loads it, puts cases to it, and turns its answers into JSON.

It knows the inputs and never the answers. Like `runner.py`, which imports it, it stands beside the
student's file in the sandbox, so it imports nothing of attnlab but `student_parameters.py`.
"""

import __future__

import ast
import base64
import contextlib
import copy
import difflib
import importlib.abc
import importlib.util
import io
import itertools
import os
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

if __package__ == "":  # in the sandbox there is no attnlab
    import student_parameters  # type: ignore[import-not-found]
else:
    from attnlab_course.sandbox import student_parameters

Names = Mapping[str, Any]
"""What a module defines."""

Json = Any
"""What `encode` makes and `decode` reads."""

MOST_NUMBERS = 1_000_000
"""How many numbers an array may have in an answer, and how many items a list."""

_MOST_DEPTH = 20
_MOST_WORDS = 300
_MOST_PRINTED = 600
_ANNOTATIONS = __future__.annotations.compiler_flag
_PLAIN = (type(None), bool, str, int, float)


class EncodedCase(TypedDict):
    """A case as JSON: what is called, with what, and what of it is the answer."""

    call: str
    args: Json
    settings: Json
    names: Sequence[str]
    build: Json
    state: Json
    methods: Sequence[tuple[str, Json, Json]]
    answer: str
    training: bool
    seed: int


class TooLarge(Exception):
    """An answer that is not sent back, since it is too large."""


def replies_to(request: Json) -> Iterator[Json]:
    """Run the student's file, say so, and answer each case in turn.

    request: source and path of the file, and the cases, see `EncodedCase`.
    """
    if os.environ.get("ATTNLAB_ALONE") == "yes":
        _stub_course()
    try:
        names, error = load_answer(request["source"], request["path"])
    except BaseException as raised:
        yield {"loaded": False, "error": describe_error(raised)}
        return
    yield {"loaded": True, "error": error}
    for case in request["cases"]:
        random.seed(case["seed"])
        np.random.seed(case["seed"])  # noqa: NPY002 - the one that students use
        with contextlib.redirect_stdout(FirstWords()) as heard:
            answer = answer_case(names, case)
        yield {**answer, "printed": heard.text}


def _stub_course() -> None:
    """Let `attnlab.course.check(…)` of a notebook do nothing where there is no attnlab."""
    package, course = types.ModuleType("attnlab"), types.ModuleType("attnlab.course")
    vars(course)["check"] = lambda *_, **__: None
    vars(package).update(course=course, __path__=[])
    sys.modules.update({"attnlab": package, "attnlab.course": course})


class FirstWords(io.TextIOBase):
    """A stream that keeps the beginning of what is printed."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep the beginning."""
        self.text += text[: _MOST_PRINTED - len(self.text)]
        return len(text)


class _Text(importlib.abc.ExecutionLoader):
    """A loader of a module from a text."""

    def __init__(self, source: str, path: str) -> None:
        self.source = source
        self.path = path
        self.code = compile(source, path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> types.CodeType:
        return self.code

    def get_source(self, fullname: str) -> str:
        return self.source

    def get_filename(self, fullname: str) -> str:
        return self.path


def load_names(source: str, path: str = "answer.py") -> Names:
    """Run the source of a module and return its names; whatever it raises is raised."""
    text = _Text(source, path)
    module = _new_module(text)
    text.exec_module(module)
    return vars(module)


def load_answer(source: str, path: str = "answer.py") -> tuple[Names, Json]:
    """Run a student's program and return its names, and the first error at its top; None without.

    A statement that fails is passed over, and the next one is run: a demonstration needs a file,
    an import a package, that only the student's machine has. Annotations are not evaluated then.

    Raises:
        SyntaxError: the program is no Python.
    """
    text, error = _Text(source, path), None
    module = _new_module(text)
    rest = ast.parse(source, path).body
    futures = [node for node in rest if _is_future(node)]
    while True:
        try:
            text.exec_module(module)
        except BaseException as raised:
            error = error or describe_error(raised)
            rest = _rest_after(_place(raised, text.code), rest)
        else:
            return vars(module), error
        tree = ast.Module([*futures, *rest], [])
        text.code = compile(tree, path, "exec", _ANNOTATIONS, dont_inherit=True)


def _new_module(text: _Text) -> types.ModuleType:
    name = "attnlab_course_" + text.path.rpartition("/")[2].partition(".")[0]
    spec = importlib.util.spec_from_loader(name, text, origin=text.path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__file__"] = text.path
    sys.modules[name] = module  # which dataclasses and pickles look up
    return module


def _place(error: BaseException, code: types.CodeType) -> tuple[int, int]:
    """Return the line and column of a module's code at which an error left it."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code is not code:
        step = step.tb_next
    if step is None:  # it was raised before the first statement
        raise error
    line, _, column, _ = [*code.co_positions()][step.tb_lasti // 2]
    return line or 0, column or 0


def _rest_after(place: tuple[int, int], nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements after the one at a place; of an import, also its other names."""
    number = max(sum(_start(node) <= place for node in nodes), 1)
    failed, rest = nodes[number - 1], [*nodes[number:]]
    if isinstance(failed, ast.Import | ast.ImportFrom) and len(failed.names) > 1:
        rest = [*map(_import_of, itertools.repeat(failed), failed.names), *rest]
    return [node for node in rest if not _is_future(node)]


def _import_of(node: ast.Import | ast.ImportFrom, name: ast.alias) -> ast.stmt:
    """Return the import of one of a statement's names."""
    part = ast.copy_location(copy.copy(node), name)
    part.names = [name]
    return part


def _start(node: ast.stmt) -> tuple[int, int]:
    """Return the line and column at which a statement begins, with its decorators."""
    parts = [node, *getattr(node, "decorator_list", ())]
    return min((part.lineno, part.col_offset) for part in parts)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def encode(value: Any, depth: int = 0) -> Json:
    """Turn a value into JSON: numbers, texts, lists, mappings, arrays, figures.

    Of anything else the name of its type is kept. Subclasses become what they are made of, so that
    no method of a student's class takes part in a comparison.

    Raises:
        TooLarge: an array has more than `MOST_NUMBERS` numbers.
    """
    if depth > _MOST_DEPTH:
        return {"kind": "other", "type": "nested too deep"}
    number = value.item() if isinstance(value, np.generic) else value
    if type(number) in _PLAIN:
        return _plain(number)
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.array(value, subok=False), "numpy")
    if isinstance(value, Mapping):
        pairs = [[encode(part, depth + 1) for part in item] for item in value.items()]
        return {"kind": "dict", "items": pairs}
    if isinstance(value, list | tuple):
        items = map(encode, value[:MOST_NUMBERS], itertools.repeat(depth + 1))
        return {"kind": "list", "items": list(items)}
    if type(value).__module__.startswith("matplotlib."):
        return _figure(value)
    return {"kind": "other", "type": type(value).__name__}


def _plain(value: Any) -> Json:
    """Turn an integer that JSON may round into text; leave other plain values as they are."""
    if type(value) is int and abs(value) >= 2**53:
        return {"kind": "int", "text": str(value)[:100]}
    return value


def decode(value: Json, names: Names | None = None) -> Any:
    """Turn JSON back into values.

    Args:
        value: what `encode` made.
        names: a student's names, in which given objects are looked up.
    """
    if not isinstance(value, dict):
        return value
    kind = value["kind"]
    if kind == "list":
        return [decode(item, names) for item in value["items"]]
    if kind == "dict":
        return {decode(key, names): decode(item, names) for key, item in value["items"]}
    if kind == "array":
        data = base64.b64decode(value["data"])
        array = np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
        if value["of"] != "torch":
            return array
        return torch.from_numpy(array).requires_grad_(bool(value.get("grad")))
    if kind == "given" and names is not None:
        return _build(names[value["call"]], value, names)
    return value


def answer_case(names: Names, case: EncodedCase) -> Json:
    """Put one case to a student's names: {"value": …}, or {"error": …} with its line."""
    if case["call"] not in names:
        public = [name for name in names if isinstance(name, str) and not name.startswith("_")]
        message = case["call"]
        for name in difflib.get_close_matches(case["call"], public, 1):
            message += f"; did you mean {name}?"
        return {"error": "Missing", "message": message, "line": None}
    try:
        torch.default_generator.manual_seed(case["seed"])
        # whatever a demonstration at the program's top has switched
        with torch.enable_grad(), torch.autograd.set_detect_anomaly(False):
            answer = _answer(names, case)
        try:
            return {"value": encode(answer)}
        except MemoryError:
            raise TooLarge from None
    except NotImplementedError as error:
        return {"error": "NotImplementedError", "message": _words(error), "line": None}
    except (Exception, SystemExit) as error:
        return describe_error(error)


def describe_error(error: BaseException) -> Json:
    """Say what was raised, in which line of the student's file."""
    line = None
    if isinstance(error, SyntaxError):
        line = error.lineno
    step = error.__traceback__
    while step is not None:
        if "attnlab_course_" in str(step.tb_frame.f_globals.get("__name__")):
            line = step.tb_lineno
        step = step.tb_next
    return {"error": type(error).__name__[:80], "message": _words(error), "line": line}


def _words(error: BaseException) -> str:
    try:
        words = error.msg if isinstance(error, SyntaxError) else error
        return str(words)[:_MOST_WORDS]
    except Exception:
        return ""


def _answer(names: Names, case: EncodedCase) -> Any:
    target = names[case["call"]]
    if case["build"] is not None:
        target = _build(target, {**case["build"], "state": case["state"]}, names)
        if isinstance(target, nn.Module):
            target.train(case["training"])
    wanted = case["answer"]
    if wanted in _UNCALLED:
        return _UNCALLED[wanted](target)
    args = decode(case["args"], names)
    if wanted == "gradients":
        return _gradients(target, args, case, names)
    result = _call(target, args, case, names)
    if wanted == "inputs":
        return [arg for arg in args if isinstance(arg, Tensor | np.ndarray)]
    return result


_UNCALLED: Mapping[str, Callable[[Any], Any]] = {
    "parameters": lambda target: student_parameters.tensor_shapes(dict(target.named_parameters())),
    "state": lambda target: dict(target.state_dict()),
    "value": lambda target: target,
}
"""Answers for which nothing is called."""


def _call(target: Any, args: list[Any], case: EncodedCase, names: Names) -> Any:
    """Call the methods of a case in turn and return the last one's result; or the target."""
    if not case["methods"]:
        return target(
            *args,
            **student_parameters.rename_settings(
                target, decode(case["settings"], names), case["names"]
            ),
        )
    result = None
    for method, method_args, settings in case["methods"]:
        call = getattr(target, method)
        result = call(*decode(method_args, names), **decode(settings, names))
    return result


def _build(target: Any, recipe: Json, names: Names) -> Any:
    """Make an object of a student's class, and write the given parameters into it."""
    args, settings = decode(recipe["args"], names), decode(recipe["settings"], names)
    made = target(
        *args, **student_parameters.rename_settings(target, settings, recipe.get("names", ()))
    )
    state = decode(recipe["state"])
    if isinstance(made, nn.Module):
        made.double()
        if state:
            student_parameters.load_parameters(made, state)
        made.eval()
    return made


def _gradients(target: Any, args: list[Any], case: EncodedCase, names: Names) -> Sequence[Tensor]:
    """Return the gradients of a fixed weighted sum of the first tensor of a result."""
    leaves = [arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    first = _call(target, args, case, names)
    while isinstance(first, list | tuple):
        first = first[0]
    weights = torch.cos(torch.arange(first.numel(), dtype=first.dtype)).reshape(first.shape)
    total = (first * weights).sum()
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)


def _tensor(value: Tensor) -> Json:
    bare = value.detach().cpu()
    if bare.dtype == torch.bfloat16:
        bare = bare.float()
    array = _array(bare.numpy(), "torch")
    if value.requires_grad:
        array["grad"] = True
    return array


def _array(array: np.ndarray[Any, Any], of: str) -> Json:
    if array.dtype.kind not in "biufc":
        return {"kind": "other", "type": f"array of {array.dtype}, {array.size} numbers"}
    if array.size > MOST_NUMBERS:
        raise TooLarge
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {
        "kind": "array",
        "of": of,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "data": data,
    }


def _figure(value: Any) -> Json:
    """Say what a figure of matplotlib shows: titles, labels, ticks, images, lines."""
    figure = getattr(value, "figure", value)
    shown = list(map(_axes, figure.axes))
    record = {"kind": "figure", "axes": encode(shown), "title": figure.get_suptitle()}
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    return record


def _axes(axes: Any) -> Mapping[str, object]:
    images = [*axes.get_images(), *axes.collections]
    images = [image for image in images if image.get_array() is not None]
    return {
        "title": axes.get_title(),
        "xlabel": axes.get_xlabel(),
        "ylabel": axes.get_ylabel(),
        "xticks": [label.get_text() for label in axes.get_xticklabels()],
        "yticks": [label.get_text() for label in axes.get_yticklabels()],
        "xplaces": np.asarray(axes.get_xticks(), float),
        "yplaces": np.asarray(axes.get_yticks(), float),
        "xlim": list(map(float, axes.get_xlim())),
        "ylim": list(map(float, axes.get_ylim())),
        "xscale": axes.get_xscale(),
        "images": [np.asarray(image.get_array(), float) for image in images],
        "corners": list(map(_corners, images)),
        "colors": [image.get_clim() for image in images],
        "lines": [np.asarray(line.get_xydata(), float) for line in axes.get_lines()],
        "is_color_bar": axes.get_label() == "<colorbar>",
    }


def _corners(image: Any) -> list[float] | None:
    """Return the outer edges of an image: of its first and last column, first and last row."""
    if hasattr(image, "get_extent"):
        left, right, first, last = image.get_extent()
        if getattr(image, "origin", "upper") != "lower":
            first, last = last, first
    elif hasattr(image, "get_coordinates"):
        places = np.asarray(image.get_coordinates(), float)
        (left, first), (right, last) = places[0, 0], places[-1, -1]
    else:
        return None
    return list(map(float, (left, right, first, last)))
