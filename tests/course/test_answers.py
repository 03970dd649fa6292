"""Honest answers of other styles get full marks; one that is right but for one thing loses that."""

from pathlib import Path

import pytest

from attnlab.course.cases import draw_questions
from attnlab.course.catalog import exercise_names, find_exercise
from attnlab.course.check import check_here

HERE = Path(__file__).parent
VARIANTS = sorted((HERE / "variants").glob("*.py"))
NEAR_MISSES = sorted((HERE / "near_misses").glob("*.py"))
SEEDS = (11, 12, 13)
FEWER = {"attention_heatmap": SEEDS[:1]}


def outcomes(path: Path):
    """Put the graded questions of some seeds to the answer in a file."""
    exercise = find_exercise(path.stem.partition("__")[0])
    source = path.read_text()
    for seed in FEWER.get(exercise.name, SEEDS):
        questions = draw_questions(exercise, seed, graded=True)
        yield exercise, check_here(questions, source)


@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_an_honest_answer_of_another_style_gets_full_marks(path):
    for exercise, outcome in outcomes(path):
        failures = [each.failure.words for each in outcome.checks if each.failure]
        assert failures == []
        assert outcome.points == exercise.points


@pytest.mark.parametrize("path", NEAR_MISSES, ids=lambda path: path.stem)
def test_an_answer_that_is_right_but_for_one_thing_loses_that_alone(path):
    name = path.stem.partition("__")[2]
    for _, outcome in outcomes(path):
        failed = [each.check.name.replace(" ", "_") for each in outcome.checks if each.failure]
        assert failed == [name]


def test_there_are_as_many_as_promised():
    assert len(VARIANTS) >= 40
    assert len(NEAR_MISSES) >= 10
    answered = {path.stem.partition("__")[0] for path in [*VARIANTS, *NEAR_MISSES]}
    assert answered <= set(exercise_names())
