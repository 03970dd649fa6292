"""The comparison itself: it must be able to fail."""

import math
import re
from pathlib import Path

import pytest
import torch

from .closeness import assert_close, assert_same, assert_scores_close

NAN, INF = math.nan, math.inf


def test_an_error_within_the_bound_passes_and_one_of_ten_bounds_fails():
    assert_close([1.0, 2.0 + 1e-6], [1.0, 2.0], 2e-6)
    assert_same(torch.ones(2), torch.ones(2))
    with pytest.raises(AssertionError):
        assert_same(torch.ones(2), torch.nextafter(torch.ones(2), torch.tensor(2.0)))
    for off in (1e-5, -1e-5):
        with pytest.raises(AssertionError, match="off by 1e-05; at most 1e-06"):
            assert_close([1.0, 2.0 + off], [1.0, 2.0], 1e-6)


@pytest.mark.parametrize(
    ("actual", "expected", "bound"),
    [
        *(([0.0, bad], [0.0, 0.0], 1e9) for bad in (NAN, INF, -INF)),
        *(([0.0, 0.0], [0.0, bad], 1e9) for bad in (NAN, INF, -INF)),
        *(([bad], [bad], INF) for bad in (NAN, INF, -INF)),
        ([[0.0, 0.0]], [[0.0, 0.0]] * 2, 1.0),  # a shape that would only broadcast
        ([0.0], [0.0], NAN),
    ],
)
def test_what_is_not_finite_or_of_another_shape_fails_on_either_side(actual, expected, bound):
    with pytest.raises(AssertionError):
        assert_close(torch.tensor(actual), expected, bound)


def test_no_test_of_the_parts_compares_in_a_way_that_nan_can_pass():
    lenient = re.compile(r"np\.testing|torch\.testing|\ballclose\(|approx\(|import assert_allclose")
    files = [file for file in Path(__file__).parent.glob("test_*.py") if file != Path(__file__)]
    assert len(files) >= 12
    assert [file.name for file in files if lenient.search(file.read_text(encoding="utf-8"))] == []


def test_scores_must_be_blocked_in_the_same_places():
    expected = torch.tensor([0.0, -INF]).numpy()
    assert_scores_close(torch.tensor([1e-7, -INF]), expected, 1e-6)
    for wrong in ([0.0, -1e9], [-INF, -INF], [NAN, -INF], [1e-5, -INF]):
        with pytest.raises(AssertionError):
            assert_scores_close(torch.tensor(wrong), expected, 1e-6)
