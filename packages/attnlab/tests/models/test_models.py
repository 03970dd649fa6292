import copy
import shutil
import warnings

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.look.causality import largest_leak
from attnlab.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    SingleHead,
    SingleHeadConfig,
    count_from_model,
)
from attnlab.parts import multi_head_attention
from attnlab.parts.masks import padding_mask
from attnlab.parts.positions import Rotary
from tests.models.formulas import encoder_output
from tests.random_models import POSITIONS, new_model, tokens

SMALL = {"vocab_size": 11, "max_length": 13, "d_model": 12, "num_heads": 3, "d_ff": 20}


def layer(norm, query, key, output, feed_forward, name="layers.0", parts=("attention",)):
    """The parameters of a layer, as they are counted by hand; no norm has none."""
    counts = {f"{name}.norm_{part}": norm for part in (*parts, "feed_forward") if norm}
    for part in parts:
        own = {"query": query, "key": key, "value": key, "output": output}
        counts |= {f"{name}.{part}.{each}": count for each, count in own.items()}
    return counts | {f"{name}.feed_forward": feed_forward}


BOTH = ("attention", "cross_attention")
LEARNED = {"positions": "learned", "num_kv_heads": 1, "activation": "swiglu"}
GATED = {"positions": "concatenated", "position_width": 5, "projections": "gated", "rank": 2}
STRICT = {"positions": "rotary", "encoder_positions": "none", "projections": "strict", "rank": 2}
COUNTED = [
    (
        Decoder(DecoderConfig(**SMALL, **LEARNED, norm="rms", tie_output=False)),
        {"embedding.tokens": 11 * 12, "embedding.positions": 13 * 12}
        | layer(12, 12 * 12 + 12, 12 * 4 + 4, 12 * 12 + 12, 3 * 12 * 20 + 20 + 20 + 12)
        | {"final_norm": 12, "head": 12 * 11 + 11},
    ),
    (
        Decoder(DecoderConfig(**SMALL, norm="rms")),
        {"embedding.tokens": 11 * 12}
        | layer(12, 12 * 12 + 12, 12 * 12 + 12, 12 * 12 + 12, 2 * 12 * 20 + 20 + 12)
        | {"final_norm": 12},
    ),
    (
        Encoder(
            EncoderConfig(
                **SMALL, **GATED, bias=False, norm_place="none", final_norm=False, num_classes=5
            )
        ),
        {"embedding.tokens": 11 * 7, "embedding.positions": 13 * 5, "head": 12 * 5 + 5}
        | layer(0, *[3 * (2 * (12 + 4) + 12 * 4)] * 2, 12 * 12, 2 * 12 * 20),
    ),
    (
        EncoderDecoder(EncoderDecoderConfig(**SMALL, **STRICT, num_layers=1)),
        {f"{side}.embedding.tokens": 11 * 12 for side in ("encoder", "decoder")}
        | {f"{side}.final_norm": 24 for side in ("encoder", "decoder")}
        | layer(24, 96, 96, 156, 512, "encoder.layers.0")
        | layer(24, 96, 96, 156, 512, "decoder.layers.0", BOTH)
        | {"head": 12 * 11 + 11},
    ),
]


@pytest.mark.parametrize(("model", "expected"), COUNTED, ids=["rms", "tied", "gated", "strict"])
def test_a_model_holds_the_parameters_that_are_counted_by_hand(model, expected):
    assert count_from_model(model) == expected
    assert sum(expected.values()) == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("place", ["pre", "post", "none"])
def test_a_decoder_is_causal_to_the_last_bit(positions, place):
    model = new_model("decoder", positions=positions, norm_place=place)
    assert largest_leak(model, tokens(2, 7)) == 0.0


def test_the_leak_test_catches_a_model_that_sees_the_future():
    encoder = new_model("encoder")
    assert largest_leak(encoder, tokens(2, 7)) > 1e-4


@pytest.mark.parametrize("positions", ["none", "alibi"])
def test_without_absolute_positions_a_shuffled_set_encodes_alike(positions):
    model = new_model("encoder", positions=positions).double()
    ids = tokens(3, 7)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        difference = float((model(ids)[:, order] - model(ids[:, order])).abs().max())
    assert (difference < 1e-12) is (positions == "none")


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_verdict_does_not_change_with_the_padding(positions):
    model = new_model("encoder", positions=positions, num_classes=3)
    ids = tokens(4, 6)
    garbage = torch.cat((ids, tokens(4, 7, seed=9)), 1)
    real = torch.arange(13).expand(4, 13) < 6
    torch.testing.assert_close(model(garbage, real=real), model(ids), atol=1e-5, rtol=0)
    assert (
        float((model(garbage) - model(ids)).detach().abs().max()) > 1e-3
    )  # unmasked padding does change it


def test_classes_are_read_out_of_each_token_and_a_causal_encoder_looks_back_alone():
    each = {"num_classes": 3, "per_token": True, "num_layers": 2}
    model = new_model("encoder", **each, causal=True).double()
    ids = tokens(2, 7)
    real = torch.arange(7).expand(2, 7) < 6
    logits = model(ids, real=real)
    assert logits.shape == (2, 7, 3)
    torch.testing.assert_close(logits[:, :6], model(ids[:, :6]))
    torch.testing.assert_close(
        logits[:, :6], torch.from_numpy(encoder_output(model, ids, real))[:, :6]
    )
    freely = new_model("encoder", **each).double()
    assert float((freely(ids)[:, :5] - freely(ids[:, :5])).detach().abs().max()) > 1e-3
    with pytest.raises(WrongUsage, match="num_classes"):
        EncoderConfig(**SMALL, per_token=True)


def test_an_input_of_nothing_but_padding_gives_no_nan():
    model = new_model("encoder", num_classes=3)
    logits = model(tokens(2, 4), real=torch.zeros(2, 4, dtype=torch.bool))
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_batching_changes_nothing():
    model = new_model("decoder")
    ids = tokens(5, 9)
    alone = torch.cat([model(row.unsqueeze(0)) for row in ids])
    torch.testing.assert_close(model(ids), alone, atol=1e-5, rtol=0)


def test_a_padding_mask_joins_the_causal_one():
    model = new_model("decoder")
    ids = tokens(2, 6)
    changed = ids.clone()
    changed[0, 4:] = 1
    mask = padding_mask([4, 6], 6)
    torch.testing.assert_close(model(ids, mask=mask)[0, :4], model(changed, mask=mask)[0, :4])


def test_a_token_of_several_parts_is_the_sum_of_their_vectors():
    model = new_model("encoder-decoder", encoder_positions="none")
    parts = torch.stack((tokens(3, 5), tokens(3, 5, seed=7)), -1)
    vectors = model.encoder.embedding.tokens
    torch.testing.assert_close(
        model.encoder.embedding(parts), vectors(parts[..., 0]) + vectors(parts[..., 1])
    )
    assert torch.equal(
        model.encoder.embedding(parts[..., :1]), model.encoder.embedding(parts[..., 0])
    )
    assert model(parts, tokens(3, 2)).shape == (3, 2, 11)


@pytest.mark.parametrize("parts", [(), (2,)])
def test_padding_of_a_source_is_not_looked_at_also_where_tokens_have_parts(parts):
    model = new_model("encoder-decoder", encoder_positions="none")
    source, garbage = (
        tokens(3, length * (2 if parts else 1), seed=length).view(3, length, *parts)
        for length in (5, 7)
    )
    garbage[:, :5] = source
    real, target = torch.arange(7).expand(3, 7) < 5, tokens(3, 4, seed=2)
    found = model(garbage, target, real=real)
    torch.testing.assert_close(found, model(source, target), atol=1e-5, rtol=0)
    with pytest.raises(WrongUsage, match=r"tokens' shape \(3, 7\).* got \(3, 7, 2\)"):
        model(garbage, target, real=torch.ones(3, 7, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DecoderConfig(d_model=7, num_heads=2), "multiple of num_heads; got 7 and 2"),
        (lambda: DecoderConfig(num_heads=4, num_kv_heads=3), "num_kv_heads; got 4 and 3"),
        (lambda: DecoderConfig(positions="concatenated", position_width=64), "from 1 to 63"),
        (lambda: DecoderConfig(positions="rotry"), "positions must be one of none, sinusoidal"),
        (lambda: EncoderDecoderConfig(encoder_positions="concatenated"), "positions=concatenated"),
        (lambda: Decoder(DecoderConfig(**SMALL))(tokens(1, 14)), "at most 13 tokens; got 14"),
        (lambda: Decoder(DecoderConfig(**SMALL))(torch.full((1, 2), 11)), "from 0 to 10; got 11"),
        (lambda: Decoder(DecoderConfig(**SMALL))(torch.full((1, 2), -1)), "from 0 to 10; got -1"),
        (
            lambda: Decoder(DecoderConfig(**SMALL))(torch.zeros(3, dtype=torch.long)),
            r"\(batch, length\); got \(3\)",
        ),
        (lambda: Decoder(DecoderConfig(**SMALL))(torch.zeros(1, 3)), "got .* of torch.float32"),
        (
            lambda: Encoder(EncoderConfig(**SMALL))(tokens(1, 3), real=torch.ones(1, 3)),
            "real must be boolean",
        ),
        (
            lambda: multi_head_attention(4, 2, position=Rotary())(
                torch.zeros(1, 2, 4), torch.zeros(1, 3, 4)
            ),
            "Rotary positions compare places in one sequence.*position=None",
        ),
        (lambda: SingleHead(SingleHeadConfig())(torch.zeros(2, 3)), r"got \(2, 3\)"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()


LIKE_SORTERS = {"positions": "learned", "projections": "gated", "bias": False}


def test_a_copy_computes_with_its_own_weights():
    model, ids = new_model("decoder", **LIKE_SORTERS), tokens(5, 6)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.final_norm.weight.mul_(2)
        torch.testing.assert_close(twin(ids), 2 * model(ids))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_is_one_graph_and_computes_the_same():
    model, ids = new_model("decoder", **LIKE_SORTERS), tokens(5, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        compiled = torch.compile(model, fullgraph=True)
        torch.testing.assert_close(compiled(ids), model(ids), atol=1e-5, rtol=0)
