"""How often do our 95 % intervals hold the truth, and how often is a star false?

    python benchmarks/coverage.py

Stars: of changes of 27 inputs that are 0 in the mean, how often p is at most 0.05. Shares: exact,
over all counts, at shares from 0.001 to 0.999. Means, medians and bootstraps: of 20,000 samples
each (bootstraps 2,000) of distributions whose truth is known.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom

from attnlab.core.stats import Interval, mean_interval, median_interval, share_interval
from attnlab.edits.effects.significance import assess, p_values
from attnlab.truth.score import bootstrapped

Sampler = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]

SIZES = (5, 12, 27, 57, 200)
DRAWS: dict[str, tuple[Sampler, float, float]] = {  # with the true mean and median
    "normal": (lambda random, shape: random.normal(size=shape), 0.0, 0.0),
    "exponential": (lambda random, shape: random.exponential(size=shape), 1.0, math.log(2.0)),
    "zero in 7 of 10": (
        lambda random, shape: random.exponential(size=shape) * (random.random(shape) < 0.3),
        0.3,
        0.0,
    ),
    "mostly 1, as AUROC": (
        lambda random, shape: np.where(random.random(shape) < 0.8, 1.0, random.random(shape)),
        0.9,
        1.0,
    ),
}


def share_coverage(total: int) -> tuple[float, float, float]:
    """Return the least coverage, the share where it is, and the mean over all shares."""
    counts, shares = np.arange(total + 1), np.linspace(0.001, 0.999, 999)
    ends = np.array([share_interval(int(count), total)[1:] for count in counts])
    holds = (ends[:, :1] <= shares) & (shares <= ends[:, 1:])
    covered = (binom.pmf(counts[:, None], total, shares) * holds).sum(0)
    return float(covered.min()), float(shares[covered.argmin()]), float(covered.mean())


def coverage(
    interval: Callable[[list[float]], Interval], samples: NDArray[np.float64], truth: float
) -> float:
    """Return how often an interval holds the truth; one without ends never does."""
    found = (interval(sample) for sample in samples.tolist())
    return sum(each.low <= truth <= each.high for each in found) / len(samples)


def stars(sample: Sampler, mean: float, samples: int) -> tuple[float, float]:
    """Return how often `assess` and its sign flips alone find an effect where there is none."""
    values = sample(np.random.default_rng(0), (samples, 27)) - mean
    rows = torch.from_numpy(values).split(100)
    assessed = torch.cat([assess(values, correction="none", draws=2_000).p for values in rows])
    flipped = torch.cat([p_values(values, draws=2_000) for values in rows])
    return float((assessed <= 0.05).double().mean()), float((flipped <= 0.05).double().mean())


def main() -> None:
    """Print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000)
    samples = parser.parse_args().samples
    print("p <= 0.05 where the mean is 0   assess   sign flips alone")
    for name, (sample, mean, _) in DRAWS.items():
        found, flipped = stars(sample, mean, samples)
        print(f"  {name:<28}  {found:.1%}     {flipped:.1%}")
    print("\nshare_interval     least   at a share of   mean over shares")
    for total in SIZES:
        least, share, mean = share_coverage(total)
        print(f"  {total:>5}           {least:.1%}   {share:<13.3f}   {mean:.1%}")
    random = np.random.default_rng(0)
    print("\n                        values   mean    median  bootstrap of the mean")
    for name, (sample, mean, middle) in DRAWS.items():
        for size in SIZES:
            values = sample(random, (samples, size))
            figures = [coverage(mean_interval, values, mean)]
            figures.append(coverage(median_interval, values, middle))
            figures.append(coverage(bootstrapped, values[: samples // 10], mean))
            words = "   ".join(f"{figure:.1%}" for figure in figures)
            print(f"  {name:<20} {size:>5}    {words}")


if __name__ == "__main__":
    main()
