"""Random models and inputs of every kind, all tiny, for claims about any of them."""

import hashlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    SingleHead,
    SingleHeadConfig,
)
from attnlab.seeds import isolated
from attnlab.sites import AttentionCall, Hook

KINDS = ("decoder", "encoder", "encoder_decoder", "single_head")
POSITIONS = ("none", "sinusoidal", "learned", "concatenated", "rotary", "alibi")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Case(NamedTuple):
    """A model, and how to run it on its input; `words` say what it is."""

    model: nn.Module
    run: Callable[[], Any]
    words: str


def case(seed: int, **fixed: Any) -> Case:
    """Draw a case; `fixed` settings are as given (kind, dtype, positions, heads, is_padded,
    batch)."""
    draw = random.Random(seed)
    kind = fixed.get("kind", KINDS[seed % len(KINDS)])
    dtype = fixed.get("dtype", draw.choice(DTYPES))
    positions = fixed.get("positions", draw.choice(POSITIONS))
    heads, shared = fixed.get("heads", draw.choice([(1, 1), (2, 2), (4, 2), (4, 1), (6, 3)]))
    is_padded = fixed.get("is_padded", draw.random() < 0.5)
    batch, length, source = (
        fixed.get("batch", draw.randint(1, 3)),
        draw.randint(1, 9),
        draw.randint(1, 9),
    )
    words = (
        f"{seed}: {kind} {dtype} {positions} heads={heads} padded={is_padded} "
        f"{(batch, length, source)}"
    )
    with isolated(seed):
        if kind == "single_head":
            model: nn.Module = SingleHead(
                SingleHeadConfig(
                    input_dim=3,
                    qk_dim=5,
                    v_dim=4,
                    pos_dim=draw.choice([None, 3]),
                    learned_positions=True,
                )
            )
        else:
            model = _transformer(kind, draw, positions, heads, shared)
        model = model.to(dtype).eval()
        source_real = _real(batch, source) if is_padded else None
        real = _real(batch, length) if is_padded else None
        tokens = torch.randint(0, 11, (batch, length))
        if kind == "single_head":
            vectors = torch.randn(batch, length, 3, dtype=dtype)
            need = draw.random() < 0.5
            return Case(model, lambda: model(vectors, real=real, need_weights=need).output, words)
        if kind == "encoder":
            return Case(model, lambda: model(tokens, real=real), words)
        if kind == "decoder":
            mask = None if real is None else real[:, None, None, :]
            return Case(model, lambda: model(tokens, mask=mask), words)
        sources = torch.randint(0, 11, (batch, source))
        return Case(model, lambda: model(sources, tokens, real=source_real), words)


def _transformer(
    kind: str, draw: random.Random, positions: str, heads: int, shared: int
) -> nn.Module:
    settings: dict[str, Any] = {
        "vocab_size": 11,
        "max_length": 24,
        "d_model": 4 * heads,
        "num_heads": heads,
        "num_kv_heads": shared,
        "num_layers": draw.choice([1, 2]),
        "d_ff": 7,
        "positions": positions,
        "position_width": 2 if positions == "concatenated" else None,
        "norm_place": draw.choice(["pre", "post", "none"]),
        "norm": draw.choice(["layer", "rms"]),
        "activation": draw.choice(["relu", "gelu", "swiglu"]),
        "projections": draw.choice(["dense", "gated"]),
    }
    if kind == "decoder":
        return Decoder(DecoderConfig(**settings))
    if kind == "encoder":
        return Encoder(EncoderConfig(num_classes=draw.choice([None, 3]), **settings))
    return EncoderDecoder(EncoderDecoderConfig(num_encoder_layers=1, **settings))


def _real(batch: int, length: int) -> Tensor:
    lengths = torch.randint(0, length + 1, (batch, 1))
    return torch.arange(length) < lengths


def parameters_hash(model: nn.Module) -> str:
    """A number that changes when any parameter or buffer changes in any bit."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        found.update(name.encode() + value.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def no_hook_is_left(model: nn.Module) -> bool:
    """Say that no hook stands at any part."""
    return all(getattr(part, "_installed", ()) == () for part in model.modules()) and not any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
        for part in model.modules()
    )


class Watcher(Hook):
    """Looks at every attention by itself, and computes its weights in NumPy and float64 from what
    it sees."""

    changes = False

    def __init__(self) -> None:
        self.weights: dict[str, list[np.ndarray]] = {}

    def watch(self, part: str, call: AttentionCall) -> None:
        found = numpy_weights(call.query, call.key, call.mask, call.scale)
        self.weights.setdefault(f"{part}.weights" if part else "weights", []).append(found)


class Change(Hook):
    """Puts a changed value in the place of one at a site."""

    def __init__(
        self, site: str, change: Callable[[Tensor], Tensor], words: str = "changed"
    ) -> None:
        self.site, self.change, self.words = site, change, words

    def wants(self, site: str) -> bool:
        return site == self.site

    def visit(self, site: str, value: Tensor) -> Tensor:
        return self.change(value)

    def describe(self) -> list[dict[str, Any]]:
        return [{"kind": self.words, "site": self.site}]


def numpy_weights(
    query: Tensor, key: Tensor, mask: Tensor | str | None, scale: float | bool | None
) -> np.ndarray:
    """Equation 1 by the letter: (batch, head, query, key), rows that may look at nothing are
    zeros."""
    query, key = (each.detach().double().numpy() for each in (query, key))
    group = query.shape[1] // key.shape[1]
    factor = query.shape[-1] ** -0.5 if scale in (None, True) else 1.0 if scale is False else scale
    scores = (
        np.stack(
            [query[:, h] @ key[:, h // group].swapaxes(-2, -1) for h in range(query.shape[1])], 1
        )
        * factor
    )
    if isinstance(mask, str):
        first = key.shape[2] - query.shape[2]
        allowed = np.array(
            [[k <= first + q for k in range(key.shape[2])] for q in range(query.shape[2])]
        )
        mask = torch.from_numpy(allowed)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        added = np.where(mask.numpy(), 0.0, -np.inf) if is_bool else mask.detach().double().numpy()
        scores = scores + added
    largest = scores.max(-1, keepdims=True)
    shares = np.where(
        np.isneginf(scores), 0.0, np.exp(scores - np.where(np.isneginf(largest), 0.0, largest))
    )
    total = shares.sum(-1, keepdims=True)
    return np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
