"""The NumPy float64 reference of every part: formulas written for reading, and the oracle of the
tests.

`attention` holds softmax attention, its gradients and its heads; `masks` who may attend to whom;
`positions` where a token stands; `layers` everything else in a block. Nothing here imports torch or
is fast. One mask convention throughout: True = may attend. Axis words: batch, head, query, key,
width.
"""

from tests.reference.attention import (
    Attention,
    attention,
    attention_gradients,
    entropy,
    join_heads,
    multi_head_attention,
    softmax,
    split_heads,
)
from tests.reference.layers import (
    cross_entropy,
    factorised_weight,
    feed_forward,
    gelu,
    layer_norm,
    relu,
    rms_norm,
    silu,
    swiglu,
)
from tests.reference.masks import (
    anti_causal_mask,
    block_mask,
    causal_mask,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
)
from tests.reference.positions import alibi_bias, alibi_slopes, rotary, sinusoidal_positions

__all__ = [
    "Attention",
    "alibi_bias",
    "alibi_slopes",
    "anti_causal_mask",
    "attention",
    "attention_gradients",
    "block_mask",
    "causal_mask",
    "cross_entropy",
    "entropy",
    "factorised_weight",
    "feed_forward",
    "gelu",
    "join_heads",
    "layer_norm",
    "multi_head_attention",
    "padding_mask",
    "prefix_mask",
    "relu",
    "rms_norm",
    "rotary",
    "silu",
    "sinusoidal_positions",
    "sliding_window_mask",
    "softmax",
    "split_heads",
    "swiglu",
]
