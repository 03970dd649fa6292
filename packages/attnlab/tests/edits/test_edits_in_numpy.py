"""Each edit's result is that of the same change written out in NumPy float64, in random models."""

import functools

import numpy as np
import pytest

from attnlab.errors import WrongUsage

from .cases import VOCABULARY, Case
from .kinds import KINDS

BOUND = 1e-12
FEW, MANY = 13, 200


def changed_by(sides, site, array):
    return sides[site](array) if site in sides else array


def check(kind, start, stop):
    """Return in how many of these cases something changed."""
    changed = 0
    for seed in range(start, stop):
        case = Case(seed)
        if kind in ("swap_heads", "cut_tokens") and case.kind == "single head":
            case = Case(seed, "decoder")
        if kind == "mean_site" and case.kind != "decoder":
            case = Case(seed, "decoder")
        edited, sides = KINDS[kind](case)
        expected = case.expected(functools.partial(changed_by, sides))
        plain = case.expected()
        try:
            output, certificate = case.run(edited, certify=seed % 10 == 0, vocabulary=VOCABULARY)
        except WrongUsage as refusal:
            # An edit of the mask that finds nothing to do says so; then the output is what it was.
            said = str(refusal)
        else:
            said = ""
        if said:
            assert "changed nothing" in said or "never occurred together" in said, (seed, said)
            assert np.array_equal(expected, plain), (seed, said)
            continue
        error = float(np.abs(output.detach().numpy() - expected).max())
        assert np.isfinite(expected).all()
        assert error <= BOUND * max(1.0, np.abs(expected).max()), (seed, case.kind, edited, error)
        if seed % 10 == 0:
            assert certificate.holds, str(certificate)
            assert certificate.identity == 0.0
        changed += not np.allclose(expected, plain, rtol=0, atol=1e-9)
    return changed


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_is_the_same_change_in_numpy(kind):
    assert check(kind, 0, FEW) > FEW // 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_is_the_same_change_in_numpy_in_all_cases(kind):
    assert check(kind, FEW, FEW + MANY) > MANY // 3
