"""Small models and parts of every kind with random parameters, and inputs for them.

`new_model` is as training would find it. The others have noise on every parameter: zero biases and
gains of one would hide mistakes. Widths of parts are distinct primes times heads.
"""

import functools
import random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab import models
from attnlab.edits.effects.metrics import IGNORED
from attnlab.parts.blocks import Block
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import multi_head_attention
from attnlab.parts.masks import padding_mask
from attnlab.parts.positions import (
    Alibi,
    ConcatenatedPositions,
    LearnedPositions,
    Rotary,
    SinusoidalPositions,
)
from attnlab.seeds import generator, isolated

CLASSES = {
    "decoder": (models.Decoder, models.DecoderConfig),
    "encoder": (models.Encoder, models.EncoderConfig),
    "encoder-decoder": (models.EncoderDecoder, models.EncoderDecoderConfig),
    "single head": (models.SingleHead, models.SingleHeadConfig),
}
KINDS = ("decoder", "padded decoder", "encoder", "encoder-decoder")
POSITIONS = ("none", "learned", "rotary", "alibi", "sinusoidal", "concatenated")
NORM_PLACES = ("pre", "post", "none")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

SIZES = {
    "vocab_size": 11,
    "max_length": 16,
    "d_model": 16,
    "num_heads": 4,
    "num_layers": 2,
    "d_ff": 7,
}


def new_model(kind="decoder", seed=0, **settings):
    """Build a model; what the settings do not say is small, and two layers deep."""
    model_class, config_class = CLASSES[kind]
    sizes = {} if kind == "single head" else SIZES
    with isolated(seed):
        return model_class(config_class(**{**sizes, **settings})).eval()


@functools.cache
def random_model(kind="decoder", number=0, dtype=torch.float64):
    """One model for all tests, not to be changed; the number decides on heads, norms, positions."""
    settings: dict[str, Any] = {
        "num_kv_heads": (4, 2, 1)[number % 3],
        "norm": ("layer", "rms")[number % 2],
        "norm_place": NORM_PLACES[number // 2 % 2],
        "positions": POSITIONS[number % 5],
    }
    if kind == "encoder":
        settings["num_classes"] = (None, 3)[number % 2]
    if kind == "single head":
        settings = {"input_dim": 3, "qk_dim": 5, "v_dim": 2, "pos_dim": (None, 4)[number % 2]}
    return shaken(new_model(kind, number, **settings), 0.3, number).to(dtype)


def shaken(part, size=0.1, seed=0):
    """Add noise to all parameters."""
    draw = generator(seed, "noise")
    with torch.no_grad():
        for parameter in part.parameters():
            noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.add_(size * noise)
    return part


def tokens(batch=3, length=6, seed=0, low=0, high=11):
    return torch.randint(low, high, (batch, length), generator=generator(seed, "tokens"))


class Given(NamedTuple):
    """A model, what it is called with, and labels."""

    model: nn.Module
    inputs: Any
    labels: Tensor

    @property
    def whole(self):
        """What every function of effects begins with."""
        return self.model, self.inputs

    @property
    def loss(self):
        """The usual metric, as arguments."""
        return {"metric": "loss", "target": self.labels}

    @property
    def num_rows(self):
        return len(self.labels)

    @property
    def real(self):
        """Which positions of what the output goes on from are no padding, (row, length)."""
        is_decoder = isinstance(self.inputs, dict) and "mask" in self.inputs
        return self.inputs["mask"][:, 0, 0] if is_decoder else None

    def last(self, logits):
        """The logits of each row's last position that is no padding."""
        if self.real is None:
            return logits[:, -1]
        return logits[torch.arange(len(logits)), self.real.sum(1) - 1]


def given(seed, kind=None, dtype=torch.float64, **fixed):
    """Draw a model of any architecture, inputs and labels."""
    draw = generator(seed, "tests", "effects")

    def one_of(*choices):
        return choices[int(torch.randint(len(choices), (), generator=draw))]

    kind = kind or KINDS[seed % len(KINDS)]
    heads = one_of(2, 4)
    settings = {
        "num_heads": heads,
        "num_kv_heads": one_of(None, 1, heads // 2),
        "num_layers": one_of(1, 2, 3),
        "d_ff": 20,
        "activation": one_of("relu", "gelu", "swiglu"),
        "norm": one_of("layer", "rms"),
        "norm_place": one_of("pre", "pre", "post", "none"),
        "final_norm": one_of(True, False),
        "positions": one_of("sinusoidal", "learned", "concatenated", "rotary", "alibi"),
        "projections": one_of("dense", "gated"),
        "rank": 3,
        **fixed,
    }
    rows, length = one_of(1, 2, 5), one_of(3, 6, 9)
    if kind == "single head":
        sizes = {"input_dim": 3, "qk_dim": 5, "v_dim": 4, "pos_dim": one_of(None, 3)}
        model = new_model(kind, seed, learned_positions=True, **sizes)
        x = normal(rows, length, 3, seed=seed, dtype=dtype)
        return Given(model.to(dtype), {"x": x, "need_weights": one_of(True, False)}, x)
    ids = torch.randint(11, (rows, length), generator=draw)
    lengths = torch.randint(1, length + 1, (rows,), generator=draw)
    real = torch.arange(length) < lengths.unsqueeze(1)
    labels = torch.randint(11, (rows, length), generator=draw)
    inputs: Any = ids
    if kind == "encoder":
        settings["num_classes"] = 4
        inputs, labels = {"tokens": ids, "real": real}, labels[:, 0] % 4
    elif kind == "encoder-decoder":
        inputs, labels = {"source": ids, "target": ids[:, :3] // 2, "real": real}, labels[:, :3]
    else:
        settings["tie_output"] = one_of(True, False)
        if kind == "padded decoder":
            inputs = {"tokens": ids, "mask": padding_mask(lengths, length)}
            labels = labels.masked_fill(~real, IGNORED)
    model = new_model(kind.removeprefix("padded "), seed, **settings)
    # as built, the heads of some models hardly say anything
    return Given(shaken(model, seed=seed).to(dtype), inputs, labels)


def run(each):
    """Run the model on its inputs."""
    options = each.inputs if isinstance(each.inputs, dict) else {"tokens": each.inputs}
    with torch.no_grad():
        found = each.model(**options)
    return getattr(found, "output", found)


def any_case(seed):
    """Draw a model of any kind and dtype, and inputs with padding or without."""
    draw = random.Random(seed)
    kind, dtype = (*KINDS, "single head")[seed % 5], draw.choice(DTYPES)
    # norms keep scores so small that the weights are as exact as their dtype
    fixed = {"positions": draw.choice(POSITIONS), "norm_place": draw.choice(["pre", "post"])}
    each = given(seed, kind, dtype, **fixed)
    if kind != "decoder":
        name = "mask" if "mask" in each.inputs else "real"
        real = _real(draw, next(iter(each.inputs.values())))
        each.inputs[name] = real[:, None, None] if name == "mask" and real is not None else real
    return each


def _real(draw, inputs):
    """Say which positions are no padding: all in half of the cases, in others perhaps none."""
    if draw.random() < 0.5:
        return None
    batch, length = inputs.shape[:2]
    lengths = torch.tensor([[draw.randint(0, length)] for _ in range(batch)])
    return torch.arange(length) < lengths


def normal(*shape, seed=0, dtype=torch.float64):
    draw = generator(seed, "test", *shape)
    return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)


def make_attention(d_model=28, num_heads=4, *, position="none", dtype=torch.float64, **options):
    with isolated(5):
        part = multi_head_attention(
            d_model, num_heads, position=_in_heads(position, num_heads), **options
        )
    return shaken(part).to(dtype)


def _in_heads(position, num_heads):
    return {"rotary": Rotary(), "alibi": Alibi(num_heads)}.get(position)


def make_block(
    d_model=28,
    num_heads=4,
    *,
    position="none",
    activation="gelu",
    is_decoder=False,
    dropout=0.0,
    dtype=torch.float64,
    norm="layer",
    norm_place="pre",
    **options,
):
    own = {"position": _in_heads(position, num_heads), "dropout": dropout}
    with isolated(7):
        cross = multi_head_attention(d_model, num_heads, **options) if is_decoder else None
        block = Block(
            multi_head_attention(d_model, num_heads, **own, **options),
            FeedForward(d_model, 31, activation=activation, dropout=dropout),
            d_model=d_model,
            cross_attention=cross,
            norm=norm,
            norm_place=norm_place,
            dropout=dropout,
        )
    return shaken(block).to(dtype)


def with_positions(block, position, d_model=28, **options):
    """A function from tokens to the block's output, positions of any kind included."""
    with isolated(11):
        before: nn.Module = {
            "sinusoidal": SinusoidalPositions(d_model),
            "learned": LearnedPositions(17, d_model),
            "concatenated": ConcatenatedPositions(17, 5),
        }.get(position, nn.Identity())
    before.to(next(block.parameters()).dtype)

    def run(x):
        return block(before(x[..., :-5] if position == "concatenated" else x), **options)

    return run
