"""Programs as text: what is accepted means what Python means by it, and nothing is ever run."""

import ast
import builtins
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab import programs
from attnlab.programs import (
    ProgramError,
    compile_program,
    interpret,
    library,
    program_text,
    prove_program,
)
from attnlab.programs.language import COMPARISONS
from attnlab.programs.program_text import read_lines, read_program

SORT = """# letters in order
smaller = select(tokens, tokens, "<")
equal_and_before = select(tokens, tokens, "==") & select(indices, indices, "<")

place = selector_width(smaller | equal_and_before)
output = aggregate(select(place, indices, "=="), tokens)"""
LANGUAGE = {
    name: getattr(programs, name) for name in (*program_text._NAMES, *program_text._FUNCTIONS)
}

ATTACKS = [
    "x = tokens.__class__.__mro__[1].__subclasses__()",
    "x = tokens.map(lambda token: open('canary', 'w'))",
    "x = select.__globals__",
    "import os",
    "x = open('canary', 'w')",
    "x = (lambda: open('canary', 'w'))()",
    "x = select(tokens, tokens, lambda key, query: open('canary', 'w'))",
    "x = [open('canary', 'w') for each in '1']",
    "x = f'{open(1)}'",
    "x = 1; open('canary', 'w')",
    "def x(): open('canary', 'w')",
    "open('canary', 'w')",
    "x[open('canary', 'w')] = 1",
    "tokens = 3",
    "x = y = 1",
    "x = select(*tokens)",
    "x = aggregate(everything, tokens, default=indices)",
    "x = indices ** 9",
    "x = 'a' * 1000",
    "x = where(indices > 1, tokens, 'a') * 1000000",
    "x = aggregate(everything, indices, default='a') * 1000000",
    "x = '%999d' % indices",
    "x = tokens % indices",
    "x = 10000000",
    "x = 'aaaaaaaaaaaaaaaa'",
    "x = None",
    "x = (1, 2)",
    "x = not tokens",
    "x = 1 < indices < 2",
    "x = everything + 1",
    "x = select(tokens, tokens, '<>')",
    "x = select(tokens)",
    "x = total",
    "x = there_is_none",
    "x = " + "~" * 150 + "tokens",
    "x = " + "(" * 195,
    "x = " + "-" * 190 + "1 " * 90,
    "x = \0",
    "x = '\ud800'",
    "\u202ex = 1",
    "   x = 1",
    "x = 1 +",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_of_the_language_is_refused_and_not_run(attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called: list[str] = []
    for name in ("eval", "exec", "open", "__import__"):
        real = getattr(builtins, name)

        def canary(*given, _name=name, _real=real, **more):
            if _name != "__import__" or given[0] == "os":
                called.append(_name)
            return _real(*given, **more)

        monkeypatch.setattr(builtins, name, canary)
    with pytest.raises(ProgramError) as caught:
        read_program(f"first = 1\n{attack}\nlast = tokens", "abc")
    monkeypatch.undo()
    assert called == []
    assert list(tmp_path.iterdir()) == []
    assert caught.value.line.number == 2
    assert caught.value.line.source == attack.strip()
    assert 20 < len(caught.value.reason) < 400
    assert caught.value.reason.endswith((".", ">="))


def test_a_wider_list_of_functions_would_be_seen(tmp_path, monkeypatch):
    def spill(name, mode):
        (tmp_path / name).write_text("")
        return mode

    monkeypatch.setitem(program_text._FUNCTIONS, "open", spill)
    attack = next(each for each in ATTACKS if each == "x = open('canary', 'w')")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_what_is_not_of_the_language_is_refused_and_not_run(attack, tmp_path, monkeypatch)
    assert (tmp_path / "canary").is_file()


def test_the_module_runs_no_text():
    tree = ast.parse(Path(program_text.__file__).read_text())
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "ast.parse" in called
    assert called & {"eval", "exec", "compile", "getattr", "__import__", "globals"} == set()


@pytest.mark.parametrize(
    ("first", "again"),
    [("x = indices", "x = x + x"), ("x = everything", "x = x | x"), ("x = 3", "x = indices * x")],
)
def test_names_of_names_do_not_grow_without_bound(first, again):
    lines = read_lines("\n".join([first, *[again] * 30]), "abc")
    assert lines[5].error is None
    if first == "x = 3":  # which stays as it is, but for its size
        assert all(each.error is None for each in lines)
        return
    wrong = next(each.error for each in lines if each.error)
    assert "written out without names" in wrong.reason


def test_a_text_and_a_line_have_a_largest_size():
    with pytest.raises(ProgramError, match="at most 2,000 letters and 40 lines; got 49 and 41"):
        read_program("x = 1234" + "\n" * 41, "abc")
    with pytest.raises(ProgramError, match="at most 2,000 letters"):
        read_program("#" * 2_001, "abc")
    with pytest.raises(ProgramError, match="at most 200 letters; got 205"):
        read_program("x = " + "1" * 201, "abc")
    with pytest.raises(ProgramError, match="there is no line yet"):
        read_program("# nothing", "abc")
    with pytest.raises(ProgramError, match="the last line is what the program computes"):
        read_program("x = everything", "abc")


def test_a_program_read_from_text_is_that_of_the_library_and_its_heads_name_its_lines():
    program = read_program(SORT, "abc")
    sort = library.sort("abc")
    for length in range(1, 5):
        for letters in product("abc", repeat=length):
            assert interpret(program, letters) == interpret(sort, letters)
    compiled = compile_program(program, 4)
    assert prove_program(compiled, sort).is_sure
    sources = SORT.split("\n")
    assert set(compiled.heads.values()) == {f"program:5  {sources[4]}", f"program:6  {sources[5]}"}


def test_lines_after_a_refused_one_are_read_and_say_what_they_miss():
    one, two, three = read_lines("x = open(1)\ny = indices\nz = x + y", "abc")
    assert (one.value, two.error) == (None, None)
    assert one.error is not None
    assert three.error is not None
    assert three.error.reason == "x has no value because line 1 is refused."
    assert (one.name, three.line.number) == ("x", 3)


SEQUENCES = ["tokens", "indices", "place", "3", "'a'", "True", "0.5"]
SELECTORS = ["everything", "chosen"]


@st.composite
def expressions(draw, depth=3):
    """Draw an expression, right or wrong, of the language's words."""
    if depth == 0:
        return draw(st.sampled_from([*SEQUENCES, *SELECTORS]))
    inner = expressions(depth - 1)
    kind = draw(st.sampled_from(["name", "two", "one", "select", "gather", "width", "best"]))
    if kind == "name":
        return draw(expressions(0))
    if kind == "two":
        sign = draw(st.sampled_from(["+", "-", "*", "//", "%", "&", "|", *COMPARISONS]))
        return f"({draw(inner)} {sign} {draw(inner)})"
    if kind == "one":
        return f"{draw(st.sampled_from('-~'))}({draw(inner)})"
    if kind == "select":
        return f"select({draw(inner)}, {draw(inner)}, '{draw(st.sampled_from([*COMPARISONS]))}')"
    if kind == "gather":
        end = draw(st.sampled_from([")", ", 0)", ", default='.')", ", default=tokens)"]))
        return f"aggregate({draw(inner)}, {draw(inner)}{end}"
    if kind == "width":
        return f"selector_width({draw(inner)})"
    return f"best({draw(inner)}, {draw(inner)})"


@given(expressions())
@settings(max_examples=150, deadline=None)
def test_what_is_accepted_is_what_python_makes_of_it(expression):
    before = "chosen = select(tokens, 'a', '==')\nplace = selector_width(chosen)"
    found = read_lines(f"{before}\nx = {expression}", "ab")[-1]
    if found.error is not None:
        assert found.error.line.number == 3
        return
    names = dict(LANGUAGE)
    exec(f"{before}\nx = {expression}", names)  # made of the words above, and nothing else
    assert repr(found.value) == repr(names["x"])


@given(st.text(max_size=60) | st.lists(st.sampled_from(SORT.split()), max_size=9).map(" ".join))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused(anything):
    for each in read_lines(anything, "ab"):
        assert (each.error is None) != (each.value is None)
