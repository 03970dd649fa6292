"""Our models in NumPy float64, with a hook point at every site: see `tests/models/formulas.py`."""

import numpy as np

from attnlab.models import Decoder, EncoderDecoder, SingleHead
from tests.models.formulas import (
    attended,
    beside,
    decoder_logits,
    encoder_decoder_logits,
    encoder_output,
    unchanged,
)


class Oracle:
    """One of our models in NumPy."""

    def __init__(self, model):
        self.model = model

    def __call__(self, *inputs, seen=None, change=unchanged):
        """The output for ids (or vectors); `seen` is what may be looked at, or is no padding."""
        if isinstance(self.model, Decoder):
            return decoder_logits(self.model, *inputs, True if seen is None else seen, change)
        real = np.ones(inputs[0].shape[:2], bool) if seen is None else np.asarray(seen)
        if isinstance(self.model, EncoderDecoder):
            return encoder_decoder_logits(self.model, *inputs, real, change)
        of_kind = single_head if isinstance(self.model, SingleHead) else encoder_output
        return of_kind(self.model, *inputs, real, change)


def single_head(model, x, real, change):
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    x = np.asarray(x)
    if "positions.weight" in weights:
        x = beside(x, weights["positions.weight"])
    sides = ((x @ weights[f"{name}.weight"].T)[:, None] for name in ("query", "key", "value"))
    bias = np.zeros((1, x.shape[1], x.shape[1]))
    return change("output", attended("", *sides, real[:, None, None], bias, change)[:, 0])
