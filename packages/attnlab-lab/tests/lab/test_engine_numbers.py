"""The functions of the engine beside their true values, and its numbers by chance."""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from .engine_cases import heard, needs_node, run_engine, told

pytestmark = needs_node

TINY = 5e-324  # the smallest number above 0


def grid(low: float, high: float, number: int = 400) -> list[float]:
    return np.random.default_rng(0).uniform(low, high, number).tolist()


def powers(low: int, high: int) -> list[float]:
    """Return numbers over many orders of magnitude."""
    return (10.0 ** np.random.default_rng(1).uniform(low, high, 300)).tolist()


def both(values: list[float]) -> list[float]:
    return [*values, *(-value for value in values)]


NEAR_TURNS = [k * math.pi / 2 for k in (1, 2, 3, 4, 11, 355, 10_000, 636_619)]
GRIDS: dict[str, list[float]] = {
    "exp": [*both([*grid(0, 1), *grid(0, 709), *powers(-300, 0)]), -744.9, -708.5, 709.78],
    "log": [*grid(0.5, 2), *powers(-320, 308), TINY, 3e-310, 1.0, 1 + 2**-52, 1 - 2**-53],
    "sin": [*both([*grid(0, 7), *grid(0, 1e6), *powers(-300, 0), *NEAR_TURNS]), 1e6],
    "cos": [*both([*grid(0, 7), *grid(0, 1e6), *powers(-300, 0), *NEAR_TURNS]), 1e6],
    "erf": both([*grid(0, 2), *grid(0, 7), *powers(-300, 0), 2.0, 5.99]),
}


def true_value(name: str, x: float) -> Any:
    with mpmath.workprec(200):
        return getattr(mpmath, name)(mpmath.mpf(x))


def errors(found: np.ndarray, wanted: list[Any]) -> list[float]:
    """Return relative errors; of numbers below the normal ones, errors in units of the last."""
    smallest = 2.0**-1022
    with mpmath.workprec(200):
        return [
            float(abs(mpmath.mpf(one) - other) / abs(other))
            if abs(other) >= smallest
            else 1e-15 * float(abs(mpmath.mpf(one) - other) / TINY)
            for one, other in zip(found.tolist(), wanted, strict=True)
            if other != 0
        ]


@pytest.mark.parametrize("name", GRIDS)
def test_a_function_is_within_its_bound(name):
    xs = GRIDS[name]
    request = {"what": "values", "name": name, "inputs": told(np.array(xs))}
    [answer] = run_engine([request])
    assert max(errors(heard(answer), [true_value(name, x) for x in xs])) <= 1e-15


def test_a_power_is_within_its_bound():
    chance = np.random.default_rng(2)
    bases = [*chance.uniform(0.1, 20, 500), *([10_000.0] * 200), *([2.0] * 200)]
    exponents = [
        *chance.uniform(-9, 9, 500),
        *chance.uniform(-1, 0, 200),
        *chance.uniform(-8, 0, 200),
    ]
    sent = {"inputs": told(np.array(bases)), "others": told(np.array(exponents))}
    [answer] = run_engine([{"what": "values", "name": "pow", **sent}])
    with mpmath.workprec(200):
        wanted = [mpmath.mpf(b) ** mpmath.mpf(e) for b, e in zip(bases, exponents, strict=True)]
    bounds = [1e-15 * max(1, abs(exponent)) for exponent in exponents]
    found = zip(errors(heard(answer), wanted), bounds, strict=True)
    assert all(error <= bound for error, bound in found)


NAN, INF = math.nan, math.inf
EDGES: list[tuple[str, float, float]] = [
    ("exp", -INF, 0.0), ("exp", INF, INF), ("exp", 709.79, INF), ("exp", -746.0, 0.0),
    ("exp", 0.0, 1.0), ("exp", NAN, NAN), ("log", 0.0, -INF), ("log", -1.0, NAN),
    ("log", INF, INF), ("log", 1.0, 0.0), ("log", NAN, NAN), ("sin", 0.0, 0.0),
    ("sin", NAN, NAN), ("sin", INF, NAN), ("sin", 2e6, NAN), ("cos", 0.0, 1.0),
    ("cos", NAN, NAN), ("cos", -INF, NAN), ("erf", INF, 1.0), ("erf", -INF, -1.0),
    ("erf", 0.0, 0.0), ("erf", NAN, NAN), ("exp", TINY, 1.0),
]  # fmt: skip


def test_edges_are_as_they_should_be():
    requests = [{"what": "values", "name": n, "inputs": told(np.array([x]))} for n, x, _ in EDGES]
    for (name, x, wanted), answer in zip(EDGES, run_engine(requests), strict=True):
        found = heard(answer)[0]
        assert found == wanted or (math.isnan(found) and math.isnan(wanted)), (name, x, found)


def test_a_power_of_what_is_not_above_zero_is_not_a_number():
    bases, exponents = [0.0, -2.0, NAN, INF, 2.0], [1.0, 2.0, 1.0, 1.0, INF]
    sent = {"inputs": told(np.array(bases)), "others": told(np.array(exponents))}
    [answer] = run_engine([{"what": "values", "name": "pow", **sent}])
    assert np.isnan(heard(answer)).all()


ONES = 0xFFFFFFFF
KNOWN_WORDS = [  # published with the generator: key, counter, result
    ([0, 0, 0, 0], [0x6B200159, 0x99BA4EFE]),
    ([ONES, ONES, ONES, ONES], [0x1CB996FC, 0xBB002BE7]),
    ([0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3], [0xC4923A9C, 0x483DF7A0]),
]


def test_the_generator_gives_the_published_words():
    request = {"what": "random", "name": "threefry", "args": [args for args, _ in KNOWN_WORDS]}
    [answer] = run_engine([request])
    assert answer == [words for _, words in KNOWN_WORDS]


def drawn(name: str, seed: int, stream: int, number: int, *more: int) -> np.ndarray:
    args = [[seed, stream, place, *more] for place in range(number)]
    [answer] = run_engine([{"what": "random", "name": name, "args": args}])
    return np.array(answer)


def test_uniform_numbers_fill_their_interval_evenly():
    found = drawn("uniform", 7, 1, 20_000)
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.histogram(found, 20, (0, 1))[0]
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 43.8  # of 1,000 seeds one, by chance


@pytest.mark.parametrize(
    ("moment", "wanted"), [(lambda x: x, 0.0), (lambda x: x**2, 1.0), (lambda x: x**4, 3.0)]
)
def test_normal_numbers_have_the_moments_of_the_normal_distribution(
    moment: Callable[[np.ndarray], np.ndarray], wanted: float
) -> None:
    values = moment(drawn("normal", 3, 2, 20_000))
    assert abs(values.mean() - wanted) < 3.5 * values.std() / math.sqrt(len(values))


def test_whole_numbers_are_all_drawn_alike():
    counts = np.bincount(drawn("integer", 5, 4, 27_000, 27), minlength=27)
    assert len(counts) == 27
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 54.1


def test_streams_and_seeds_differ():
    first = drawn("uniform", 1, 1, 100)
    for seed, stream in ((1, 2), (2, 1)):
        assert not np.isin(drawn("uniform", seed, stream, 100), first).any()
