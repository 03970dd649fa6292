"""Masks: small ones written out, and how they combine."""

import itertools

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.parts import masks
from attnlab.parts.attend import attend

from .closeness import assert_same


def drawn(picture):
    """A mask drawn with 1 and 0, one word for each query."""
    return torch.tensor([[mark == "1" for mark in row] for row in picture.split()])


def test_small_masks_look_as_drawn():
    assert_same(masks.causal_mask(3), drawn("100 110 111"))
    assert_same(masks.causal_mask(2, 5), drawn("11110 11111"))
    assert_same(masks.causal_mask(3, 2), drawn("00 10 11"))
    assert_same(masks.anti_causal_mask(3), drawn("111 011 001"))
    assert_same(masks.anti_causal_mask(2, 3), drawn("011 001"))
    assert_same(masks.sliding_window_mask(4, 2), drawn("1000 1100 0110 0011"))
    assert_same(masks.sliding_window_mask(2, 2, 4), drawn("0110 0011"))
    assert_same(masks.sliding_window_mask(2, 5), drawn("10 11"))
    assert_same(masks.prefix_mask(4, 2), drawn("1100 1100 1110 1111"))
    assert_same(masks.prefix_mask(2, 0), drawn("10 11"))
    assert_same(masks.block_mask([2, 1, 0, 1]), drawn("1100 1100 0010 0001"))
    for lengths in ([1, 0, 3], torch.tensor([1, 0, 3])):
        assert_same(masks.padding_mask(lengths, 3)[:, 0, 0], drawn("100 000 111"))


def test_both_is_and_and_none_allows_everything():
    truth = [torch.tensor(v) for v in (False, True)]
    for a, b in itertools.product(truth, truth):
        assert bool(masks.both(a, b)) == (bool(a) and bool(b))
    causal, padding = masks.causal_mask(3), masks.padding_mask([2, 3], 3)
    assert_same(masks.both(causal, None, padding)[0, 0], drawn("100 110 110"))
    assert masks.both() is None
    assert masks.both(None, None) is None
    assert_same(masks.both(None, causal), causal)


def test_masks_are_made_on_the_device_they_are_asked_for():
    made = [
        masks.causal_mask(3, 5, device="meta"),
        masks.anti_causal_mask(3, device="meta"),
        masks.sliding_window_mask(3, 2, device="meta"),
        masks.prefix_mask(3, 2, device="meta"),
        masks.as_tensor("causal", 3, 5, "meta"),
    ]
    assert {(mask.device.type, mask.dtype) for mask in made} == {("meta", torch.bool)}


def test_the_word_causal_is_the_causal_mask_for_any_lengths():
    for num_queries, num_keys in itertools.product((1, 2, 5), repeat=2):
        query, key = torch.ones(num_queries, 3), torch.ones(num_keys, 3)
        value = torch.arange(num_keys * 2.0).reshape(num_keys, 2)
        expected = masks.causal_mask(num_queries, num_keys).float()
        expected = expected / expected.sum(-1, keepdim=True).clamp(min=1)
        for need_weights in (True, False):
            result = attend(query, key, value, "causal", need_weights=need_weights)
            assert_same((result.output - expected @ value).abs() < 1e-6, torch.ones(num_queries, 2))
        assert_same(
            (attend(query, key, value, "causal").weights - expected).abs() < 1e-6,
            torch.ones_like(expected),
        )


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: masks.causal_mask(-1), "the number of queries .* at least 0; got -1"),
        (lambda: masks.causal_mask(2, 1.5), "the number of keys .* at least 0; got 1.5"),
        (lambda: masks.sliding_window_mask(3, 0), "window must be .* at least 1; got 0"),
        (lambda: masks.prefix_mask(3, -2), "prefix must be .* at least 0; got -2"),
        (lambda: masks.block_mask([2, -1]), "each block's length .* got -1"),
        (lambda: masks.padding_mask([1, 5], 4), r"from 0 to the padded length 4; got \[1, 5\]"),
        (lambda: masks.padding_mask([-1], 4), r"got \[-1\]"),
        (lambda: masks.padding_mask(torch.tensor([1.0]), 4), "of torch.float32"),
        (lambda: masks.padding_mask(torch.tensor(3), 4), r"got shape \(\)"),
        (lambda: masks.padding_mask(torch.tensor([True, False]), 4), "of torch.bool"),
        (lambda: masks.both(torch.zeros(2)), "got torch.float32. Add float masks up"),
        (lambda: masks.as_tensor("casual", 2, 2), "got 'casual'"),
        (lambda: masks.as_tensor(torch.ones(2, 2).int(), 2, 2), r"torch.int32.* mask.bool\(\)"),
    ],
)
def test_a_wrong_mask_says_what_was_expected_and_what_came(make, fact):
    with pytest.raises(WrongUsage, match=fact):
        make()


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, None),
        ("causal", None),
        (masks.padding_mask([1, 3], 3), [[1, 0, 0], [1, 1, 1]]),
        (masks.padding_mask([1, 3], 3) & masks.causal_mask(3), [[1, 0, 0], [1, 1, 1]]),
        (masks.causal_mask(3), [[1, 1, 1], [1, 1, 1]]),
        (torch.tensor([0.0, -1e9, float("-inf")]), [[1, 1, 0], [1, 1, 0]]),
        (masks.block_mask([1, 2])[None], [[1, 1, 1], [1, 1, 1]]),
    ],
)
def test_what_no_query_may_look_at_is_padding(mask, expected):
    found = masks.real_positions(mask, 2)
    assert (None if found is None else found.int().tolist()) == expected
