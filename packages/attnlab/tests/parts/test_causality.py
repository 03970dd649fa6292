"""Who can influence whom, by gradient: causality, permutation, padding and batches."""

import pytest
import torch

from attnlab.parts.attend import attend
from attnlab.parts.masks import (
    anti_causal_mask,
    causal_mask,
    padding_mask,
    sliding_window_mask,
)
from tests.random_models import (
    NORM_PLACES,
    POSITIONS,
    make_attention,
    make_block,
    normal,
    with_positions,
)

from .closeness import assert_close

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
LENGTH = 7


def influence(run, x):
    """(output position, input position): the largest gradient of any output channel's random
    mixture."""
    x = x.clone().requires_grad_()
    output = run(x)
    rows = []
    for i in range(output.shape[-2]):
        mixture = (output[:, i] * normal(*output[:, i].shape, seed=i).to(output)).sum()
        (grad,) = torch.autograd.grad(mixture, x, retain_graph=True)
        rows.append(grad.abs().amax((0, -1)))
    return torch.stack(rows)


def check_influence(run, x, allowed):
    """Exactly nothing flows where it is not allowed, and something does everywhere else."""
    reach = influence(run, x)
    assert reach.isfinite().all()
    leaks = (reach != 0) & ~allowed
    assert not leaks.any(), f"influence against the mask: {leaks.nonzero().tolist()}"
    assert (reach[allowed] > 0).all(), "nothing flows where it may, so this proves nothing"


def check_causal(run, x):
    check_influence(run, x, torch.ones(x.shape[-2], x.shape[-2]).tril().bool())


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", ["causal", causal_mask(LENGTH)], ids=["word", "tensor"])
def test_attend_is_causal(mask, need_weights):
    for dtype in (torch.float32, torch.float64):
        check_causal(
            lambda x: attend(x, x, x, mask, need_weights=need_weights).output,
            normal(2, LENGTH, 5, dtype=dtype),
        )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("position", ["none", "rotary", "alibi"])
def test_multi_head_attention_is_causal(position, need_weights):
    part = make_attention(position=position, num_kv_heads=2)
    check_causal(
        lambda x: part(x, mask="causal", need_weights=need_weights).output, normal(2, LENGTH, 28)
    )


@pytest.mark.parametrize("position", POSITIONS)
def test_a_block_is_causal(position):
    block = make_block(position=position, norm="rms")
    check_causal(with_positions(block, position, mask="causal"), normal(2, LENGTH, 28))


@pytest.mark.parametrize("norm_place", NORM_PLACES)
def test_a_decoder_block_is_causal_in_its_own_stream_and_sees_all_of_the_memory(norm_place):
    block, memory = make_block(norm_place=norm_place, is_decoder=True), normal(2, 5, 28, seed=3)
    check_causal(lambda x: block(x, mask="causal", memory=memory), normal(2, LENGTH, 28))
    x = normal(2, LENGTH, 28)
    check_influence(
        lambda m: block(x, mask="causal", memory=m), memory, torch.ones(LENGTH, 5, dtype=torch.bool)
    )


def test_the_check_catches_an_anti_causal_mask():
    run = with_positions(make_block(), "learned", mask=anti_causal_mask(LENGTH))
    with pytest.raises(AssertionError, match="influence against the mask"):
        check_causal(run, normal(2, LENGTH, 28))
    check_influence(run, normal(2, LENGTH, 28), torch.ones(LENGTH, LENGTH).triu().bool())


def test_the_check_catches_a_model_through_which_nothing_flows():
    with pytest.raises(AssertionError, match="proves nothing"):
        check_causal(
            lambda x: attend(x, x, x, torch.eye(LENGTH).bool()).output, normal(2, LENGTH, 5)
        )


def test_windows_and_cut_edges_hold_by_gradient_too():
    part = make_attention()
    near = torch.ones(LENGTH, LENGTH).tril().triu(-2).bool()
    cut = torch.ones(LENGTH, LENGTH).bool()
    cut[5, 2] = cut[1, 4] = False
    for mask, allowed in (
        (sliding_window_mask(LENGTH, 3), near),
        (cut, cut),
    ):
        check_influence(lambda x, m=mask: part(x, mask=m).output, normal(2, LENGTH, 28), allowed)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_without_positions_and_masks_a_permutation_passes_through(dtype):
    for seed in range(8):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed))
        x = normal(2, LENGTH, 28, seed=seed, dtype=dtype)
        runs = [
            lambda x: attend(x, x, x).output,
            lambda x: attend(x, x, x, need_weights=False).output,
        ]
        runs += [make_block(norm_place=place, dtype=dtype) for place in NORM_PLACES]
        for run in runs:
            assert_close(
                run(x[:, order]), run(x)[:, order], TOLERANCE[dtype], f"permutation, {dtype}"
            )


@pytest.mark.parametrize("position", [p for p in POSITIONS if p != "none"])
def test_with_positions_a_permutation_does_not_pass_through(position):
    order = torch.arange(LENGTH).flip(0)
    x = normal(2, LENGTH, 28)
    x[:, 0] *= 3  # a reflection would leave relative distances as they are
    run = with_positions(make_block(position=position), position, mask=None)
    rolled = order.roll(3)
    assert (run(x[:, rolled]) - run(x)[:, rolled]).abs().max() > 1e-3


@pytest.mark.parametrize("position", POSITIONS)
def test_an_input_gives_the_same_alone_in_a_batch_and_padded(position):
    lengths = [3, 7, 5]
    for dtype, bound in TOLERANCE.items():
        block = make_block(position=position, dtype=dtype)
        x = normal(3, LENGTH, 28, dtype=dtype)
        together = with_positions(block, position, mask=padding_mask(lengths, LENGTH))(x)
        for i, length in enumerate(lengths):
            alone = with_positions(block, position, mask=None)(x[i : i + 1, :length])
            assert_close(together[i : i + 1, :length], alone, bound, f"padding and batch, {dtype}")
