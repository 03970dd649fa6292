"""Honest answers of other styles get full marks; one that is right but for one thing loses that."""

import re
from pathlib import Path

import pytest

from attnlab_course.catalog import exercise_names, find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.judge import check_here
from tests.sampling import sampled

from .classroom import questions_of

HERE = Path(__file__).parent
VARIANTS = sorted((HERE / "variants").glob("*.py"))
NEAR_MISSES = re.findall(
    r"^## (\w+): (.+) \((\w+)\)\n((?:[-+].*\n)+)",
    (HERE / "near_misses.txt").read_text(),
    re.MULTILINE,
)
SEEDS = sampled((11, 12, 13), 1)
EVERY = 8  # of the near misses that run by default; of other styles, one for each exercise does
SAMPLED = [
    near if place % EVERY == 0 else pytest.param(*near, marks=pytest.mark.slow)
    for place, near in enumerate(NEAR_MISSES)
]


def outcome_of(exercise, source, seed):
    """Put the graded questions of a seed to an answer."""
    return check_here(questions_of(exercise.name, seed), exercise.with_given(source))


def right_answer(exercise, name):
    if name == "solution":
        return solution_text(exercise.source)
    return (HERE / "variants" / f"{exercise.name}__{name}.py").read_text()


def replaced(text, pieces):
    """Replace pieces of a text: lines with - before them by the lines with + that follow."""
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", pieces, re.MULTILINE):
        old, new = (re.sub(r"^[-+] ?", "", part[:-1], flags=re.MULTILINE) for part in (old, new))
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_an_honest_answer_of_another_style_gets_full_marks(path, seed):
    exercise = find_exercise(path.stem.partition("__")[0])
    outcome = outcome_of(exercise, path.read_text(), seed)
    assert [result.failure.words for result in outcome.checks if result.failure] == []
    assert outcome.points == exercise.points


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "check", "begin", "pieces"), SAMPLED)
def test_an_answer_right_but_for_one_thing_loses_that_alone(name, check, begin, pieces, seed):
    exercise = find_exercise(name)
    outcome = outcome_of(exercise, replaced(right_answer(exercise, begin), pieces), seed)
    assert [result.check.name for result in outcome.checks if not result.passed] == [check]


def test_every_exercise_is_answered_in_another_way_than_the_solution():
    """The solution gives the right answers, so only another program can show that it is right."""
    answered = {path.stem.partition("__")[0] for path in VARIANTS}
    kinds = {name: find_exercise(name).parts.kind for name in exercise_names()}
    assert answered == {name for name, kind in kinds.items() if kind != "text"}


def test_there_are_as_many_near_misses_as_promised():
    assert len(NEAR_MISSES) >= 80
