"""A student's folder: what is begun, what is logged, what is handed in."""

import hashlib
import json
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from attnlab.errors import WrongUsage
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import (
    NotebookCell,
    leaked_lines,
    program_of_notebook,
    solution_text,
    split_cells,
    starter_cells,
    starter_notebook,
    starter_program,
)
from attnlab_course.judge import check_here
from attnlab_course.sandbox.replies import ask_here
from attnlab_course.submit import check_text, hand_in, text_answer
from attnlab_course.workspace import ExerciseState, Workspace, find_workspace, is_untouched

from .classroom import questions_of

FILE = '''"""A file."""

# %% [course]
from attnlab_course.exercise import Exercise

# %% [markdown]
# # Twice
#
# **Write** `twice`.

# %%
def twice(x):
    """Double."""
    # >>> solution
    doubled = x + x + 0 * x + 0
    return doubled
    # <<< solution


# >>> solution
LIMIT = 12345678901234567890
# --- starter
# LIMIT = None
# <<< solution

# %% [course]
EXERCISE = Exercise("Twice")
'''


@pytest.fixture(scope="module")
def attention():
    return find_exercise("attention")


@pytest.fixture(scope="module")
def started(tmp_path_factory, attention):
    """A folder in which attention is begun, drawn once."""
    folder = tmp_path_factory.mktemp("started")
    Workspace(folder).start(attention)
    return folder


@pytest.fixture
def begun(tmp_path, started):
    return Workspace(shutil.copytree(started, tmp_path / "course"))


def test_a_file_is_cells_and_a_starter_has_none_of_the_solution():
    assert [cell.kind for cell in split_cells(FILE)] == ["course", "markdown", "code", "course"]
    text, code = starter_cells(FILE, "twice")
    assert text == NotebookCell("markdown", "# # Twice\n#\n# **Write** `twice`.\n")
    assert 'raise NotImplementedError("twice: write this part")' in code.text
    assert "LIMIT = None" in code.text
    assert "doubled" not in code.text
    assert "12345" not in code.text
    solved = solution_text(FILE)
    assert "LIMIT = 12345678901234567890" in solved
    assert "None" not in solved
    assert leaked_lines(starter_program([text, code]), FILE) == []


def test_a_file_without_known_cells_is_refused():
    for source in ("x = 1\n", "# %% [strange]\nx = 1\n"):
        with pytest.raises(WrongUsage, match=r"expected cells|a cell is one of code, markdown"):
            split_cells(source)
    with pytest.raises(WrongUsage, match="expected a notebook"):
        program_of_notebook("{}")


def test_a_notebook_and_a_program_hold_the_same_code(attention):
    cells = starter_cells(attention.source, "attention")
    notebook = starter_notebook(cells, "attention")
    book = json.loads(notebook)
    assert book["cells"][0]["source"][0] == "# Attention\n"
    assert "attnlab.course.check" in "".join(book["cells"][-1]["source"])
    assert is_untouched(attention, program_of_notebook(notebook))
    assert is_untouched(attention, starter_program(cells))
    assert not is_untouched(attention, "x = 1\n")
    assert not is_untouched(attention, "x = \n")


def test_the_answer_is_the_file_that_was_written_in(begun, attention):
    assert begun.answer(attention).path.suffix == ".py"
    notebook = begun.folder / "attention.ipynb"
    notebook.write_text(notebook.read_text().replace("import math", "import math  # mine\\nx = 1"))
    assert begun.answer(attention).path == notebook
    with pytest.raises(WrongUsage, match="attnlab course start softmax"):
        begun.answer(find_exercise("softmax"))


def test_the_log_says_how_far_one_is(begun, attention):
    questions = questions_of("attention")
    solved = solution_text(attention.source)
    begun.record("hint", exercise="attention", number=2)
    begun.record_check(attention, "x", check_here(questions, "x = 1"))
    assert begun.states() == {"attention": ExerciseState(tries=1, hints=2)}
    begun.record_check(attention, solved, check_here(questions, solved))
    assert begun.states() == {"attention": ExerciseState(tries=2, hints=2, passed=True)}
    last = begun.log.read_text().splitlines()[-1]
    assert json.loads(last)["sha256"] == hashlib.sha256(solved.encode()).hexdigest()


def test_a_line_cut_off_by_a_crash_loses_no_other(begun):
    with begun.log.open("a") as file:
        file.write('{"event": "che')
    begun.record("hint", exercise="attention", number=1)
    assert begun.states()["attention"].hints == 1


def test_events_of_many_at_once_are_all_in_the_log(begun):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: begun.record("hint", exercise="a", number=n), range(24)))
    lines = begun.log.read_text().splitlines()
    assert sum('"hint"' in line for line in lines) == 24


def test_the_folder_is_the_named_one_or_this_one_or_course(tmp_path, monkeypatch, begun):
    monkeypatch.chdir(tmp_path)
    assert find_workspace(None).folder.name == "course"
    assert find_workspace(tmp_path).folder == tmp_path
    monkeypatch.chdir(begun.folder)
    assert find_workspace(None).log.is_file()


def known(*names):
    return {name: find_exercise(name) for name in names}


def test_what_is_handed_in_is_one_file_with_hashes_and_the_log(begun, attention, tmp_path):
    solved = solution_text(attention.source)
    (begun.folder / "attention.py").write_text(solved)
    path = tmp_path / "ada.zip"
    done = hand_in(begun, known("attention"), "Ada", path, ask_here)
    assert done.exercises == ("attention",)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert archive.read("work/attention.py").decode() == solved
        assert b'"submit"' in archive.read("log.jsonl")
    entry = manifest["exercises"]["attention"]
    assert entry["sha256"] == hashlib.sha256(solved.encode()).hexdigest()
    assert manifest["student"] == "Ada"


def test_a_text_is_read_and_never_run(tmp_path):
    assert text_answer('answer = """\nBecause.\n"""') == "Because."
    assert text_answer("answer = open('/etc/passwd').read()") is None
    assert text_answer("answer =") is None
    assert text_answer("x = 1") is None
    reflect = find_exercise("reflect_attention")
    starter = starter_program(starter_cells(reflect.source, reflect.name))
    assert check_text(reflect, starter).is_blank
    assert check_text(reflect, 'answer = """Because."""').passed
    assert check_text(reflect, "answer = 3").broken
