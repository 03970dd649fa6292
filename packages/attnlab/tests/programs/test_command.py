"""attnlab compile: what it shows, what it writes, and what it says of mistakes."""

import json

import pytest

import attnlab
from attnlab.cli import main
from attnlab.models import Encoder

SORT = """
from attnlab.programs import Program, aggregate, indices, select, selector_width, tokens

same_before = select(tokens, tokens, "==") & select(indices, indices, "<")
earlier = select(tokens, tokens, "<") | same_before
place = selector_width(earlier)
program = Program(aggregate(select(place, indices, "=="), tokens), "abc", "sort")
"""
FIRST = "from attnlab.programs import *\n"
ONE = FIRST + "a = Program(tokens, 'ab')\n"
TWO = ONE + "b = Program(indices, 'ab')\n"
LATER = FIRST + "a = Program(selector_width(select(indices, indices, '>')), 'ab')\n"
NO_DEFAULT = FIRST + "x = aggregate(select(indices, 3, '=='), tokens)\na = Program(x, 'ab')\n"

DEEP = FIRST + "a = Program(sum([indices] * 200), 'ab')\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_program_is_shown_compiled_proved_and_saved(written, tmp_path, capsys):
    out = tmp_path / "sorter"
    options = ["--length", "4", "--example", "cab", "--out", str(out)]
    assert main(["compile", written(SORT), *options]) == 0
    words = capsys.readouterr().out
    assert "place = selector_width(earlier)" in words
    assert " 2   0   1" in words
    assert "proved on all 120 inputs of up to 4 tokens" in words
    assert {path.name for path in out.iterdir()} == {
        *("model.safetensors", "config.json", "program.json", "certificate.json", "check.py")
    }
    assert isinstance(attnlab.load(out), Encoder)
    assert main(["compile", written(SORT), "--out", str(out)]) == 3
    assert "exists already" in capsys.readouterr().err
    assert main(["compile", written(SORT), "--length", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["holds"], told["is_sure"], told["inputs"]) == (True, True, 39)
    assert main(["compile", "nowhere.py"]) == 3
    assert "there is no file nowhere.py" in capsys.readouterr().err


def test_a_line_has_the_value_of_what_it_names(written, capsys):
    """A selector has no row, and what it compares is not its value."""
    text = FIRST + "two = select(indices, indices - 2, '==')\nfound = aggregate(two, tokens, '.')\n"
    assert main(["compile", written(text + "p = Program(found, 'abc')"), "--example", "cab"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[:5]]
    assert ["3", "found", "=", "aggregate(two,", "tokens,", "'.')", ".", ".", "c"] in rows
    assert not any(row[:2] == ["2", "two"] for row in rows)


def test_what_gets_no_certificate_is_told_so(written, tmp_path, capsys):
    """A share in float32, whose bound exceeds the margin."""
    text = FIRST + "from fractions import Fraction\n"
    text += "x = aggregate(select(indices, indices, '<='), (tokens == 'a') * 1)\n"
    command = [written(text + "p = Program(x == Fraction(1, 3), 'ab')"), "--float32"]
    assert main(["compile", *command, "--length", "9", "--out", str(tmp_path / "mean")]) == 1
    found = capsys.readouterr().out
    assert ("no certificate was written" in found) == ("rounding may exceed" in found)
    assert "rounding may exceed" in found


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("x = 3\n", [], "makes no program"),
        (FIRST + "x = tokenss\n", [], "program.py:2  NameError"),
        ("x = (\n", [], "program.py:1  SyntaxError"),
        (TWO, [], "choose one with --name: a, b"),
        (ONE, ["--name", "c"], "no program 'c'"),
        (ONE, ["--example", "abx"], "--example has 'x'"),
        (ONE, ["--length", "0"], "at least 1; got 0"),
        (ONE, ["--tolerance", "2"], "from 1e-9 to 0.2; got 2"),
        (LATER, ["--causal"], "selects a later position"),
        (NO_DEFAULT, [], "program.py:2  x = aggregate"),
        ("import sys\nsys.exit(0)\n", [], "ends itself before it makes a program"),
        (DEEP, [], "at most 100 deep"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(written, capsys, text, options, words):
    assert main(["compile", written(text), *options]) == 2
    found = capsys.readouterr()
    assert words in found.err
    assert "Traceback" not in found.err
