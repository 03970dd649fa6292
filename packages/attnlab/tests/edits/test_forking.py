"""Forks: two answers that are alike up to a step, and differ after it by the edits alone."""

from dataclasses import replace

import pytest
import torch

from attnlab.edits import CutEdge, ScaleSite, ZeroHead, ZeroSite, edit
from attnlab.edits.forks import fork
from attnlab.errors import WrongUsage
from attnlab.look.questions import Continuation
from tests.random_models import new_model


@pytest.fixture(scope="module")
def question():
    model = new_model("decoder", 4, vocab_size=5, d_model=6, num_heads=2)
    return Continuation(model, torch.tensor([[3, 1, 2, 0]]), 5, "Sabcd", [0], 3)


@pytest.mark.parametrize("step", [0, 2, 4])
def test_answers_are_alike_before_the_fork_and_edited_after_it(question, step):
    edits = ZeroHead(layer=0, head=[0, 1]), ZeroSite(site="layers.1.attention.output")
    found = fork(question, *edits, step=step + 1)
    assert found.before == question.trace()
    assert found.after.steps[:step] == found.before.steps[:step]
    assert found.after.tokens[: 4 + step] == found.before.tokens[: 4 + step]
    for number, (one, other) in enumerate(zip(found.before.steps, found.after.steps, strict=True)):
        assert one.position == other.position
        assert (one.probabilities != other.probabilities) == (number >= step)
    ids = torch.tensor([["Sabcd".index(token) for token in found.after.tokens[: 4 + step]]])
    with edit(question.model, *edits):
        expected = question.model(ids)[0, -1, 1:].softmax(-1).tolist()
    assert found.after.steps[step].probabilities == pytest.approx(expected, abs=1e-6)
    assert len(found.certificate.edits) == 2
    pairs = zip(found.before.steps, found.after.steps, strict=True)
    diverged = [n for n, (one, other) in enumerate(pairs, 1) if one.choice != other.choice]
    assert found.diverged_at == (diverged[0] if diverged else None)


def test_an_edit_that_changes_no_choice_parts_nothing(question):
    found = fork(question, ScaleSite(site="layers.0.attention.output", factor=1.0 + 1e-6))
    assert found.diverged_at is None
    assert found.to_mapping()["before"]["tokens"] == found.to_mapping()["after"]["tokens"]


@pytest.fixture
def no_pass(question, monkeypatch):
    """Fail where the model is run."""
    refuse = lambda *_, **__: pytest.fail("a pass was made")  # noqa: E731
    monkeypatch.setattr(type(question.model), "forward", refuse)


@pytest.mark.usefixtures("no_pass")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ZeroHead(layer=9, head=0), "layer=9 is out of range"),
        (CutEdge(query=8, key=0), r"query=8 is out of range; the longest input has 8 positions"),
        (CutEdge(query="e", key=0), "no token is called 'e'; the vocabulary begins S, a, b, c, d"),
        (ZeroHead(head=0, row=1), r"row=1 is out of range; the batch has one row, number 0"),
    ],
)
def test_an_edit_of_what_a_question_cannot_have_is_refused_before_any_pass(
    question, wrong, message
):
    with pytest.raises(WrongUsage, match=message):
        fork(question, wrong)


@pytest.mark.usefixtures("no_pass")
def test_a_token_that_an_answer_of_one_step_cannot_read_is_refused_before_any_pass(question):
    late = CutEdge(query="S", key="d")
    one_step = replace(question, num_tokens=1)
    message = "the token 'd' is not in the input; its tokens are 'c', 'a', 'b', 'S'"
    with pytest.raises(WrongUsage, match=message):
        fork(one_step, late)
    for asked, edited in ((question, late), (one_step, CutEdge(query="S", key="c"))):
        with pytest.raises(pytest.fail.Exception):  # of more steps 'd' may be chosen and read
            fork(asked, edited)


def test_a_step_that_is_not_there_is_refused(question):
    for step in (6, 0, -1, 1.5):
        with pytest.raises(WrongUsage, match="step"):
            fork(question, ZeroHead(layer=0, head=0), step=step)


def test_a_position_that_only_the_answer_reaches_is_edited(question):
    found = fork(question, ZeroHead(head=[0, 1], query=7))
    assert found.certificate.effects[""].largest > 0
