"""The exercises themselves: solutions pass, starters fail, mistakes are told by their names."""

import ast
import statistics
from dataclasses import replace

import pytest

from attnlab_course.catalog import HOME, exercise_names, find_exercise
from attnlab_course.cells import (
    leaked_lines,
    starter_cells,
    starter_notebook,
    starter_program,
    with_line,
)
from attnlab_course.exercise import CourseExercise, Mistake
from attnlab_course.judge import check_here, judge
from attnlab_course.mistakes import ask_reference, with_mistake
from attnlab_course.verify import verify_exercise
from tests.sampling import sampled

from .classroom import questions_of

MANY = 50
NAMES = exercise_names()
CODED = [name for name in NAMES if find_exercise(name).parts.kind == "code"]
# One of each chapter, and of each way to answer: a function, a class, matrices, data, words.
SAMPLE = (
    *("multi_head", "identity", "predict_handmade", "training_step", "scramble_test"),
    *("trace_steps", "rotary_positions", "puzzle_program", "reflect_model"),
)
SAMPLED = sampled(NAMES, SAMPLE)


def test_the_chapters_name_every_file_once():
    files = sorted(path.stem for path in HOME.glob("*.py") if path.stem != "__init__")
    assert sorted(NAMES) == files


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # a mistake, no error
@pytest.mark.parametrize("name", SAMPLED)
def test_the_solution_passes_the_starter_fails_and_each_mistake_is_named(name):
    assert verify_exercise(find_exercise(name), [0]).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_is_sound_on_many_seeds(name):
    assert verify_exercise(find_exercise(name), range(MANY)).problems == ()


def test_an_exercise_is_a_page_with_the_mistakes_that_people_make():
    exercises = [find_exercise(name) for name in NAMES]
    lengths = [len(exercise.source.splitlines()) for exercise in exercises]
    checked = [exercise for exercise in exercises if exercise.parts.kind != "text"]
    mistakes = [len(exercise.mistakes) for exercise in checked]
    own = [len(exercise.named_mistakes) for exercise in checked]
    assert len(checked) >= 30
    assert min(mistakes) >= 5
    assert 3 <= min(own) <= max(own) <= 20
    assert statistics.median(lengths) <= 220
    assert max(lengths) <= 360


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_says_what_a_student_needs(name):
    exercise = find_exercise(name)
    parts = exercise.parts
    cells = starter_cells(exercise.source, name)
    ast.parse(starter_program(cells))
    assert "**Write" in cells[0].text or parts.kind in ("predict", "text")
    assert len(exercise.hints) >= 2
    assert len({each.name for each in parts.checks}) == len(parts.checks)
    mistakes = exercise.named_mistakes
    assert len({each.says for each in mistakes}) == len(mistakes)
    assert bool(parts.rubric) == (parts.kind == "text")
    assert set(parts.needs) <= set(NAMES)
    shown = starter_program(cells) + starter_notebook(cells, name)
    assert "EXERCISE" not in shown
    assert (f"({name}.svg)" in shown) == (parts.picture is not None)


@pytest.mark.parametrize("name", NAMES)
def test_hints_do_not_begin_with_the_answer(name):
    exercise = find_exercise(name)
    starter = starter_program(starter_cells(exercise.source, name))
    for hint in exercise.hints:
        shown = "\n".join([starter, *(line.strip() for line in hint.splitlines())])
        assert leaked_lines(shown, exercise.source) == []


def test_what_only_a_student_meets_is_found(monkeypatch):
    """Something that is appended to every answer overwrites the student's matrices."""
    monkeypatch.setattr(CourseExercise, "with_given", lambda self, program: f"{program}\nKm = None")
    identity = find_exercise("identity")
    parts = replace(identity.parts, mistakes=identity.parts.mistakes[:1])
    problems = verify_exercise(replace(identity, parts=parts), [0]).problems
    assert any(words.startswith("as a student: the solution in the program") for words in problems)
    assert any("the solution in the notebook fails" in words for words in problems)
    assert any("as a student: the mistake" in words for words in problems)
    assert not any(words.startswith("seed 0") for words in problems)


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # a mistake, no error
@pytest.mark.parametrize(
    "name",
    sampled(["attention", "tokenizer", "softmax", "multi_head", "layer_norm"], 2),
)
def test_a_slip_fails_one_check_and_costs_less_than_half_of_the_points(name, monkeypatch):
    """Without the rule that counts it once, the same slips fail several checks."""
    exercise, questions = find_exercise(name), questions_of(name)

    def failed_by(mistake):
        outcome = judge(questions, ask_reference(questions, with_mistake(exercise, mistake)))
        return [each for each in outcome.checks if not each.passed and not each.is_open], outcome

    for mistake in exercise.named_mistakes:
        failed, outcome = failed_by(mistake)
        if outcome.points == 0:  # it computes nothing
            called = [each for each in failed if each.case.answer in ("result", "inputs")]
            assert called, mistake.name
            assert all(each.failure.kind for each in called), mistake.name
            continue
        assert len(failed) == 1, mistake.name
        assert exercise.points / 2 < outcome.points < exercise.points
    monkeypatch.setattr("attnlab_course.judge._count_once", lambda *_: None)
    assert max(len(failed_by(mistake)[0]) for mistake in exercise.mistakes) > 2


def test_a_mistake_that_the_given_parts_undo_is_found(monkeypatch):
    """One that edits what is given is none that a student can make in a file."""
    identity = find_exercise("identity")
    undone = Mistake("swapped", "[Km, Qm, Vm]", "[Km, Qm, 2 * Vm]", "?")
    parts = replace(identity.parts, mistakes=(undone,))
    problems = verify_exercise(replace(identity, parts=parts), [0]).problems
    assert any("as a student: the mistake 'swapped' passes" in words for words in problems)


def test_a_mistake_or_a_spelling_of_one_that_is_none_is_found():
    attention = find_exercise("attention")
    wrong = attention.mistake("softmax over queries")
    with_right = replace(wrong, also=("torch.softmax(scores, -1)",))
    harmless = Mistake("harmless", "weights @ value, weights", "(weights @ value), weights", "?")
    parts = replace(attention.parts, mistakes=(with_right, harmless))
    problems = verify_exercise(replace(attention, parts=parts), [0]).problems
    for name in ("softmax over queries", "harmless"):
        assert any(f"the mistake '{name}' passes" in words for words in problems)


def test_a_starter_that_shows_its_solution_is_found():
    attention = find_exercise("attention")
    starter = starter_program(starter_cells(attention.source, "attention"))
    line = "scores = scores.masked_fill(~mask, -math.inf)"
    assert leaked_lines(starter, attention.source) == []
    assert leaked_lines(f"{starter}\n# {line}\n    {line}\n", attention.source) == [line]


ECHO = "return next(value for name, value in locals().items() if name != 'self')"
ZEROS = (
    "import torch as t; return next(t.zeros_like(v) for v in locals().values() "
    "if isinstance(v, t.Tensor))"
)


@pytest.mark.parametrize("name", sampled(CODED, set(CODED) & set(SAMPLE)))
def test_an_answer_that_echoes_or_is_constant_gets_no_points(name):
    exercise = find_exercise(name)
    for line in (ECHO, ZEROS, "return 1.0"):
        assert check_here(questions_of(name), with_line(exercise.source, line)).points == 0, line
