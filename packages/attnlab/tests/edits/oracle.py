"""The models once more, in NumPy float64, with a hook point of their own at every site.

Formulas come from `tests/reference`; nothing here knows torch beyond reading the
parameters. `change` is called with each site's full name and value, and what it returns goes on;
masks are boolean there, (batch, head, query, key), and a bias is kept apart from them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from attnlab.models import Decoder, EncoderDecoder, SingleHead
from tests import reference as ref

Change = Callable[[str, np.ndarray], np.ndarray]


def unchanged(site: str, value: np.ndarray) -> np.ndarray:
    return value


class Oracle:
    """One of our models in NumPy."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.config = model, model.config
        self.arrays = {
            name: each.detach().double().numpy() for name, each in model.state_dict().items()
        }

    def __call__(
        self, *inputs: np.ndarray, seen: np.ndarray | None = None, change: Change = unchanged
    ) -> np.ndarray:
        """The output for ids (or vectors); `seen` is what may be looked at on top of causality, or
        is no padding."""
        if isinstance(self.model, SingleHead):
            return self._single(inputs[0], seen, change)
        if isinstance(self.model, EncoderDecoder):
            source, target = inputs
            all_seen = (
                np.ones((len(source), 1, 1, source.shape[1]), bool)
                if seen is None
                else seen[:, None, None]
            )
            memory = self._stack("encoder.", source, all_seen, change, is_encoder=True)
            x = self._stack(
                "decoder.",
                target,
                self._causal(target),
                change,
                memory=memory,
                memory_seen=all_seen,
            )
            return change("logits", self._linear("head", x))
        tokens = inputs[0]
        if isinstance(self.model, Decoder):
            allowed = self._causal(tokens) if seen is None else self._causal(tokens) & seen
            x = self._stack("", tokens, allowed, change)
            return change("logits", x @ self.arrays["embedding.tokens.weight"].T)
        all_seen = (
            np.ones((len(tokens), 1, 1, tokens.shape[1]), bool)
            if seen is None
            else seen[:, None, None]
        )
        x = self._stack("", tokens, all_seen, change)
        if self.config.num_classes is None:
            return x
        weight = np.ones(tokens.shape) if seen is None else seen.astype(float)
        mean = (x * weight[..., None]).sum(1) / np.maximum(weight.sum(1, keepdims=True), 1)
        return change("logits", self._linear("head", mean))

    def _causal(self, tokens: np.ndarray) -> np.ndarray:
        return np.broadcast_to(
            ref.causal_mask(tokens.shape[1], tokens.shape[1]),
            (len(tokens), 1, *[tokens.shape[1]] * 2),
        )

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y = x @ self.arrays[f"{name}.weight"].T
        return y + self.arrays[f"{name}.bias"] if f"{name}.bias" in self.arrays else y

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        if self.config.norm == "rms":
            return ref.rms_norm(x, self.arrays[f"{name}.weight"])
        return ref.layer_norm(x, self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"])

    def _stack(
        self,
        prefix: str,
        tokens: np.ndarray,
        allowed: np.ndarray,
        change: Change,
        *,
        is_encoder: bool = False,
        **memory: Any,
    ) -> np.ndarray:
        config = self.config
        x = self.arrays[f"{prefix}embedding.tokens.weight"][tokens]
        if config.positions == "learned":
            x = x + self.arrays[f"{prefix}embedding.positions.weight"][: tokens.shape[1]]
        if config.positions == "sinusoidal":
            x = x + ref.sinusoidal_positions(tokens.shape[1], config.d_model)
        x = change(f"{prefix}embedding", x)
        for layer in range(config.num_layers):
            x = self._block(f"{prefix}layers.{layer}", x, allowed, change, **memory)
        return self._norm(f"{prefix}final_norm", x) if config.final_norm else x

    def _block(
        self,
        path: str,
        x: np.ndarray,
        allowed: np.ndarray,
        change: Change,
        memory: np.ndarray | None = None,
        memory_seen: np.ndarray | None = None,
    ) -> np.ndarray:
        place = self.config.norm_place

        def sub_layer(
            norm: str, x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
        ) -> np.ndarray:
            added = x + function(self._norm(norm, x) if place == "pre" else x)
            return self._norm(norm, added) if place == "post" else added

        x = change(f"{path}.residual_before", x)
        x = sub_layer(
            f"{path}.norm_attention",
            x,
            lambda y: self._heads(f"{path}.attention", y, y, allowed, change),
        )
        x = change(f"{path}.residual_between", x)
        if memory is not None:
            cross = f"{path}.cross_attention"
            x = sub_layer(
                f"{path}.norm_cross_attention",
                x,
                lambda y: self._heads(cross, y, memory, memory_seen, change),
            )
            x = change(f"{path}.residual_after_cross", x)

        def feed_forward(y: np.ndarray) -> np.ndarray:
            hidden = np.maximum(self._linear(f"{path}.feed_forward.inner", y), 0.0)
            hidden = change(f"{path}.feed_forward.hidden", hidden)
            return change(
                f"{path}.feed_forward.output", self._linear(f"{path}.feed_forward.outer", hidden)
            )

        return change(
            f"{path}.residual_after", sub_layer(f"{path}.norm_feed_forward", x, feed_forward)
        )

    def _heads(
        self, path: str, x: np.ndarray, source: np.ndarray, allowed: np.ndarray, change: Change
    ) -> np.ndarray:
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
        heads = attended(path, query, key, value, allowed, bias, change)
        return change(f"{path}.output", self._linear(f"{path}.output", ref.join_heads(heads)))

    def _single(self, x: np.ndarray, seen: np.ndarray | None, change: Change) -> np.ndarray:
        if "positions.weight" in self.arrays:
            rows = self.arrays["positions.weight"][: x.shape[1]]
            x = np.concatenate((x, np.broadcast_to(rows, (len(x), *rows.shape))), -1)
        query, key, value = (self._linear(name, x)[:, None] for name in ("query", "key", "value"))
        allowed = np.ones((len(x), 1, 1, x.shape[1]), bool) if seen is None else seen[:, None, None]
        bias = np.zeros((1, x.shape[1], x.shape[1]))
        return change("output", attended("", query, key, value, allowed, bias, change)[:, 0])


def attended(
    path: str,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    allowed: np.ndarray,
    bias: np.ndarray,
    change: Change,
) -> np.ndarray:
    """What each head gathers, with every site on the way shown; query heads each have their own key
    and value."""
    dot = f"{path}." if path else ""
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
