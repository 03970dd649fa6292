"""How two models are compared: an interval over texts and trainings, and figures class by class."""

import math

import pytest
import torch

from attnlab.core.stats import is_above
from attnlab.experiments.sentiment.classes import class_figures, confusion_matrix
from attnlab.experiments.sentiment.comparison import gain_over
from tests.sampling import first_of_each


def below(x):
    """The normal distribution function."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


def coverage(num_texts, num_trainings, spread, interval=gain_over, draws=1_500):
    """Draw test sets and trainings of a model and a baseline whose true difference is known; how
    often is it inside?

    Each text has a difficulty that both share; each training of the model is as good as chance made
    it.
    """
    generator = torch.Generator().manual_seed(0)
    truth = below(0.9 / math.sqrt(1 + spread**2)) - below(0.6)
    inside = 0
    for _ in range(draws):
        shared = 0.8 * torch.randn(num_texts, generator=generator)
        other = shared + 0.6 * torch.randn(num_texts, generator=generator) > -0.6
        trainings = spread * torch.randn(num_trainings, 1, generator=generator)
        one = (
            shared + 0.6 * torch.randn(num_trainings, num_texts, generator=generator) + trainings
            > -0.9
        )
        found = interval(one, other)
        inside += found.low <= truth <= found.high
    return inside / draws


@pytest.mark.parametrize("num_texts", [5, 300])
@pytest.mark.parametrize(
    ("num_trainings", "spread"),
    first_of_each([(3, 0.3), (2, 0.0), (3, 0.1), (5, 0.2)], lambda case: case[0] == 3),
)
def test_about_95_of_100_intervals_hold_the_true_difference(num_texts, num_trainings, spread):
    assert coverage(num_texts, num_trainings, spread) >= 0.935


def test_an_interval_over_texts_alone_is_found_out_by_its_coverage():
    def over_texts_alone(one, other):
        return gain_over(one.double().mean(0, keepdim=True), other)

    assert coverage(300, 3, 0.5, over_texts_alone, draws=100) < 0.6


def test_few_texts_that_all_fall_one_way_decide_nothing_and_many_do():
    for num_texts, expected in ((1, None), (4, None), (40, True)):
        right = torch.ones(3, num_texts, dtype=torch.bool)
        assert is_above(gain_over(right, ~right[0]), 0) is expected


def test_the_interval_of_one_training_is_over_the_texts_alone():
    right = torch.tensor([[True, True, False, True] * 50])
    other = torch.tensor([False, True, True, False] * 50)
    same = gain_over(right.repeat(2, 1), other)  # two trainings that never differ
    assert gain_over(right, other) == same
    assert str(same) == "+25.0 points (+13.3 to +36.2)"
    assert same.in_words == "with 95 % confidence: better"
    none = gain_over(right, right[0])
    assert none.in_words == "no difference that these texts and trainings can show"


def test_a_difference_and_its_other_way_round_are_the_same():
    draw = torch.Generator().manual_seed(1)
    one, other = torch.rand(3, 50, generator=draw) < 0.8, torch.rand(3, 50, generator=draw) < 0.6
    there, back = gain_over(one, other), gain_over(other, one)
    assert [there.value, there.low, there.high] == pytest.approx(
        [-back.value, -back.high, -back.low]
    )


def test_the_figures_of_classes_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = torch.Generator().manual_seed(2)
    labels = torch.randint(5, (200,), generator=draw)
    answers = torch.randint(5, (1, 200), generator=draw)
    counts = confusion_matrix(labels, answers, 5)
    assert counts.tolist() == metrics.confusion_matrix(labels, answers[0]).tolist()
    *expected, num_texts = metrics.precision_recall_fscore_support(labels, answers[0])
    assert counts.sum(1).tolist() == num_texts.tolist()
    for found, column in zip(class_figures(counts).T.tolist(), expected, strict=True):
        assert found == pytest.approx(list(column))


def test_a_class_that_is_never_answered_or_never_there_has_no_figure_of_it():
    counts = confusion_matrix(torch.tensor([0, 0, 1]), torch.tensor([[0, 2, 0], [0, 0, 0]]), 3)
    assert counts.tolist() == [[1.5, 0, 0.5], [1, 0, 0], [0, 0, 0]]
    first, second, third = class_figures(counts).tolist()
    assert first[:2] == pytest.approx((1.5 / 2.5, 0.75))
    assert second == pytest.approx([math.nan, 0, 0], nan_ok=True)
    assert third == pytest.approx([0, math.nan, 0], nan_ok=True)
