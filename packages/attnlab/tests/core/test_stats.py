import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import optimize, special

from attnlab.core import stats
from attnlab.core.stats import (
    Interval,
    assign,
    is_above,
    mean_interval,
    mean_silhouette,
    share_interval,
    sign_test,
    student_quantile,
    student_tails,
)
from attnlab.errors import WrongUsage
from tests.sampling import sampled


def test_an_interval_that_holds_the_bound_or_has_no_ends_decides_nothing():
    assert is_above(Interval(0.5, -0.8, 1.7), 0) is None
    assert is_above(mean_interval([1.0]), 0) is None
    assert is_above(Interval(-9.0, -12.0, -0.1), 0) is False
    assert is_above(Interval(2.0, 0.1, 4.0), 0) is True


def test_one_value_has_no_interval_none_no_mean_and_a_share_ends_at_nothing_and_all():
    assert math.isnan(mean_interval([1.0]).low)
    with pytest.raises(WrongUsage, match="at least one"):
        mean_interval([])
    with pytest.raises(WrongUsage, match="5 of 4"):
        share_interval(5, 4)
    assert share_interval(0, 5).low == 0.0
    assert share_interval(5, 5).high == 1.0


# Ends that SciPy 1.17 gives: Student's t for the mean of 0, 1, ... n - 1, and Wilson for a share.
KNOWN_MEANS = {
    2: (-5.853102368087347, 6.853102368087347),
    3: (-1.4841377117503303, 3.4841377117503303),
    10: (2.334149410331831, 6.665850589668169),
    31: (11.664983044214342, 18.335016955785658),
}
KNOWN_SHARES = {
    (0, 5): (0.0, 0.43448246478317476),
    (1, 40): (0.004426831502681396, 0.1288136896347409),
    (8, 10): (0.4901624715366418, 0.9433178485456248),
    (50, 100): (0.4038315303659956, 0.5961684696340044),
}


FAULTS = {
    "shares 5 % too wide": ("normal_quantile", lambda f: lambda: 1.05 * f()),
    "means 1 % too narrow": ("student_quantile", lambda f: lambda freedom: 0.99 * f(freedom)),
    "means by the normal distribution": ("student_quantile", lambda f: lambda _: 1.959964),
    "divided by n, not by n - 1": (
        "student_quantile",
        lambda f: lambda freedom: f(freedom) * math.sqrt(freedom / (freedom + 1)),
    ),
    "no ends": ("student_quantile", lambda f: lambda freedom: math.nan),
}


def largest_difference_from_known():
    """Return the largest distance of an end of an interval from SciPy's; NaN if one is NaN."""
    pairs = [(stats.mean_interval(range(n)), ends) for n, ends in KNOWN_MEANS.items()]
    pairs += [(stats.share_interval(*counts), ends) for counts, ends in KNOWN_SHARES.items()]
    differences = [
        abs(end - known_end)
        for interval, known in pairs
        for end, known_end in zip((interval.low, interval.high), known, strict=True)
    ]
    return max(differences, key=lambda difference: (math.isnan(difference), difference))


def test_the_intervals_are_those_of_scipy():
    assert largest_difference_from_known() < 1e-9


@pytest.mark.parametrize(("name", "fault"), FAULTS.values(), ids=FAULTS)
def test_an_interval_that_is_computed_wrongly_is_not_that_of_scipy(name, fault, monkeypatch):
    monkeypatch.setattr(stats, name, fault(getattr(stats, name)))
    assert not largest_difference_from_known() < 1e-9


@pytest.mark.parametrize(
    ("wins", "losses", "expected"), [(5, 0, 2 / 32), (0, 0, 1.0), (3, 3, 1.0), (1, 8, 20 / 512)]
)
def test_the_sign_test_is_the_two_sided_exact_one(wins, losses, expected):
    assert sign_test(wins, losses) == sign_test(losses, wins) == pytest.approx(expected)


@pytest.mark.parametrize(
    "costs", [torch.zeros(2, 3), torch.tensor([[float("nan")]]), torch.tensor([[float("inf")]])]
)
def test_costs_that_are_no_square_of_numbers_are_refused(costs):
    with pytest.raises(WrongUsage, match="a square of finite costs"):
        assign(costs)


def test_silhouette_is_one_for_points_and_nothing_for_a_group_of_one():
    apart = 1.0 - torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))
    assert mean_silhouette(apart, torch.tensor([0, 0, 1, 1])) == 1.0
    assert mean_silhouette(apart[:2, :2], torch.tensor([0, 1])) == 0.0


FREEDOMS = [1, 2, 3, 4, 9, 30, 99, 1000, 100_000]
LEVELS = [0.1, 0.5, 0.9, 0.95, 0.99, 0.999_99]
DISTANCES = np.array([0.0, 1e-9, *np.logspace(-4, 3, 500), np.inf])


def largest_difference_from_scipy():
    """Return the largest relative difference of a quantile or a share from SciPy's."""
    pairs = [
        (stats.student_quantile(freedom, level), special.stdtrit(freedom, (1 + level) / 2))
        for freedom in FREEDOMS
        for level in LEVELS
    ]
    for freedom in FREEDOMS:
        known = 2 * special.stdtr(freedom, -DISTANCES)
        shown = stats.student_tails(DISTANCES, freedom)
        pairs += zip(shown[known > 1e-290], known[known > 1e-290], strict=True)
        assert np.all(shown[known <= 1e-290] <= 1e-280)
    for wins, losses in itertools.product(range(0, 400, 23), range(0, 400, 29)):
        known = min(1, 2 * special.bdtr(min(wins, losses), wins + losses, 0.5))
        pairs.append((stats.sign_test(wins, losses), known))
    return max(abs(shown / known - 1) for shown, known in pairs)


def test_students_distribution_and_the_sign_test_are_those_of_scipy():
    with warnings.catch_warnings(action="error"):
        assert largest_difference_from_scipy() < 1e-9


BETA_FAULTS = [
    lambda f: lambda x, rest, a, b: f(x, rest, a, b) * (1 + 1e-8),
    lambda f: lambda x, rest, a, b: f(x, rest, a + 1e-6, b),
    lambda f: lambda x, rest, a, b: f(x, rest, a, b + 1e-6),
]


@pytest.mark.parametrize("fault", sampled(BETA_FAULTS, 1))
def test_a_wrong_beta_function_is_found(fault, monkeypatch):
    monkeypatch.setattr(stats, "_incomplete_beta", fault(stats._incomplete_beta))
    student_quantile.cache_clear()
    with np.errstate(all="ignore"):
        assert not largest_difference_from_scipy() < 1e-9
    student_quantile.cache_clear()


def test_students_distribution_without_a_degree_of_freedom_is_nan():
    assert math.isnan(student_quantile(0))
    assert np.isnan(student_tails([1.0, 2.0], 0)).all()
    assert np.isnan(student_tails(math.nan, 5))


def excess_costs():
    """Return how much more our assignments cost than SciPy's, for random and for tied costs."""
    generator = np.random.default_rng(0)
    for size in (1, 2, 3, 5, 8, 20):
        for is_tied in (False, True) * 20:
            costs = generator.normal(size=(size, size))
            costs = costs.round() if is_tied else costs
            columns = stats.assign(torch.from_numpy(costs))
            assert sorted(columns) == list(range(size))
            known = costs[optimize.linear_sum_assignment(costs)].sum()
            yield costs[range(size), columns].sum() - known


def test_an_assignment_costs_no_more_than_that_of_scipy():
    assert max(map(abs, excess_costs())) < 1e-9


def test_an_assignment_that_only_takes_free_columns_is_found(monkeypatch):
    def greedy(row, costs, row_prices, prices, row_of):
        free = [column for column, owner in enumerate(row_of) if owner is None]
        row_of[min(free, key=costs[row].__getitem__)] = row

    monkeypatch.setattr(stats, "_assign_row", greedy)
    assert max(excess_costs()) > 0.1
