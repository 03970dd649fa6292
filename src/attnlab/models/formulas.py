"""Whole models as formulas: the same weights through plain NumPy, in float64.

Nothing here calls the code of the models or of their parts, so that a fault in those shows as a
difference. It is slow: made for a few short inputs. One mask convention: True = may attend.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.models.config import PositionKind, TransformerConfig
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.parts.numpy_transformer import Floats, softmax

Booleans = NDArray[np.bool_]
Weights = Mapping[str, Floats]
"""A model's or a part's weights by name, as in its state dict."""


def decoder_logits(model: Decoder, tokens: Tensor) -> Floats:
    """Return the next-token logits: ids (batch, length) -> (batch, length, vocabulary)."""
    weights, config = _weights_of(model), model.config
    stream = _embedding(config, _part(weights, "embedding"), tokens, config.positions)
    mask = _causal_mask(tokens.shape[1])
    for index in range(config.num_layers):
        stream = _block(config, _part(weights, f"layers.{index}"), stream, mask, config.positions)
    stream = _final_norm(config, weights, stream)
    if config.tie_output:
        return _read_out(_part(weights, "embedding"), stream)
    return _linear(_part(weights, "head"), stream)


def encoder_output(model: Encoder, tokens: Tensor, real: Tensor) -> Floats:
    """Return the logits of the classes, (batch, classes), or without classes a vector for each
    token.

    real: (batch, length) boolean, False at padding.
    """
    weights, config = _weights_of(model), model.config
    stream = _encoded(config, weights, tokens, real, config.positions, config.num_layers)
    if config.num_classes is None:
        return stream
    counted = real.numpy()[:, :, None]
    return _linear(_part(weights, "head"), (stream * counted).sum(1) / counted.sum(1))


def encoder_decoder_logits(
    model: EncoderDecoder, source: Tensor, target: Tensor, real: Tensor
) -> Floats:
    """Return the logits of the token after each of the target's: (batch, target length,
    vocabulary).

    real: (batch, source length) boolean, False at padding.
    """
    weights, config = _weights_of(model), model.config
    num_layers = (
        config.num_layers if config.num_encoder_layers is None else config.num_encoder_layers
    )
    positions = config.encoder_positions or config.positions
    memory = _encoded(config, _part(weights, "encoder"), source, real, positions, num_layers)
    decoder = _part(weights, "decoder")
    stream = _embedding(config, _part(decoder, "embedding"), target, config.positions)
    mask = _causal_mask(target.shape[1])
    for index in range(config.num_layers):
        block = _part(decoder, f"layers.{index}")
        stream = _block(
            config, block, stream, mask, config.positions, memory=memory, memory_mask=_seen(real)
        )
    stream = _final_norm(config, decoder, stream)
    if config.tie_output:
        return _read_out(_part(decoder, "embedding"), stream)
    return _linear(_part(weights, "head"), stream)


def _weights_of(model: nn.Module) -> Weights:
    return {name: value.detach().double().numpy() for name, value in model.state_dict().items()}


def _part(weights: Weights, name: str) -> Weights:
    start = f"{name}."
    return {
        each.removeprefix(start): value for each, value in weights.items() if each.startswith(start)
    }


def _seen(real: Tensor) -> Booleans:
    """Every query may see the real tokens: (batch, 1, 1, key)."""
    return np.asarray(real.numpy()[:, None, None, :])


def _encoded(
    config: TransformerConfig,
    weights: Weights,
    tokens: Tensor,
    real: Tensor,
    positions: PositionKind,
    num_layers: int,
) -> Floats:
    stream = _embedding(config, _part(weights, "embedding"), tokens, positions)
    for index in range(num_layers):
        stream = _block(config, _part(weights, f"layers.{index}"), stream, _seen(real), positions)
    return _final_norm(config, weights, stream)


def _causal_mask(length: int) -> Booleans:
    return np.tri(length, dtype=bool)


def _embedding(
    config: TransformerConfig, weights: Weights, tokens: Tensor, positions: PositionKind
) -> Floats:
    vectors = weights["tokens.weight"][tokens.numpy()]
    batch, length, width = vectors.shape
    if config.scale_embedding:
        vectors = vectors * math.sqrt(width)
    if positions == "sinusoidal":
        vectors = vectors + _sinusoids(length, width)
    if positions == "learned":
        vectors = vectors + weights["positions.weight"][:length]
    if positions == "concatenated":
        rows = weights["positions.weight"][:length]
        rows = np.broadcast_to(rows, (batch, length, config.concatenated_width))
        vectors = np.concatenate((vectors, rows), -1)
    return np.asarray(vectors)


def _sinusoids(length: int, width: int) -> Floats:
    """Return (length, width): sines and cosines of slowing frequency (Vaswani et al. 2017, 3.5)."""
    channel = np.arange(width)
    angles = np.arange(length)[:, None] / 10000.0 ** ((channel - channel % 2) / width)
    return np.where(channel % 2 == 0, np.sin(angles), np.cos(angles))


def _block(
    config: TransformerConfig,
    weights: Weights,
    stream: Floats,
    mask: Booleans,
    positions: PositionKind,
    *,
    memory: Floats | None = None,
    memory_mask: Booleans | None = None,
) -> Floats:
    """Add attention, cross-attention where there is a memory, and feed-forward to the stream."""
    names = ["attention", "feed_forward"]
    if memory is not None:
        names.insert(1, "cross_attention")
    for name in names:
        own, norm = _part(weights, name), _part(weights, f"norm_{name}")
        read = _norm(config, norm, stream) if config.norm_place == "pre" else stream
        if name == "attention":
            update = _attention(config, own, read, read, mask, positions)
        elif name == "cross_attention":
            assert memory is not None
            assert memory_mask is not None
            update = _attention(config, own, read, memory, memory_mask, "none")
        else:
            update = _feed_forward(config, own, read)
        stream = stream + update
        if config.norm_place == "post":
            stream = _norm(config, norm, stream)
    return stream


def _attention(
    config: TransformerConfig,
    weights: Weights,
    x: Floats,
    context: Floats,
    mask: Booleans,
    positions: PositionKind,
) -> Floats:
    """Compute softmax(Q Kᵀ / √width) V in every head (Vaswani et al. 2017, equation 1)."""
    num_heads = config.num_heads
    num_kv_heads = num_heads if config.num_kv_heads is None else config.num_kv_heads
    query = _heads(_projection(config, _part(weights, "query"), x), num_heads)
    key = _heads(_projection(config, _part(weights, "key"), context), num_kv_heads)
    value = _heads(_projection(config, _part(weights, "value"), context), num_kv_heads)
    if positions == "rotary":
        query, key = _rotated(query), _rotated(key)
    share = num_heads // num_kv_heads
    key, value = key.repeat(share, axis=1), value.repeat(share, axis=1)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    if positions == "alibi":
        scores = scores + _alibi(num_heads, x.shape[1], context.shape[1])
    output = softmax(np.where(mask, scores, -np.inf)) @ value
    return _linear(_part(weights, "output"), _joined(output))


def _heads(x: Floats, num_heads: int) -> Floats:
    """Cut the width into heads: (batch, length, width) -> (batch, head, length, head_width)."""
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads).swapaxes(1, 2)


def _joined(heads: Floats) -> Floats:
    """Lay the heads side by side again."""
    batch, _, length, _ = heads.shape
    return heads.swapaxes(1, 2).reshape(batch, length, -1)


def _projection(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    """Project x; a factorised weight is softmax(A B / temperature), times `base` where gated."""
    if config.projections == "dense":
        return _linear(weights, x)
    matrix = softmax(weights["a"] @ weights["b"] / config.temperature)
    if "base" in weights:
        matrix = matrix * weights["base"]
    return _joined(x[:, None] @ matrix)


def _rotated(x: Floats) -> Floats:
    """Turn the channels (i, i + half) in pairs; the last of an odd number stays as it is.

    Su et al. 2021, section 3.2, with the pairs of GPT-NeoX and Llama.
    """
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-np.arange(half) / max(half, 1))
    angles = np.arange(x.shape[-2])[:, None] * frequencies
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = (
        first * np.cos(angles) - second * np.sin(angles),
        first * np.sin(angles) + second * np.cos(angles),
    )
    return np.concatenate((*turned, x[..., 2 * half :]), -1)


def _alibi(num_heads: int, n_query: int, n_key: int) -> Floats:
    """Return minus slope × distance, (head, query, key) (Press et al. 2022, section 3)."""
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power + 1, 2) / power)
    slopes = np.concatenate((slopes, between))[:num_heads]
    key = np.arange(n_key)
    return np.asarray(-slopes[:, None, None] * np.abs(key[n_key - n_query :, None] - key))


def _feed_forward(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    inner = _linear(_part(weights, "inner"), x)
    if config.activation == "relu":
        hidden = np.maximum(inner, 0.0)
    elif config.activation == "gelu":
        hidden = inner * (1.0 + np.vectorize(math.erf)(inner / math.sqrt(2.0))) / 2.0
    else:  # swiglu: silu(gate) × inner
        gate = _linear(_part(weights, "gate"), x)
        hidden = gate * np.exp(-np.logaddexp(0.0, -gate)) * inner
    return _linear(_part(weights, "outer"), hidden)


def _norm(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    if config.norm == "rms":
        root = np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return np.asarray(x / root * weights["weight"])
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    normal = centered / np.sqrt(variance + 1e-5)
    return np.asarray(normal * weights["weight"] + weights["bias"])


def _final_norm(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    return _norm(config, _part(weights, "final_norm"), x) if config.final_norm else x


def _linear(weights: Weights, x: Floats) -> Floats:
    return np.asarray(x @ weights["weight"].T + weights.get("bias", 0.0))


def _read_out(weights: Weights, x: Floats) -> Floats:
    """Compare with each token's vector; concatenated positions are left out."""
    tokens = weights["tokens.weight"]
    return np.asarray(x[..., : tokens.shape[1]] @ tokens.T)
