"""The models once more, in NumPy float64, with a hook point of their own at every site.

Formulas come from `tests/reference`; nothing here knows torch beyond reading the
parameters. `change` is called with each site's full name and value, and what it returns goes on;
masks are boolean there, (batch, head, query, key), and a bias is kept apart from them.
"""

from collections.abc import Callable

import numpy as np

from attnlab.models import Decoder, EncoderDecoder, SingleHead
from tests import reference as ref

Change = Callable[[str, np.ndarray], np.ndarray]


def unchanged(site, value):
    return value


class Oracle:
    """One of our models in NumPy."""

    def __init__(self, model):
        self.model, self.config = model, model.config
        self.arrays = {
            name: each.detach().double().numpy() for name, each in model.state_dict().items()
        }

    def __call__(self, *inputs, seen=None, change=unchanged):
        """The output for ids (or vectors); `seen` is what may be looked at on top of causality."""
        self.change = change
        tokens = inputs[0]
        all_seen = np.ones((len(tokens), 1, 1, tokens.shape[1]), bool)
        if seen is not None and not isinstance(self.model, Decoder):
            all_seen = seen[:, None, None]
        if isinstance(self.model, SingleHead):
            return self._single(tokens, all_seen)
        if isinstance(self.model, EncoderDecoder):
            memory = self._stack("encoder.", tokens, all_seen)
            x = self._stack("decoder.", inputs[1], self._causal(inputs[1]), memory, all_seen)
            return change("logits", self._linear("head", x))
        if isinstance(self.model, Decoder):
            allowed = self._causal(tokens) if seen is None else self._causal(tokens) & seen
            x = self._stack("", tokens, allowed)
            return change("logits", x @ self.arrays["embedding.tokens.weight"].T)
        x = self._stack("", tokens, all_seen)
        if self.config.num_classes is None:
            return x
        weight = np.ones(tokens.shape) if seen is None else seen.astype(float)
        mean = (x * weight[..., None]).sum(1) / np.maximum(weight.sum(1, keepdims=True), 1)
        return change("logits", self._linear("head", mean))

    def _causal(self, tokens):
        rows, length = tokens.shape
        return np.broadcast_to(ref.causal_mask(length), (rows, 1, length, length))

    def _linear(self, name, x):
        y = x @ self.arrays[f"{name}.weight"].T
        return y + self.arrays[f"{name}.bias"] if f"{name}.bias" in self.arrays else y

    def _norm(self, name, x):
        if self.config.norm == "rms":
            return ref.rms_norm(x, self.arrays[f"{name}.weight"])
        return ref.layer_norm(x, self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"])

    def _stack(self, prefix, tokens, allowed, *memory):
        config = self.config
        x = self.arrays[f"{prefix}embedding.tokens.weight"][tokens]
        if config.positions == "learned":
            x = x + self.arrays[f"{prefix}embedding.positions.weight"][: tokens.shape[1]]
        if config.positions == "sinusoidal":
            x = x + ref.sinusoidal_positions(tokens.shape[1], config.d_model)
        x = self.change(f"{prefix}embedding", x)
        for layer in range(config.num_layers):
            x = self._block(f"{prefix}layers.{layer}", x, allowed, *memory)
        return self._norm(f"{prefix}final_norm", x) if config.final_norm else x

    def _block(self, path, x, allowed, *memory):
        place, change = self.config.norm_place, self.change

        def sub_layer(norm, x, function):
            name = f"{path}.norm_{norm}"
            added = x + function(path, self._norm(name, x) if place == "pre" else x)
            return self._norm(name, added) if place == "post" else added

        def feed_forward(path, y):
            hidden = np.maximum(self._linear(f"{path}.feed_forward.inner", y), 0.0)
            hidden = change(f"{path}.feed_forward.hidden", hidden)
            output = self._linear(f"{path}.feed_forward.outer", hidden)
            return change(f"{path}.feed_forward.output", output)

        def attend(path, y):
            return self._heads(f"{path}.attention", y, y, allowed)

        def attend_across(path, y):
            return self._heads(f"{path}.cross_attention", y, *memory)

        x = sub_layer("attention", change(f"{path}.residual_before", x), attend)
        x = change(f"{path}.residual_between", x)
        if memory:
            x = sub_layer("cross_attention", x, attend_across)
            x = change(f"{path}.residual_after_cross", x)
        return change(f"{path}.residual_after", sub_layer("feed_forward", x, feed_forward))

    def _heads(self, path, x, source, allowed):
        config = self.config
        num_kv = config.num_kv_heads or config.num_heads
        query = ref.split_heads(self._linear(f"{path}.query", x), config.num_heads)
        key = ref.split_heads(self._linear(f"{path}.key", source), num_kv)
        value = ref.split_heads(self._linear(f"{path}.value", source), num_kv)
        bias = np.zeros((config.num_heads, query.shape[-2], key.shape[-2]))
        if source is x and config.positions == "rotary":
            query, key = (ref.rotary(each, np.arange(each.shape[-2])) for each in (query, key))
        if source is x and config.positions == "alibi":
            bias = ref.alibi_bias(config.num_heads, query.shape[-2], key.shape[-2])
        heads = attended(f"{path}.", query, key, value, allowed, bias, self.change)
        return self.change(f"{path}.output", self._linear(f"{path}.output", ref.join_heads(heads)))

    def _single(self, x, allowed):
        if "positions.weight" in self.arrays:
            rows = self.arrays["positions.weight"][: x.shape[1]]
            x = np.concatenate((x, np.broadcast_to(rows, (len(x), *rows.shape))), -1)
        query, key, value = (self._linear(name, x)[:, None] for name in ("query", "key", "value"))
        bias = np.zeros((1, x.shape[1], x.shape[1]))
        heads = attended("", query, key, value, allowed, bias, self.change)
        return self.change("output", heads[:, 0])


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
