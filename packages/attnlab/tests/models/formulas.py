"""Whole models as formulas: the same weights through `tests/reference`, in NumPy float64.

Nothing here calls the code of the models or of their parts, so that a fault in those shows as a
difference. `change` is called with each site's full name and value, and what it returns goes on;
masks are boolean there, True = may attend, and a bias is kept apart from them.
"""

import math

import numpy as np

from tests import reference as ref


def unchanged(site, value):
    return value


def decoder_logits(model, tokens, seen=True, change=unchanged):
    """Return (batch, length, vocabulary) of ids (batch, length)."""
    formula, tokens = Formula(model, change), np.asarray(tokens)
    stream = formula.stack("", tokens, _causal(tokens) & np.asarray(seen))
    return formula.logits("", stream, is_tied=model.config.tie_output)


def encoder_output(model, tokens, real, change=unchanged):
    """Return (batch, classes), or a vector for each token; real: False at padding."""
    formula, tokens = Formula(model, change), np.asarray(tokens)
    mask = _seen(real) & _causal(tokens) if model.config.causal else _seen(real)
    stream = formula.stack("", tokens, mask)
    if model.config.num_classes is None:
        return stream
    if not model.config.per_token:
        counted = np.asarray(real)[:, :, None].astype(float)
        stream = (stream * counted).sum(1) / np.maximum(counted.sum(1), 1)
    return change("logits", formula.linear("head", stream))


def encoder_decoder_logits(model, source, target, real, change=unchanged):
    """Return (batch, target length, vocabulary); real: False at padding."""
    config, target = model.config, np.asarray(target)
    encoder = Formula(model, change, config.encoder_positions, config.num_encoder_layers)
    memory = encoder.stack("encoder.", np.asarray(source), _seen(real))
    decoder = Formula(model, change)
    stream = decoder.stack("decoder.", target, _causal(target), memory, _seen(real))
    return decoder.logits("decoder.", stream, is_tied=config.tie_output)


def _seen(real):
    """Every query may see the real tokens: (batch, 1, 1, key)."""
    return np.asarray(real)[:, None, None, :]


def _causal(tokens):
    return ref.causal_mask(tokens.shape[1])


class Formula:
    """The formulas of a model's parts, each with the weights that stand under its path."""

    def __init__(self, model, change=unchanged, positions=None, num_layers=None):
        state = model.state_dict().items()
        self.weights = {name: value.detach().double().numpy() for name, value in state}
        self.config, self.change = model.config, change
        self.positions = positions or model.config.positions
        self.num_layers = num_layers or model.config.num_layers

    def stack(self, path, tokens, mask, memory=None, memory_mask=None):
        """Embed the tokens, and add to the stream what each block's parts make of it."""
        stream = self.change(f"{path}embedding", self.embedding(f"{path}embedding", tokens))
        for index in range(self.num_layers):
            block = f"{path}layers.{index}."
            stream = self.change(f"{block}residual_before", stream)
            stream = self.added(block, "attention", stream, mask)
            stream = self.change(f"{block}residual_between", stream)
            if memory is not None:
                stream = self.added(block, "cross_attention", stream, memory_mask, memory)
                stream = self.change(f"{block}residual_after_cross", stream)
            stream = self.added(block, "feed_forward", stream)
            stream = self.change(f"{block}residual_after", stream)
        return self.norm(f"{path}final_norm", stream) if self.config.final_norm else stream

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
        return self.norm(f"{block}norm_{name}", stream) if place == "post" else stream

    def embedding(self, path, tokens):
        """Return the tokens' vectors with their positions."""
        vectors = self.weights[f"{path}.tokens.weight"][tokens]
        length, width = vectors.shape[1:]
        if self.config.scale_embedding:
            vectors = vectors * math.sqrt(width)
        if self.positions == "sinusoidal":
            vectors = vectors + ref.sinusoidal_positions(length, width)
        if self.positions == "learned":
            vectors = vectors + self.weights[f"{path}.positions.weight"][:length]
        if self.positions == "concatenated":
            vectors = beside(vectors, self.weights[f"{path}.positions.weight"])
        return vectors

    def attention(self, path, x, mask, memory):
        """Compute softmax(Q Kᵀ / √width) V in every head (Vaswani et al. 2017, equation 1)."""
        num_heads = self.config.num_heads
        num_shared = self.config.num_kv_heads or num_heads
        context = x if memory is None else memory
        query = self.projection(f"{path}.query", x, num_heads)
        key = self.projection(f"{path}.key", context, num_shared)
        value = self.projection(f"{path}.value", context, num_shared)
        bias = np.zeros((num_heads, x.shape[1], context.shape[1]))
        if memory is None and self.positions == "rotary":
            query, key = rotated(query), rotated(key)
        if memory is None and self.positions == "alibi":
            bias = ref.alibi_bias(num_heads, x.shape[1], x.shape[1])
        heads = attended(f"{path}.", query, key, value, mask, bias, self.change)
        return self.change(f"{path}.output", self.linear(f"{path}.output", ref.join_heads(heads)))

    def projection(self, path, x, num_heads):
        """Project x into (batch, head, length, head_width); factorized: softmax(A B / t)."""
        if self.config.projections == "dense":
            return ref.split_heads(self.linear(path, x), num_heads)
        product = self.weights[f"{path}.a"] @ self.weights[f"{path}.b"]
        matrix = ref.softmax(product / self.config.temperature)
        return x[:, None] @ (matrix * self.weights.get(f"{path}.base", 1.0))

    def feed_forward(self, path, x):
        """Compute what each position does by itself."""
        inner, activation = self.linear(f"{path}.inner", x), self.config.activation
        if activation == "swiglu":
            hidden = ref.silu(self.linear(f"{path}.gate", x)) * inner
        else:
            hidden = getattr(ref, activation)(inner)
        hidden = self.change(f"{path}.hidden", hidden)
        return self.change(f"{path}.output", self.linear(f"{path}.outer", hidden))

    def norm(self, path, x):
        weight = self.weights[f"{path}.weight"]
        if self.config.norm == "rms":
            return ref.rms_norm(x, weight)
        return ref.layer_norm(x, weight, self.weights[f"{path}.bias"])

    def linear(self, path, x):
        """Return x Wᵀ, plus the bias if there is one."""
        return x @ self.weights[f"{path}.weight"].T + self.weights.get(f"{path}.bias", 0.0)

    def logits(self, path, stream, *, is_tied):
        """Compare with each token's vector, without concatenated positions, or read out anew."""
        tokens = self.weights[f"{path}embedding.tokens.weight"]
        tied = stream[..., : tokens.shape[1]] @ tokens.T if is_tied else None
        return self.change("logits", self.linear("head", stream) if tied is None else tied)


def rotated(x):
    """Turn pairs of channels; the last of an odd number stays as it is."""
    even = x.shape[-1] // 2 * 2
    turned = ref.rotary(x[..., :even], np.arange(x.shape[-2]))
    return np.concatenate((turned, x[..., even:]), -1)


def beside(x, positions):
    """Put the rows of positions beside the channels of x."""
    rows = positions[: x.shape[1]]
    return np.concatenate((x, np.broadcast_to(rows, (len(x), *rows.shape))), -1)


def attended(dot, query, key, value, allowed, bias, change):
    """What each head gathers, with every site on the way shown."""
    num_heads = query.shape[1]
    own = np.arange(num_heads) // (num_heads // key.shape[1])
    query = change(f"{dot}query", query)
    key, value = change(f"{dot}key", key[:, own]), change(f"{dot}value", value[:, own])
    allowed = np.broadcast_to(allowed, (*query.shape[:3], key.shape[2]))
    relaxed = change(f"{dot}mask", allowed)
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / np.sqrt(query.shape[-1])
    scores = np.where(relaxed, scores + np.where(allowed, bias, 0.0), -np.inf)
    scores = change(f"{dot}scores", scores)
    weights = change(f"{dot}weights", ref.softmax(scores))
    return change(f"{dot}heads", np.einsum("bhqk,bhkd->bhqd", weights, value))
