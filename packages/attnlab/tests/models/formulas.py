"""Whole models as formulas: the same weights through plain NumPy, in float64.

Nothing here calls the code of the models or of their parts, so that a fault in those shows as a
difference. It is slow: made for a few short inputs. One mask convention: True = may attend.
"""

import math

import numpy as np
from numpy.typing import NDArray

from attnlab.parts.numpy_transformer import softmax

Booleans = NDArray[np.bool_]


def decoder_logits(model, tokens):
    """Return the next-token logits: ids (batch, length) -> (batch, length, vocabulary)."""
    formula = _Formula(model)
    stream = formula.stack("", tokens, _causal(tokens))
    return formula.logits("", stream, is_tied=model.config.tie_output)


def encoder_output(model, tokens, real):
    """Return (batch, classes), or a vector for each token; real: False at padding."""
    formula = _Formula(model)
    mask = _seen(real)
    if model.config.causal:
        mask = mask & _causal(tokens)
    stream = formula.stack("", tokens, mask)
    if model.config.num_classes is None:
        return stream
    if model.config.per_token:
        return formula.linear("head", stream)
    counted = real.numpy()[:, :, None]
    return formula.linear("head", (stream * counted).sum(1) / counted.sum(1))


def encoder_decoder_logits(model, source, target, real):
    """Return (batch, target length, vocabulary); real: False at padding."""
    config = model.config
    encoder = _Formula(model, config.encoder_positions, config.num_encoder_layers)
    memory = encoder.stack("encoder.", source, _seen(real))
    decoder = _Formula(model)
    stream = decoder.stack("decoder.", target, _causal(target), memory, _seen(real))
    return decoder.logits("decoder.", stream, is_tied=config.tie_output)


def _seen(real):
    """Every query may see the real tokens: (batch, 1, 1, key)."""
    return np.asarray(real.numpy()[:, None, None, :])


def _causal(tokens):
    return np.tri(tokens.shape[1], dtype=bool)


class _Formula:
    """The formulas of a model's parts, each with the weights that stand under its path."""

    def __init__(self, model, positions=None, num_layers=None):
        state = model.state_dict().items()
        self.weights = {name: value.detach().double().numpy() for name, value in state}
        self.config = model.config
        self.positions = positions or model.config.positions
        self.num_layers = num_layers or model.config.num_layers

    def stack(self, path, tokens, mask, memory=None, memory_mask=None):
        """Embed the tokens, and add to the stream what each block's parts make of it."""
        stream = self.embedding(f"{path}embedding", tokens)
        for index in range(self.num_layers):
            block = f"{path}layers.{index}."
            stream = self.added(block, "attention", stream, mask)
            if memory is not None:
                stream = self.added(block, "cross_attention", stream, memory_mask, memory)
            stream = self.added(block, "feed_forward", stream)
        if self.config.final_norm:
            stream = self.norm(f"{path}final_norm", stream)
        return stream

    def added(self, block, name, stream, mask=None, memory=None):
        """Add to the stream what a part writes, with the norm before, after or nowhere."""
        read, place = stream, self.config.norm_place
        if place == "pre":
            read = self.norm(f"{block}norm_{name}", stream)
        if mask is None:
            update = self.feed_forward(f"{block}{name}", read)
        else:
            update = self.attention(f"{block}{name}", read, mask, memory)
        stream = stream + update
        if place == "post":
            stream = self.norm(f"{block}norm_{name}", stream)
        return stream

    def embedding(self, path, tokens):
        """Return the tokens' vectors with their positions."""
        vectors = self.weights[f"{path}.tokens.weight"][tokens.numpy()]
        batch, length, width = vectors.shape
        if self.config.scale_embedding:
            vectors = vectors * math.sqrt(width)
        if self.positions == "sinusoidal":
            vectors = vectors + _sinusoids(length, width)
        if self.positions in ("learned", "concatenated"):
            rows = self.weights[f"{path}.positions.weight"][:length]
            if self.positions == "learned":
                return np.asarray(vectors + rows)
            beside = np.broadcast_to(rows, (batch, *rows.shape))
            vectors = np.concatenate((vectors, beside), -1)
        return np.asarray(vectors)

    def attention(self, path, x, mask, memory):
        """Compute softmax(Q Kᵀ / √width) V in every head (Vaswani et al. 2017, equation 1)."""
        num_heads = self.config.num_heads
        num_kv_heads = self.config.num_kv_heads or num_heads
        context = x if memory is None else memory
        query = self.projection(f"{path}.query", x, num_heads)
        key = self.projection(f"{path}.key", context, num_kv_heads)
        value = self.projection(f"{path}.value", context, num_kv_heads)
        if self.positions == "rotary" and memory is None:
            query, key = _rotated(query), _rotated(key)
        share = num_heads // num_kv_heads
        key, value = key.repeat(share, axis=1), value.repeat(share, axis=1)
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
        if self.positions == "alibi" and memory is None:
            scores = scores + _alibi(num_heads, x.shape[1])
        heads = softmax(np.where(mask, scores, -np.inf)) @ value
        return self.linear(f"{path}.output", heads.swapaxes(1, 2).reshape(*x.shape[:2], -1))

    def projection(self, path, x, num_heads):
        """Project x into (batch, head, length, head_width); factorised: softmax(A B / t)."""
        if self.config.projections == "dense":
            projected = self.linear(path, x)
            return projected.reshape(*projected.shape[:2], num_heads, -1).swapaxes(1, 2)
        product = self.weights[f"{path}.a"] @ self.weights[f"{path}.b"]
        matrix = softmax(product / self.config.temperature)
        return np.asarray(x[:, None] @ (matrix * self.weights.get(f"{path}.base", 1.0)))

    def feed_forward(self, path, x):
        """Compute what each position does by itself."""
        inner = self.linear(f"{path}.inner", x)
        if self.config.activation == "relu":
            hidden = np.maximum(inner, 0.0)
        elif self.config.activation == "gelu":
            hidden = inner * (1.0 + np.vectorize(math.erf)(inner / math.sqrt(2.0))) / 2.0
        else:  # swiglu: silu(gate) × inner
            gate = self.linear(f"{path}.gate", x)
            hidden = gate * np.exp(-np.logaddexp(0.0, -gate)) * inner
        return self.linear(f"{path}.outer", hidden)

    def norm(self, path, x):
        """Divide by the root mean square, or take off the mean first and divide by the spread."""
        weight = self.weights[f"{path}.weight"]
        if self.config.norm == "rms":
            mean_square = (x**2).mean(-1, keepdims=True)
            return np.asarray(x / np.sqrt(mean_square + 1e-6) * weight)
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered**2).mean(-1, keepdims=True)
        normed = centered / np.sqrt(variance + 1e-5)
        return np.asarray(normed * weight + self.weights[f"{path}.bias"])

    def linear(self, path, x):
        """Return x Wᵀ, plus the bias if there is one."""
        bias = self.weights.get(f"{path}.bias", 0.0)
        return np.asarray(x @ self.weights[f"{path}.weight"].T + bias)

    def logits(self, path, stream, *, is_tied):
        """Compare with each token's vector, without concatenated positions, or read out anew."""
        if not is_tied:
            return self.linear("head", stream)
        tokens = self.weights[f"{path}embedding.tokens.weight"]
        return np.asarray(stream[..., : tokens.shape[1]] @ tokens.T)


def _sinusoids(length, width):
    """Return (length, width): sines and cosines of slowing frequency (Vaswani et al. 2017, 3.5)."""
    channel = np.arange(width)
    angles = np.arange(length)[:, None] / 10000.0 ** ((channel - channel % 2) / width)
    return np.where(channel % 2 == 0, np.sin(angles), np.cos(angles))


def _rotated(x):
    """Turn the channels (i, i + half) in pairs (Su et al. 2021, section 3.2)."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-np.arange(half) / max(half, 1))
    angles = np.arange(x.shape[-2])[:, None] * frequencies
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = (
        first * np.cos(angles) - second * np.sin(angles),
        first * np.sin(angles) + second * np.cos(angles),
    )
    return np.concatenate((*turned, x[..., 2 * half :]), -1)


def _alibi(num_heads, length):
    """Return minus slope × distance, (head, query, key) (Press et al. 2022, section 3)."""
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power + 1, 2) / power)
    slopes = np.concatenate((slopes, between))[:num_heads]
    place = np.arange(length)
    return np.asarray(-slopes[:, None, None] * np.abs(place[:, None] - place))
