"""Honest answers of other styles get full marks; one that is right but for one thing loses that."""

import ast
import itertools
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
NEAR_MISSES, IDIOMS = (
    re.findall(
        r"^## (\w+): (.+) \((\w+)\)\n((?:[-+].*\n)+)",
        (HERE / file).read_text(),
        re.MULTILINE,
    )
    for file in ("near_misses.txt", "idioms.txt")
)
SEEDS = sampled((11, 12, 13), 1)
EVERY = 8  # of the near misses and idioms, one that runs by default; of other styles, all do
SAMPLED, IDIOMS_SAMPLED = (
    [
        answer if place % EVERY == 0 else pytest.param(*answer, marks=pytest.mark.slow)
        for place, answer in enumerate(answers)
    ]
    for answers in (NEAR_MISSES, IDIOMS)
)


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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "idiom", "begin", "pieces"), IDIOMS_SAMPLED)
def test_an_idiom_of_the_field_gets_full_marks(name, idiom, begin, pieces, seed):
    exercise = find_exercise(name)
    outcome = outcome_of(exercise, replaced(right_answer(exercise, begin), pieces), seed)
    assert [result.failure.words for result in outcome.checks if result.failure] == [], idiom


def test_a_step_in_single_precision_is_right_wherever_scores_are_large():
    """A softmax in float32 is the usual one; it leaves seven digits, before the sums."""
    exercise = find_exercise("multi_head")
    steps = [answer for answer in IDIOMS if answer[0] == "multi_head" and "float32" in answer[1]]
    assert len(steps) >= 3
    for (_, _, begin, pieces), seed in itertools.product(steps, (5, 12)):
        answer = replaced(right_answer(exercise, begin), pieces)
        assert outcome_of(exercise, answer, seed).passed


NAMED = {
    "multi_head": {"self.query": "self.W_q", "self.output": "self.out_proj"},
    "layer_norm": {"self.weight": "self.gamma", "self.bias": "self.beta"},
    "encoder_block": {"self.norm1": "self.ln_1", "self.norm2": "self.ln_2"},
    "cross_attention": {"self.key": "self.W_k"},
    "decoder_layer": {"self.self_attention": "self.own", "self.norm3": "self.last"},
}


@pytest.mark.parametrize("name", NAMED)
def test_parameters_of_other_names_cost_the_check_of_the_names_alone(name):
    exercise = find_exercise(name)
    answer = solution_text(exercise.source)
    for right, other in NAMED[name].items():
        answer = re.sub(rf"{re.escape(right)}\b", other, answer)
    outcome = outcome_of(exercise, answer, SEEDS[0])
    (failed,) = [result for result in outcome.checks if not result.passed]
    assert failed.check.name == "parameters"
    for right in NAMED[name]:
        assert right.removeprefix("self.") in failed.failure.words
    for other in NAMED[name].values():
        assert other.removeprefix("self.") in failed.failure.words


@pytest.mark.parametrize(
    ("name", "right", "other"),
    [
        ("softmax", "dim", "axis"),
        ("attention_dropout", "dropout", "p"),
        ("feed_forward", "dropout", "p_drop"),
        ("factorized_projection", "gated", "is_gated"),
        ("rotary_positions", "base", "theta"),
    ],
)
def test_an_argument_may_have_another_name(name, right, other):
    exercise = find_exercise(name)
    tree = ast.parse(solution_text(exercise.source))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == right:
            node.arg = other
        if isinstance(node, ast.Name) and node.id == right:
            node.id = other
    answer = ast.unparse(tree)
    assert f"{other}=" in answer
    assert outcome_of(exercise, answer, SEEDS[0]).passed


def test_every_exercise_is_answered_in_another_way_than_the_solution():
    """The solution gives the right answers, so only another program can show that it is right."""
    answered = {path.stem.partition("__")[0] for path in VARIANTS}
    kinds = {name: find_exercise(name).parts.kind for name in exercise_names()}
    assert answered == {name for name, kind in kinds.items() if kind != "text"}


def test_there_are_as_many_near_misses_and_idioms_as_promised():
    assert len(NEAR_MISSES) >= 80
    assert len(IDIOMS) >= 90
