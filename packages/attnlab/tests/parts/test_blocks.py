"""Blocks: where the norms stand, what is added to what, gradients."""

import pytest
import torch

from attnlab.parts.blocks import Block
from attnlab.parts.masks import padding_mask
from tests.random_models import NORM_PLACES, make_block, normal, with_positions

from .closeness import assert_close, assert_same


def by_hand(block, x, memory=None):
    """The formulas of Vaswani et al. 2017 (post), Xiong et al. 2020 (pre), and no norm."""
    attend, feed = (lambda y: block.attention(y, mask="causal").output), block.feed_forward
    first, second = block.norm_attention, block.norm_feed_forward
    look = (lambda y: block.cross_attention(y, memory).output) if memory is not None else None
    middle = block.norm_cross_attention
    if block.norm_place == "pre":
        x = x + attend(first(x))
        x = x if look is None else x + look(middle(x))
        return x + feed(second(x))
    if block.norm_place == "post":
        x = first(x + attend(x))
        x = x if look is None else middle(x + look(x))
        return second(x + feed(x))
    x = x + attend(x)
    x = x if look is None else x + look(x)
    return x + feed(x)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("norm_place", NORM_PLACES)
def test_a_block_is_its_formula(norm_place, norm):
    x, memory = normal(2, 5, 28), normal(2, 7, 28, seed=1)
    block = make_block(norm_place=norm_place, norm=norm)
    assert_close(block(x, mask="causal"), by_hand(block, x), 1e-13)
    decoder = make_block(norm_place=norm_place, norm=norm, is_decoder=True)
    assert_close(decoder(x, mask="causal", memory=memory), by_hand(decoder, x, memory), 1e-13)
    other = decoder(x, mask="causal", memory=memory * 2)
    assert (decoder(x, mask="causal", memory=memory) - other).abs().max() > 1e-3


def test_a_block_whose_sub_layers_add_nothing_passes_the_stream_on():
    block, x = make_block(), normal(2, 5, 28)
    for part in (block.attention.output, block.feed_forward.outer):
        torch.nn.init.zeros_(part.weight)
        torch.nn.init.zeros_(part.bias)
    assert_same(block(x), x)


def test_a_memory_mask_hides_a_part_of_the_memory():
    block, x, memory = make_block(is_decoder=True), normal(2, 5, 28), normal(2, 7, 28, seed=1)
    hidden = block(x, memory=memory, memory_mask=padding_mask([3, 7], 7))
    assert_close(hidden[:1], block(x[:1], memory=memory[:1, :3]), 1e-12)
    assert_close(hidden[1:], block(x[1:], memory=memory[1:]), 1e-12)


@pytest.mark.parametrize(
    ("norm_place", "position"), [("pre", "rotary"), ("post", "alibi"), ("none", "learned")]
)
def test_gradients_of_a_block_are_those_of_finite_differences(norm_place, position):
    block = make_block(8, 2, norm_place=norm_place, position=position)
    run = with_positions(block, position, 8, mask="causal")
    assert torch.autograd.gradcheck(run, normal(1, 3, 8).requires_grad_(), raise_exception=False)


def test_gradients_of_all_parameters_of_a_block_are_those_of_finite_differences():
    block, x = make_block(2, 2, is_decoder=True, activation="swiglu"), normal(1, 2, 2)
    names, values = zip(*block.named_parameters(), strict=True)

    def run(*values):
        return torch.func.functional_call(
            block, dict(zip(names, values, strict=True)), (x,), {"memory": x}
        )

    leaves = [value.detach().clone().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(run, leaves, raise_exception=False)


def test_dropout_acts_in_training_only_and_without_bias():
    bare = make_block()
    assert Block(bare.attention, bare.feed_forward, d_model=28).dropout == 0.0
    block, x = make_block(dropout=0.2), normal(1, 5, 28)
    plain = make_block()(x)
    torch.manual_seed(0)
    assert (block(x) - plain).abs().max() > 1e-2
    block.eval()
    assert_close(block(x), plain, 1e-12)


def test_the_residual_dropout_acts_on_what_is_added():
    block, x = make_block(norm_place="none"), normal(1, 5, 28)
    block.dropout = 0.2  # attention and the feed-forward part keep theirs at 0
    for parameter in block.feed_forward.outer.parameters():
        torch.nn.init.zeros_(parameter)
    torch.manual_seed(0)
    with torch.no_grad():
        draws = block(x.expand(3000, 5, 28))
        plain = block.eval()(x)
    share = (draws == x).double().mean()  # a dropped channel leaves the stream as it was
    assert 0.19 < share < 0.21
    assert_close(draws.mean(0), plain[0], 0.1, "mean of many draws, block")


# torch has no batching rule for its fused CPU kernel and says so; its loop is quicker than our
# explicit path.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("norm_place", "position"), [("pre", "none"), ("post", "rotary"), ("none", "alibi")]
)
def test_a_population_of_blocks_by_vmap_equals_a_loop(norm_place, position):
    population = []
    for seed in range(3):
        block = make_block(norm_place=norm_place, position=position, dtype=torch.float32)
        with torch.no_grad():
            for i, parameter in enumerate(block.parameters()):
                change = normal(*parameter.shape, seed=100 * seed + i, dtype=torch.float32)
                parameter += 0.1 * change
        population.append(block)
    parameters, buffers = torch.func.stack_module_state(population)
    x = normal(3, 2, 5, 28, dtype=torch.float32)

    def run(parameters, buffers, x, mask):
        return torch.func.functional_call(
            population[0], (parameters, buffers), (x,), {"mask": mask}
        )

    for mask in (None, "causal", padding_mask([3, 0], 5)):
        together = torch.func.vmap(run, in_dims=(0, 0, 0, None))(parameters, buffers, x, mask)
        loop = torch.stack(
            [block(each, mask=mask) for block, each in zip(population, x, strict=True)]
        )
        assert_close(together, loop, 1e-5, "vmap over blocks")
