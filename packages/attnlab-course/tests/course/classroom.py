"""A small class: three exercises, submissions of every form, and a worker that runs in here."""

import hashlib
import io
import json
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from attnlab.errors import CouldNotRun
from attnlab_course.cases import make_questions
from attnlab_course.catalog import find_exercise, load_exercise
from attnlab_course.judge import judge
from attnlab_course.sandbox.jail import probe
from attnlab_course.sandbox.replies import ask_here, ask_names
from attnlab_course.workspace import FORM

DOUBLE = '''
"""Twice a number."""

# %% [course]
from attnlab_course.exercise import Case, Check, Exercise, Mistake

# %% [markdown]
# Write `double(number)`.

# %%
def double(number):
    """Return twice the number."""
    # >>> solution
    return 2 * number
    # <<< solution

# %% [hints]
# 1. How often is it there?
# 2. Add it to itself.

# %% [course]
def numbers(random):
    for size in (1, 3):
        number = float(random.integers(3, 900)) * size
        yield Case("double", (number,), expected=2 * number)

def large(random):
    yield Case("double", (1e9 + int(random.integers(9)),), judge=None, expected=None)
    number = 1e9 + int(random.integers(1, 9))
    yield Case("double", (number,), expected=2 * number)

EXERCISE = Exercise(
    "Twice",
    checks=(
        Check("numbers", "doubles numbers", numbers, points=3),
        Check("large", "doubles large numbers", large, points=1, graded=True),
    ),
    mistakes=(
        Mistake("square", "2 * number", "number**2", "The number is squared, not doubled."),
        Mistake("same", "2 * number", "number", "The number is returned as it came."),
    ),
    banned=("multiply",),
)
'''

PAIR = '''
"""Two numbers that sum to ten, as data."""

# %% [course]
from attnlab_course.exercise import Case, Check, Exercise, Failure

# %%
def weights():
    """Return two numbers."""
    # >>> solution
    return {"a": 4.0, "b": 6.0}
    # <<< solution

# %% [hints]
# 1. What is left of ten?
# 2. Six and …

# %% [course]
def judge(value):
    if value["a"] + value["b"] != 10:
        return Failure(f"they sum to {value['a'] + value['b']}")

EXERCISE = Exercise(
    "A pair",
    kind="weights",
    checks=(Check("sum", "sums to ten", lambda random: [Case("weights", judge=judge)], points=2),),
)
'''

WHY = '''
"""A text."""

# %% [course]
from attnlab_course.exercise import Exercise

# %% [markdown]
# Why is it divided?

# %%
# >>> solution
answer = "Because the scores grow with the width, and the softmax then saturates."
# --- starter
# answer = ""
# <<< solution

# %% [course]
EXERCISE = Exercise("Why", kind="text", rubric=("names the width", "- names the softmax"))
'''


def exercises_in(folder: Path, *, with_attention: bool = False):
    """Write the three exercises, and return them by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, source in (("double", DOUBLE), ("pair", PAIR), ("why", WHY)):
        (folder / f"{name}.py").write_text(source)
        found[name] = load_exercise(folder / f"{name}.py")
    if with_attention:
        found["attention"] = find_exercise("attention")
    return found


@cache
def questions_of(name, seed=0):
    """Return the graded questions of an exercise of the course, drawn once for all tests."""
    return make_questions(find_exercise(name), seed, graded=True)


@cache
def sandbox():
    """Return the sandbox, tested once; tests of it are skipped where the system forbids it."""
    try:
        return probe()
    except CouldNotRun as error:
        pytest.skip(f"no sandbox here: {error}")


def outcome_of_weights(name, matrices):
    """Return the outcome of a design: what its `weights()` returns."""
    questions = questions_of(name)
    return judge(questions, ask_names({"weights": lambda: matrices}, questions.encoded))


def log_of(*events):
    """Return a log of events."""
    return "".join(json.dumps(event) + "\n" for event in events)


def zip_of(files):
    """Return a zip of names and contents."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


def handed_in(works, *, student="a label", created="2026-11-20T10:00:00+00:00", log=()):
    """Return the zip of `attnlab course submit`: works are {"double.py": content}."""
    files, entries = {}, {}
    for name, content in works.items():
        content = content if isinstance(content, bytes) else content.encode()
        files[f"work/{name}"] = content
        digest = hashlib.sha256(content).hexdigest()
        entry = {"file": f"work/{name}", "kind": "code", "sha256": digest}
        entries[name.rpartition(".")[0]] = entry
    manifest = {
        "format": FORM,
        "version": "0",
        "student": student,
        "created": created,
        "exercises": entries,
    }
    files["manifest.json"] = json.dumps(manifest)
    files["log.jsonl"] = log_of({"event": "begin"}, *log)
    return zip_of(files)


class Here:
    """A worker that runs programs in this process, for programs of these tests alone."""

    def ask(self, source, path, cases, *, is_graded):
        return ask_here(source, path, cases)


@contextmanager
def open_here():
    yield Here()


def grade_here(monkeypatch):
    """Let the commands that grade know one exercise of the course, and run programs in here."""
    monkeypatch.setattr("attnlab_course.grading.course_file.exercise_names", lambda: ["attention"])
    monkeypatch.setattr("attnlab_course.sandbox.jail.probe", lambda: None)
    monkeypatch.setattr("attnlab_course.sandbox.worker.Worker", lambda jail: open_here())


GOOD = "def double(number):\n    return number + number\n"
SQUARE = "def double(number):\n    return number**2\n"
RAISES = "def double(number):\n    raise ValueError(f'secret {number}')\n"
MULTIPLIES = "import numpy\ndef double(number):\n    return float(numpy.multiply(number, 2))\n"
