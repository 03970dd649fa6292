"""Masks: small ones written out, all of them against the reference, and how they combine."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.errors import WrongUsage
from attnlab.parts import masks
from attnlab.parts.attend import attend
from tests import reference as ref

from .closeness import assert_same

SIZE = st.integers(0, 13)


def drawn(picture: str) -> torch.Tensor:
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
    assert_same(masks.prefix_mask(4, 2), drawn("1100 1100 1110 1111"))
    assert_same(masks.prefix_mask(2, 0), drawn("10 11"))
    assert_same(masks.block_mask([2, 1, 0, 1]), drawn("1100 1100 0010 0001"))
    assert_same(masks.padding_mask([1, 0, 3], 3)[:, 0, 0], drawn("100 000 111"))


def test_masks_are_those_of_the_reference():
    for num_queries, num_keys in itertools.combinations_with_replacement(range(12), 2):
        assert_same(
            masks.causal_mask(num_queries, num_keys), ref.causal_mask(num_queries, num_keys)
        )
        assert_same(
            masks.anti_causal_mask(num_queries, num_keys),
            ref.anti_causal_mask(num_queries, num_keys),
        )
        for window in (1, 2, 5):
            ours = masks.sliding_window_mask(num_queries, window, num_keys)
            assert_same(ours, ref.sliding_window_mask(num_queries, window, num_keys))
        assert_same(
            masks.prefix_mask(num_keys, num_queries), ref.prefix_mask(num_keys, num_queries)
        )
        lengths = [num_queries, num_keys - num_queries, 2]
        assert_same(masks.block_mask(lengths), ref.block_mask(lengths))
        assert_same(
            masks.padding_mask([num_queries, 0], num_keys),
            ref.padding_mask([num_queries, 0], num_keys),
        )
    assert_same(masks.padding_mask(torch.tensor([1, 3]), 5), ref.padding_mask([1, 3], 5))


@given(SIZE, SIZE, st.integers(1, 5))
def test_a_window_is_what_is_causal_and_near(num_queries, extra, window):
    num_keys = num_queries + extra
    near = masks.either(
        *(masks.sliding_window_mask(num_queries, w, num_keys) for w in range(1, window + 1))
    )
    assert_same(masks.sliding_window_mask(num_queries, window, num_keys), near)
    assert_same(masks.both(near, masks.causal_mask(num_queries, num_keys)), near)
    assert (near.sum(-1) <= window).all()


@given(st.lists(st.integers(0, 4), max_size=5))
def test_packed_sequences_see_as_many_positions_as_they_have(lengths):
    mask = masks.block_mask(lengths)
    assert mask.shape == (sum(lengths), sum(lengths))
    assert mask.sum(-1).tolist() == [length for length in lengths for _ in range(length)]
    assert_same(mask, mask.t())


@given(st.lists(st.integers(0, 7), max_size=5))
def test_padding_lets_everybody_see_the_first_positions(lengths):
    mask = masks.padding_mask(lengths, 7)
    assert mask.shape == (len(lengths), 1, 1, 7)
    assert mask.dtype == torch.bool
    assert mask.sum(-1).flatten().tolist() == lengths
    assert mask[..., 0].flatten().tolist() == [length > 0 for length in lengths]


def test_both_is_and_either_is_or_and_none_allows_everything():
    truth = [torch.tensor(v) for v in (False, True)]
    for a, b in itertools.product(truth, truth):
        assert bool(masks.both(a, b)) == (bool(a) and bool(b))
        assert bool(masks.either(a, b)) == (bool(a) or bool(b))
    causal, padding = masks.causal_mask(3), masks.padding_mask([2, 3], 3)
    assert_same(masks.both(causal, None, padding)[0, 0], drawn("100 110 110"))
    assert_same(masks.either(causal, padding)[0, 0], drawn("110 110 111"))
    assert masks.both() is None
    assert masks.both(None, None) is None
    assert masks.either(causal, None) is None
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
    ("make", "message"),
    [
        (
            lambda: masks.causal_mask(-1),
            "the number of queries must be an integer of at least 0; got -1.",
        ),
        (
            lambda: masks.causal_mask(2, 1.5),
            "the number of keys must be an integer of at least 0; got 1.5.",
        ),
        (
            lambda: masks.sliding_window_mask(3, 0),
            "window must be an integer of at least 1; got 0.",
        ),
        (lambda: masks.prefix_mask(3, -2), "prefix must be an integer of at least 0; got -2."),
        (
            lambda: masks.block_mask([2, -1]),
            "each block's length must be an integer of at least 0; got -1.",
        ),
        (
            lambda: masks.padding_mask([1, 5], 4),
            "each length must be from 0 to the padded length 4; got [1, 5].",
        ),
        (
            lambda: masks.padding_mask([-1], 4),
            "each length must be from 0 to the padded length 4; got [-1].",
        ),
        (
            lambda: masks.padding_mask(torch.tensor([1.0]), 4),
            "lengths must be one integer for each input of the batch; got shape (1,) of "
            "torch.float32.",
        ),
        (
            lambda: masks.padding_mask(torch.tensor(3), 4),
            "lengths must be one integer for each input of the batch; got shape () of torch.int64.",
        ),
        (
            lambda: masks.padding_mask(torch.tensor([True, False]), 4),
            "lengths must be one integer for each input of the batch; got shape (2,) of "
            "torch.bool.",
        ),
        (masks.either, "either needs at least one mask; got none."),
        (
            lambda: masks.both(torch.zeros(2)),
            "only boolean masks can be combined; got torch.float32. Add float masks up instead.",
        ),
        (
            lambda: masks.as_tensor("casual", 2, 2),
            "a mask is a tensor, None or the word \"causal\"; got 'casual'.",
        ),
        (
            lambda: masks.as_tensor(torch.ones(2, 2, dtype=torch.int32), 2, 2),
            "a mask is boolean (True = may attend) or float (added to the scores); got "
            "torch.int32. If its ones mean 'may attend', convert it with mask.bool().",
        ),
    ],
)
def test_a_wrong_mask_says_what_was_expected_and_what_came(make, message):
    with pytest.raises(WrongUsage) as caught:
        make()
    assert str(caught.value) == message


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
