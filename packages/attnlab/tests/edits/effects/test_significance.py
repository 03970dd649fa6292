"""Significance: against exact enumeration on small cases, and by calibration on simulated ones."""

import math

import pytest
import torch

from attnlab.edits.effects import significance
from attnlab.edits.effects.significance import (
    adjusted,
    assess,
    enough,
    intervals,
    least_p,
    p_values,
)
from attnlab.errors import WrongUsage
from attnlab.seeds import generator


def draws(*shape, seed=0):
    source = generator(seed, "tests", "significance")
    return torch.randn(*shape, generator=source, dtype=torch.float64)


def listed_p(values):
    """The share of all sign patterns whose mean is as far from 0 as that of the data."""
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0]).double()] * len(values))
    sums = (signs @ torch.tensor(values, dtype=torch.float64)).abs()
    return float((sums >= abs(sum(values)) - 1e-12).double().mean())


@pytest.mark.parametrize("number", [2, 5, 11])
def test_few_inputs_are_tested_exactly(number):
    values = draws(6, number, seed=number) + 0.4
    assert p_values(values).tolist() == pytest.approx([listed_p(row) for row in values.tolist()])


def test_many_inputs_are_tested_as_the_enumeration_would():
    values = draws(4, 15, seed=3) + torch.tensor([[0.0], [0.3], [0.6], [1.5]])
    exact = torch.tensor([listed_p(row) for row in values.tolist()], dtype=torch.float64)
    found = p_values(values, draws=20_000)
    assert float(((found - exact).abs() / (exact * (1 - exact) / 20_000 + 1e-9).sqrt()).max()) < 4.0
    assert torch.equal(found, p_values(values, draws=20_000))  # the seed decides


def test_the_data_count_among_the_draws_so_that_p_is_never_0():
    assert p_values(torch.ones(1, 40), draws=99).tolist() == pytest.approx([0.01])


def test_no_effect_at_all_has_p_1_and_an_interval_of_one_point():
    values = torch.zeros(2, 20)
    assert p_values(values).tolist() == [1.0, 1.0]
    low, high = intervals(values)
    assert low.tolist() == high.tolist() == [0.0, 0.0]


SKEWED = {
    "normal": (lambda x: x, 0.0, 0.95),
    "exponential": (lambda x: -torch.special.ndtr(x).log(), 1.0, 0.94),
    "minus exponential": (lambda x: torch.special.ndtr(x).log(), -1.0, 0.94),
    "squares": (lambda x: x.square(), 1.0, 0.93),
    "lognormal": (lambda x: x.exp(), math.exp(0.5), 0.91),
}


@pytest.mark.parametrize("number", [10, 14])
def test_intervals_of_few_skewed_differences_hold_the_truth_as_often_as_is_said(number):
    """Each distribution has the share that the docstring of `assess` says, but for the draws."""
    for name, (made, truth, share) in SKEWED.items():
        low, high = intervals(made(draws(4_000, number, seed=number)))
        held = float(((low <= truth) & (truth <= high)).double().mean())
        assert held == pytest.approx(share, abs=0.015), name


def test_the_skewed_interval_of_symmetric_values_is_students():
    low, high = intervals(torch.tensor([[-3.0, -1.0, 0.0, 1.0, 3.0]]))
    reach = 2.7764 * 5**0.5 / 5**0.5  # of 4 degrees of freedom; the variance is 20 / 4
    assert (low.item(), high.item()) == pytest.approx((-reach, reach), abs=1e-4)


def test_the_skewed_interval_follows_the_unit_and_the_sign():
    values = draws(3, 12).exp()
    low, high = intervals(values)
    small = torch.stack(intervals(values * 1e-9))
    assert torch.allclose(small, torch.stack((low, high)) * 1e-9, rtol=1e-12)
    assert torch.allclose(torch.stack(intervals(-values)), torch.stack((-high, -low)), rtol=1e-12)


def check_holm(p):
    """Holm's p is the largest Bonferroni p of all sets that hold the test."""
    found = adjusted(p, "holm")
    for own in range(len(p)):
        numbers = [number for number in range(2 ** len(p)) if number >> own & 1]
        sets = [[i for i in range(len(p)) if number >> i & 1] for number in numbers]
        wanted = max(min(1.0, len(members) * float(p[members].min())) for members in sets)
        assert abs(float(found[own]) - wanted) < 1e-12


def check_bh(p):
    """Benjamini and Hochberg: up to the last k with p(k) <= k/m · level."""
    found = adjusted(p, "bh")
    ordered = p.sort().values
    for level in (0.01, 0.05, 0.1, 0.2, 0.5, 0.9):
        under = [k for k in range(1, len(p) + 1) if float(ordered[k - 1]) <= k / len(p) * level]
        wanted = p <= ordered[under[-1] - 1] if under else torch.zeros_like(p, dtype=torch.bool)
        assert torch.equal(found <= level, wanted)


@pytest.mark.parametrize("number", [1, 5])
def test_corrections_are_the_closed_test_and_the_rule_of_benjamini_and_hochberg(number):
    for seed in range(5):
        p = torch.rand(number, generator=generator(seed, "p"), dtype=torch.float64)
        check_holm(0.3 * p)
        check_bh(p)


def test_equal_p_values_stay_equal():
    for kind in ("holm", "bh"):
        found = adjusted(torch.tensor([0.02, 0.01, 0.02, 0.9]), kind)
        assert found[0] == found[2]


def test_assess_puts_it_together():
    found = assess(torch.stack([draws(20) + 3.0, draws(20, seed=1)]), correction="holm")
    assert found.p_corrected[0] == 2 * found.p[0]
    assert found.low[0] > 2.0 < found.high[0]
    assert found.p_corrected[1] > 0.05


@pytest.mark.parametrize("correction", ["holm", "bh", "none"])
@pytest.mark.parametrize("number", [2, 14, 16, 30])
def test_no_effect_by_itself_has_a_lower_p_than_the_least(number, correction):
    """One effect as sure as can be, among others that are none."""
    told = {"correction": correction, "draws": 2_000}
    values = torch.zeros(7, number, dtype=torch.float64)
    values[3] = 1.0
    found = float(assess(values, **told).p_corrected[3])
    bound = 0.1 if number == 16 else 1e-9  # of 16 inputs, p itself is drawn
    assert found == pytest.approx(least_p(number, 7, **told), rel=bound)


@pytest.mark.parametrize("correction", ["holm", "none"])
@pytest.mark.parametrize(("tests", "alpha"), [(1, 0.05), (14, 0.2), (28, 1e-3), (1008, 0.05)])
def test_enough_inputs_and_draws_are_enough_and_one_less_is_not(tests, alpha, correction):
    inputs, draws = enough(alpha, tests, correction=correction)
    told = {"correction": correction, "draws": draws}
    assert least_p(inputs, tests, **told) <= alpha
    assert inputs == enough(1.0)[0] == 2 or least_p(inputs - 1, tests, **told) > alpha
    assert least_p(60, tests, **told) <= alpha < least_p(60, tests, **{**told, "draws": draws - 1})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: p_values(torch.zeros(3)), "at least two inputs"),
        (lambda: p_values(torch.zeros(3, 1)), "at least two inputs"),
        (lambda: p_values(torch.tensor([[0.0, float("nan")]])), "finite"),
        (lambda: intervals(torch.zeros(2, 4), level=95), "level must be between 0 and 1"),
        (lambda: adjusted(torch.tensor([0.1]), "bonferroni"), "no correction"),
        (lambda: adjusted(torch.tensor([1.1])), "from 0 to 1"),
        (lambda: assess([[1.0, 2.0]]), "got a list"),
        (lambda: adjusted([0.1]), "got a list"),
        (lambda: intervals(torch.zeros(2, 4), level="0.95"), "level must be between 0 and 1"),
        (lambda: p_values(torch.zeros(2, 20), draws=0), "draws must be an integer"),
    ],
)
def test_what_cannot_be_tested_is_said(call, words):
    with pytest.raises(WrongUsage) as caught:
        call()
    assert words in str(caught.value)


def test_of_no_effects_nothing_is_found():
    for number in (3, 20):
        assert [each.shape for each in assess(torch.zeros(0, number))] == [(0,)] * 5


@pytest.mark.parametrize("number", [9, 20])
def test_sign_patterns_are_taken_some_at_a_time_with_the_same_p(number, monkeypatch):
    values = draws(50, number)
    whole = p_values(values, draws=500, seed=3)
    monkeypatch.setattr(significance, "_AT_ONCE", 4_000)
    assert p_values(values, draws=500, seed=3).shape == whole.shape
    if number <= significance.MAX_LISTED:
        assert torch.equal(p_values(values, draws=500, seed=3), whole)


def test_a_small_p_never_goes_with_an_interval_that_holds_nothing():
    source = torch.Generator().manual_seed(3)
    values = torch.empty(2_000, 27).exponential_(generator=source).double()
    values *= torch.rand(2_000, 27, generator=source) < 0.3
    values -= 0.3
    for some in values.split(100):
        found = assess(some, correction="none", draws=1_000)
        holds = (found.low <= 0) & (found.high >= 0)
        assert not bool((holds & (found.p <= 0.05)).any())
    found = assess(torch.zeros(1, 5), correction="none")
    assert found.p.tolist() == [1.0]
