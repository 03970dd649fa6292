"""Mistakes that are made in any program, named although the exercise does not declare them."""

from dataclasses import replace

import pytest

from attnlab_course import exercise as exercise_module
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.feedback import check_hint, mistake_hint
from attnlab_course.general_mistakes import general_mistakes
from attnlab_course.judge import check_here
from attnlab_course.mistakes import with_mistake

from .classroom import questions_of

SOFTMAX = """
import torch
def softmax(x, dim=-1):
    grown = torch.exp({scores})
    return grown / {total}
"""
BY_AXIS = "grown.sum(dim=dim, keepdim=True)"
PROGRAMS = [
    ("softmax", SOFTMAX.format(scores="x", total="grown.sum(0, keepdim=True)"), "over axis 0"),
    ("softmax", SOFTMAX.format(scores="x", total="grown.sum()"), "one for all"),
    ("softmax", SOFTMAX.format(scores="x", total="grown.sum(dim)"), "axis not kept"),
    ("softmax", SOFTMAX.format(scores="x", total=BY_AXIS.replace("sum", "mean")), "mean for sum"),
]
CHANGES = [
    (
        "attention",
        "return weights @ value, weights",
        "return weights, weights @ value",
        "parts swapped",
    ),
    ("attention", "return weights @ value, weights", "return weights @ value", "only one part"),
    ("attention", "/ math.sqrt", "* math.sqrt", "* for /"),
    ("attention", "key.transpose(-2, -1)", "key.permute(2, 1, 0)", "without key.transpose(-2, -1)"),
    ("attention", "key.transpose(-2, -1)", "key", "without key.transpose(-2, -1)"),
    ("causal_mask", "queries if keys is None else keys", "queries", "always queries"),
    ("layer_norm", " + self.bias", "", "without + self.bias"),
    ("layer_norm", "torch.sqrt(variance + self.eps)", "(variance + self.eps)", "without sqrt"),
    ("multi_head", "self.output(mixed)", "mixed", "without output"),
    ("training_step", ", ignore_index=PAD", "", "without ignore_index=PAD"),
    ("learning_rate", "(step + 1)", "step", "without + 1"),
]


def changed(name, old, new):
    """Return the solution with one change, and other names, so that it is no text of ours."""
    text = solution_text(find_exercise(name).source)
    assert text.count(old) == 1
    return text.replace(old, new)


NAMED = [
    *PROGRAMS,
    *((name, changed(name, old, new), wanted) for name, old, new, wanted in CHANGES),
]


@pytest.mark.parametrize(("name", "source", "wanted"), NAMED)
def test_a_step_term_axis_or_line_that_is_another_is_named(name, source, wanted):
    outcome = check_here(questions_of(name), source)
    assert outcome.mistake is not None
    assert outcome.mistake.name == wanted
    assert find_exercise(name).mistake(wanted) == outcome.mistake


def test_without_the_general_mistakes_these_programs_have_no_name(monkeypatch):
    monkeypatch.setattr(exercise_module, "general_mistakes", lambda *_: {})
    for name, source, _ in NAMED:
        questions = questions_of(name)
        bare = replace(questions, exercise=replace(questions.exercise))  # nothing is kept of it
        assert check_here(bare, source).mistake is None


def test_what_an_exercise_gives_holds_no_mistake():
    solution = "def given(x):\n    return x.sum()\n\n\ndef asked(x):\n    return -x\n"
    starter = solution.replace("-x", "0")
    assert [*general_mistakes(solution, starter)] == ["minus lost"]
    assert {"mean for sum", "minus lost"} <= {*general_mistakes(solution, "")}


def test_an_answer_that_says_nothing_is_named_after_no_mistake():
    for body in ("pass", "return None", "raise ValueError"):
        source = f"def softmax(x, dim=-1):\n    {body}\n"
        assert check_here(questions_of("softmax"), source).mistake is None


def test_the_hint_of_a_mistake_says_it_and_shows_the_line_of_the_answer():
    attention = find_exercise("attention")
    source = with_mistake(attention, attention.mistake("no scaling")).replace("scores", "fit")
    says, line = mistake_hint(attention, "no scaling", source, 0)
    assert says.startswith("The scores are not divided by")
    assert line.strip() == "fit = query @ key.transpose(-2, -1)"
    general = mistake_hint(attention, "* for /", changed("attention", "/ math", "* math"), 0)
    assert general[1].strip().endswith("* math.sqrt(query.shape[-1])")


def test_the_line_that_is_shown_is_not_one_that_other_mistakes_have_or_that_is_right():
    attention, copy_first = find_exercise("attention"), find_exercise("copy_first")
    source = with_mistake(attention, attention.mistake("inverted mask")).replace(
        "weights.masked_fill(mask, 0.0)", "torch.nan_to_num(weights)"
    )
    hint = mistake_hint(attention, "inverted mask", source, 0)
    assert hint[1].strip() == "scores = scores.masked_fill(mask, -math.inf)"
    source = with_mistake(copy_first, copy_first.mistake("looks at itself"))
    assert mistake_hint(copy_first, "looks at itself", source, 0) == [copy_first.hints[1]]


def test_where_no_line_is_like_it_the_hint_is_one_on_the_subject():
    attention = find_exercise("attention")
    hints = attention.hints
    assert mistake_hint(attention, "inverted mask", "", 0) == [hints[3]]
    assert mistake_hint(attention, "inverted mask", "", 4) == []


def test_the_hint_of_a_failed_check_speaks_of_it_and_is_never_the_whole_answer():
    layer, mask = find_exercise("decoder_layer"), find_exercise("multi_head")
    assert check_hint(layer, "source mask", 0) == [f"On the check source mask: {layer.hints[2]}"]
    assert check_hint(layer, "causal", 0) == [f"On the check causal: {layer.hints[1]}"]
    assert check_hint(layer, "causal", 2) == []  # it was seen
    assert check_hint(layer, "weights", 0) == check_hint(layer, "", 0) == []
    assert "mask" in mask.hints[-1]
    assert check_hint(mask, "mask", 0) == []
