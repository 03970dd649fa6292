"""Make the names that exercises ask for from adapter functions of another course.

The functions are those of the adapters of Stanford CS336's assignment 1, `run_softmax` and so on,
called by position. The worker loads the text of this file after the student's and asks `adapt` for
what is missing there, so it imports nothing of attnlab. What an adapter does not return, such as
the weights, is None; what its contract leaves open raises `CannotTell`, and that case is left out.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Function = Callable[..., Any]


class CannotTell(Exception):
    """The adapter's contract says nothing about this case."""


def adapt(names: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return what a file's adapters make, which goes before names of its own.

    A file's own `softmax` may have another contract, and its own parts call it: it stays as it is.
    Names that are not there are added, since given parts of an exercise look them up there.
    """
    made = {
        name: make(names[adapter]) for name, (adapter, make) in MAKERS.items() if adapter in names
    }
    for name, function in made.items():
        names.setdefault(name, function)
    return made


def _softmax(run: Function) -> Function:
    def softmax(x: Tensor, dim: int = -1) -> Any:
        _require(not bool((x == -math.inf).all(dim).any()))
        return run(x, dim)

    return softmax


def _attention(run: Function) -> Function:
    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Any:
        _require(dropout == 0.0 and query.dtype in (torch.float32, torch.float64))
        if mask is not None:
            mask = mask.expand(*query.shape[:-1], key.shape[-2])
            _require(bool(mask.any(-1).all()))
        return run(query, key, value, mask), None

    return attention


def _causal_heads(run: Function) -> Function:
    def causal_heads(
        x: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, heads: int
    ) -> Any:
        _require(not query.requires_grad)  # weights may be copied into modules there
        with _dtype_of(x):
            return run(x.shape[-1], heads, query, key, value, output, x)

    return causal_heads


def _normalize_rms(run: Function) -> Function:
    def normalize_rms(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Any:
        with _dtype_of(x):
            return run(x.shape[-1], eps, weight, x)

    return normalize_rms


def _swi_glu(run: Function) -> Function:
    class SwiGLU(_Adapted):
        def __init__(self, d_model: int, d_ff: int) -> None:
            super().__init__()
            self.sizes = d_model, d_ff
            self.gate = nn.Linear(d_model, d_ff, bias=False)
            self.up = nn.Linear(d_model, d_ff, bias=False)
            self.down = nn.Linear(d_ff, d_model, bias=False)

        def forward(self, x: Tensor) -> Any:
            weights = (part.weight.detach() for part in (self.gate, self.down, self.up))
            with _dtype_of(x):
                return run(*self.sizes, *weights, x)

    return SwiGLU


def _rotate(run: Function) -> Function:
    """Neighboring columns are paired there, halves here: put the columns in the other order."""

    def rotate(x: Tensor, offset: int = 0, base: float = 10000.0) -> Any:
        _require(x.dtype in (torch.float32, torch.float64))
        length, width = x.shape[-2:]
        order = torch.arange(width).view(2, -1).T.flatten()
        positions = torch.arange(offset, offset + length)
        columns = x[..., order]
        with _dtype_of(x):
            turned = run(width, base, offset + length, columns, positions)
        with torch.no_grad():
            x.copy_(columns[..., order.argsort()])  # as it was, if it was left as it was
        return turned[..., order.argsort()]

    return rotate


def _token_embedding(run: Function) -> Function:
    class TokenEmbedding(_Adapted):
        def __init__(self, vocab_size: int, d_model: int) -> None:
            super().__init__()
            self.sizes = vocab_size, d_model
            self.embedding = nn.Embedding(vocab_size, d_model)

        def forward(self, ids: Tensor) -> Any:
            weight = self.embedding.weight.detach()
            with _dtype_of(weight):
                return run(*self.sizes, weight, ids) * math.sqrt(self.sizes[1])

    return TokenEmbedding


def _next_token_loss(run: Function) -> Function:
    def next_token_loss(logits: Tensor, tokens: Tensor, padding: int | None = None) -> Any:
        _require(padding is None)
        return run(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return next_token_loss


def _learning_rate(run: Function) -> Function:
    """There the climb begins at a rate of 0, which is no step here."""

    def learning_rate(step: int, peak: float, warmup: int, steps: int, share: float = 0.1) -> Any:
        _require(steps - 1 > warmup)
        moment = step + 1 if step < warmup else step
        return run(moment, peak, share * peak, warmup, steps - 1)

    return learning_rate


def _training_step(run: Function) -> Function:
    """Only the clipping is theirs: other faults of a step do not show."""

    def training_step(
        model: Any, optimizer: Any, ids: Tensor, targets: Tensor, max_norm: float
    ) -> Any:
        parameters = list(model.parameters())
        is_new = all(parameter.grad is None for parameter in parameters)
        _require(is_new and not model.drop and bool((targets != 0).all()))
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        run(parameters, max_norm)
        optimizer.step()
        return loss.item()

    return training_step


class _Adapted(nn.Module):
    """A module that holds what an adapter is given; its parameters are no work of the student's."""

    def named_parameters(self, *args: Any, **settings: Any) -> Iterator[Any]:
        raise CannotTell


def _require(is_defined: bool) -> None:
    if not is_defined:
        raise CannotTell


@contextmanager
def _dtype_of(x: Tensor) -> Iterator[None]:
    """Let modules that an adapter makes have the precision of its input."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if x.dtype == torch.float64 else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


MAKERS: dict[str, tuple[str, Callable[[Function], Function]]] = {
    "softmax": ("run_softmax", _softmax),
    "attention": ("run_scaled_dot_product_attention", _attention),
    "causal_heads": ("run_multihead_self_attention", _causal_heads),
    "normalize_rms": ("run_rmsnorm", _normalize_rms),
    "swish": ("run_silu", lambda run: run),
    "SwiGLU": ("run_swiglu", _swi_glu),
    "rotate": ("run_rope", _rotate),
    "TokenEmbedding": ("run_embedding", _token_embedding),
    "next_token_loss": ("run_cross_entropy", _next_token_loss),
    "learning_rate": ("run_get_lr_cosine_schedule", _learning_rate),
    "training_step": ("run_gradient_clipping", _training_step),
}
"""Each name of an exercise, the adapter that it is made from, and how."""
