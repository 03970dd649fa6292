"""Small random models of every kind, with inputs, padding too, and what is right for them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab import models
from attnlab.edits.effects.metrics import IGNORED
from attnlab.parts.masks import padding_mask
from attnlab.seeds import generator, isolated

VOCABULARY = 11
KINDS = ("decoder", "padded decoder", "encoder", "encoder-decoder")


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
    """Draw a model and inputs."""
    draw = generator(seed, "tests", "effects")

    def one_of(*choices):
        return choices[int(torch.randint(len(choices), (), generator=draw))]

    kind = kind or KINDS[seed % len(KINDS)]
    heads = one_of(2, 4)
    told = {
        "vocab_size": VOCABULARY,
        "max_length": 16,
        "d_model": 16,
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
    tokens = torch.randint(VOCABULARY, (rows, length), generator=draw)
    lengths = torch.randint(1, length + 1, (rows,), generator=draw)
    real = torch.arange(length) < lengths.unsqueeze(1)
    labels = torch.randint(VOCABULARY, (rows, length), generator=draw)
    with isolated(seed, "tests", "effects model"):
        if kind == "encoder":
            model = models.Encoder(models.EncoderConfig(**told, num_classes=4))
            inputs = {"tokens": tokens, "real": real}
            labels = labels[:, 0] % 4
        elif kind == "encoder-decoder":
            model = models.EncoderDecoder(models.EncoderDecoderConfig(**told))
            inputs = {"source": tokens, "target": tokens[:, :3] // 2, "real": real}
            labels = labels[:, :3]
        else:
            model = models.Decoder(models.DecoderConfig(**told, tie_output=one_of(True, False)))
            inputs = tokens
            if kind == "padded decoder":
                inputs = {"tokens": tokens, "mask": padding_mask(lengths, length)}
                labels = labels.masked_fill(~real, IGNORED)
    with torch.no_grad():  # as built, the heads of some models hardly say anything
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    return Given(model.eval().to(dtype), inputs, labels)


def run(each):
    """Run the model on its inputs."""
    options = each.inputs if isinstance(each.inputs, dict) else {"tokens": each.inputs}
    with torch.no_grad():
        return each.model(**options)
