"""A notebook's cells become one program, and no stray cell ends it."""

import pytest

from attnlab_course.notebook_cells import join_cells
from attnlab_course.sandbox.student_code import load_answer

GOOD = "def double(number):\n    return 2 * number\n"
STRAY = {
    "cell magic": "%%bash\nls -l | wc",
    "cell magic of another language": "%%html\n<b>hello</b>",
    "timed cell": "%%time\nx = 1",
    "line magic": "%matplotlib inline\n%load_ext autoreload",
    "shell": "!pip install torch \\\n  numpy",
    "assigned shell": "files = !ls\nprint(files)",
    "assigned magic": "took = %timeit -o double(2)",
    "help": "double?\n?double\ndouble??",
    "indented shell": "if True:\n    !ls",
    "no Python": "this is what I thought about",
    "cut off": "def half(",
    "raises": "double(1) / 0",
    "asserts": "assert double(2) == 5, 'mine'",
    "ends": "import sys\nsys.exit(3)",
    "prints a name that is gone": "for row in rows:\n    print(row)",
    "imports what is not there": "import seaborn as sns\nfrom matplotlib import pyplot as plt",
    "returns": "return 3",
    "awaits": "await double(3)",
    "asks for the future late": "y = 2\nfrom __future__ import annotations",
    "asks for a future there is none of": "from __future__ import nothing",
    "checks": 'import attnlab.course\n\nattnlab.course.check("double")',
}


@pytest.mark.parametrize("stray", STRAY)
def test_a_stray_cell_does_not_end_a_notebook(stray):
    for cells in ([STRAY[stray], GOOD, "z = 7"], [GOOD, STRAY[stray], "z = 7"]):
        names, _ = load_answer(join_cells(cells).program)
        assert names["double"](4) == 8
        assert names["z"] == 7


def test_what_looks_like_magic_inside_a_text_or_brackets_stays():
    cell = 'a = 17\nb = (a\n% 5)\nc = a \\\n% 4\ntext = """\n%d\n!x\n"""\n'
    names, _ = load_answer(join_cells([cell + "!ls\n%time\nd = 1\n"]).program)
    assert (names["b"], names["c"], names["text"], names["d"]) == (2, 1, "\n%d\n!x\n", 1)


def test_the_rest_of_a_cell_with_magic_and_of_one_that_raises_is_kept():
    cell = "%matplotlib inline\n1 / 0\n" + GOOD + "x = double(4)\n"
    names = load_answer(join_cells([cell]).program)[0]
    assert names["x"] == 8


def test_an_error_in_a_definition_is_named_and_cells_that_are_no_python_are_counted():
    names, error = load_answer(join_cells([GOOD, "class Mine(Base):\n    pass\n"]).program)
    assert "Mine" not in names
    assert (error["error"], error["line"]) == ("NameError", 5)
    assert join_cells(["x = 1", "a b", GOOD, "%%bash\nls", "def f("]).left_out == (2, 5)


def test_a_plain_cell_stays_as_it_is_written():
    assert join_cells(["# mine\n" + GOOD]).program == "# mine\n" + GOOD + "\n"
