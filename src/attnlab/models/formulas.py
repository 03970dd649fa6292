"""Whole models as formulas: the same weights through the NumPy reference, in float64.

Nothing here calls the code of the models or of their parts, so that a fault in those shows as a
difference. It is slow: made for a few short inputs.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from attnlab.models.config import PositionKind, TransformerConfig
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.parts import reference
from attnlab.parts.reference.attention import Floats, linear
from attnlab.parts.reference.masks import Booleans

__all__ = ["decoder_logits", "encoder_decoder_logits", "encoder_output"]

Weights = Mapping[str, Floats]
"""A model's or a part's weights by name, as in its state dict."""


def decoder_logits(model: Decoder, tokens: Tensor) -> Floats:
    """Return the next-token logits: ids (batch, length) -> (batch, length, vocabulary)."""
    weights, config = _weights_of(model), model.config
    stream = _embedding(config, _part(weights, "embedding"), tokens, config.positions)
    mask = reference.causal_mask(tokens.shape[1])
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
    mask = reference.causal_mask(target.shape[1])
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


def _embedding(
    config: TransformerConfig, weights: Weights, tokens: Tensor, positions: PositionKind
) -> Floats:
    vectors = weights["tokens.weight"][tokens.numpy()]
    batch, length, width = vectors.shape
    if config.scale_embedding:
        vectors = vectors * np.sqrt(width)
    if positions == "sinusoidal":
        return np.asarray(vectors + reference.sinusoidal_positions(length, width))
    if positions == "learned":
        return np.asarray(vectors + weights["positions.weight"][:length])
    if positions == "concatenated":
        rows = np.broadcast_to(
            weights["positions.weight"][:length], (batch, length, config.concatenated_width)
        )
        return np.concatenate((vectors, rows), -1)
    return np.asarray(vectors)


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
    """Attention, cross-attention where there is a memory, feed-forward, each added to the
    stream."""
    names = (
        ["attention", "feed_forward"]
        if memory is None
        else ["attention", "cross_attention", "feed_forward"]
    )
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
    num_kv_heads = config.num_heads if config.num_kv_heads is None else config.num_kv_heads
    query = reference.split_heads(_projection(config, _part(weights, "query"), x), config.num_heads)
    key = reference.split_heads(_projection(config, _part(weights, "key"), context), num_kv_heads)
    value = reference.split_heads(
        _projection(config, _part(weights, "value"), context), num_kv_heads
    )
    if positions == "rotary":
        query, key = _rotated(query), _rotated(key)
    bias = np.where(mask, 0.0, -np.inf)
    if positions == "alibi":
        bias = bias + reference.alibi_bias(config.num_heads, x.shape[1], context.shape[1])
    key_head_of = [head * num_kv_heads // config.num_heads for head in range(config.num_heads)]
    heads = reference.attention(query, key[:, key_head_of], value[:, key_head_of], bias)
    return _linear(_part(weights, "output"), reference.join_heads(heads.output))


def _projection(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    if config.projections == "dense":
        return _linear(weights, x)
    matrix = reference.factorised_weight(
        weights["a"], weights["b"], config.temperature, weights.get("base")
    )
    return reference.join_heads(x[:, None] @ matrix)


def _rotated(x: Floats) -> Floats:
    """Turn the channels in pairs; the last of an odd number stays as it is."""
    even = x.shape[-1] - x.shape[-1] % 2
    turned = reference.rotary(x[..., :even], np.arange(x.shape[-2]))
    return np.concatenate((turned, x[..., even:]), -1)


def _feed_forward(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    inner = _linear(_part(weights, "inner"), x)
    if config.activation == "swiglu":
        hidden = reference.silu(_linear(_part(weights, "gate"), x)) * inner
    else:
        hidden = {"relu": reference.relu, "gelu": reference.gelu}[config.activation](inner)
    return _linear(_part(weights, "outer"), hidden)


def _norm(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    if config.norm == "rms":
        return reference.rms_norm(x, weights["weight"])
    return reference.layer_norm(x, weights["weight"], weights["bias"])


def _final_norm(config: TransformerConfig, weights: Weights, x: Floats) -> Floats:
    return _norm(config, _part(weights, "final_norm"), x) if config.final_norm else x


def _linear(weights: Weights, x: Floats) -> Floats:
    return linear(x, weights["weight"], weights.get("bias"))


def _read_out(weights: Weights, x: Floats) -> Floats:
    """Compare with each token's vector; concatenated positions are left out."""
    tokens = weights["tokens.weight"]
    return linear(x[..., : tokens.shape[1]], tokens)
