"""The plain pass: the values of the unedited model, kept so that later passes reuse them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call
from attnlab.look.recording.kept_call import KeptCall, KeptMask
from attnlab.parts.attend import attention_weights
from attnlab.parts.dropout import drops_out
from attnlab.parts.heads import share_heads
from attnlab.sites import (
    QUERY_ADVICE,
    AttentionCall,
    Hook,
    hooks_of,
    installed,
    site_of,
    site_suffix,
)

_ALWAYS = ("heads", "residual_after", "embedding")


@dataclass(eq=False)
class Baseline(Hook):
    """One plain pass, and the hook that keeps its values without copying them.

    also: the sites that are kept besides every `heads`, `residual_after` and `embedding`; the site
    `call` of an attention stands for its inputs.
    logits: the model's output, or its last positions. length: the number of all positions.
    values: by site, in the order of the pass.
    calls: by the attention's path, where `also` has its `call`. masks: of every attention.
    hidden: numbers in the widest value, for each row.
    """

    call: Call
    also: frozenset[str] = frozenset()
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    values: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, AttentionCall] = field(default_factory=dict)
    masks: dict[str, Tensor | str | None] = field(default_factory=dict)
    hidden: int = 0
    length: int = 1

    changes = False

    @property
    def order(self) -> list[str]:
        """The kept sites, in the order of the pass."""
        return list(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of all kept values."""
        kept = [self.logits, *self.values.values()]
        for call in self.calls.values():
            kept += call[:3]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def row_bytes(self, num_last: int | None) -> int:
        """Estimate the bytes that one more row of a pass takes at its peak."""
        rows = self.call.num_rows
        stream = max((value.numel() // rows for value in self.values.values()), default=0)
        last = self.logits[:1]
        if num_last is not None and last.dim() == 3:
            last = last[:, -num_last:]
        return (3 * self.hidden + 8 * stream + 2 * last.numel()) * self.logits.element_size()

    def keep_last(self, num_last: int | None) -> None:
        """Forget the logits before so many last positions; None keeps all."""
        if num_last is not None and self.logits.dim() == 3 and num_last < self.logits.shape[1]:
            self.logits = self.logits[:, -num_last:].clone()

    def wants(self, site: str) -> bool:
        """Say whether a site is kept or measured."""
        return site_suffix(site) in (*_ALWAYS, "hidden") or site in self.also

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Keep a value."""
        if site_suffix(site) == "hidden":
            self.hidden = max(self.hidden, value[0].numel())
        if site_suffix(site) != "hidden" or site in self.also:
            if site in self.values:
                raise WrongUsage(
                    f"{site} runs twice in one forward pass, so its effects cannot be separated."
                )
            self.values[site] = value.detach()
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        """Keep the mask of an attention, and its other inputs if `also` has its `call`."""
        self.masks[part] = call.mask
        if site_of(part, "call") in self.also:
            self.calls[part] = call


@torch.no_grad()
def run_plain(model: nn.Module, call: Call, sites: Iterable[str] = ()) -> Baseline:
    """Run the unedited model; see `Baseline`."""
    check_plain(model)
    baseline = Baseline(call, frozenset(sites))
    with installed(model, baseline):
        baseline.logits = call(model).detach()
    if baseline.logits.dim() == 3:
        baseline.length = baseline.logits.shape[1]
    return baseline


def check_plain(model: nn.Module) -> None:
    """Raise unless the model is deterministic and unedited."""
    if any(hook.changes for hook in hooks_of(model)):
        raise WrongUsage(
            "an edit is in force; effects are measured on the unedited model, so leave it first."
        )
    if drops_out(model):
        raise WrongUsage("a model in training mode has random dropout; call model.eval() first.")


def portions_that_fit(
    model: nn.Module, call: Call, budget: int, sites: Iterable[str] = ()
) -> list[tuple[slice, Call]]:
    """Split the rows so that each plain pass keeps about a quarter of the budget."""
    if call.num_rows <= 2:
        return call.portions(call.num_rows)
    probe = run_plain(model, call.rows(slice(0, 1)), sites)
    row_bytes = max(1, probe.nbytes + probe.row_bytes(None))  # 0 for inputs without a position
    return call.portions(max(2, min(call.num_rows, budget // 4 // row_bytes)))


def attention_calls(
    model: nn.Module, call: Call, budget: int, sites: Iterable[str]
) -> Iterator[tuple[str, AttentionCall]]:
    """Run plain passes, and yield the path and the inputs of each attention."""
    for _, part in portions_that_fit(model, call, budget, sites):
        yield from run_plain(model, part, sites).calls.items()


@dataclass(frozen=True, eq=False)
class HeadPatterns:
    """The pattern of heads: weights and allowed (row, head, query, key); value (row, head, key,
    value_width); is_cross: the keys are of another sequence than the queries."""

    weights: Tensor
    allowed: Tensor
    value: Tensor
    is_cross: bool

    @property
    def real(self) -> Tensor:
        """The queries that are not padding, (row, head, query): some query may attend to them."""
        if self.is_cross or self.weights.shape[-1] != self.weights.shape[-2]:
            return torch.ones_like(self.allowed[..., 0])
        return self.allowed.any(-2)

    @property
    def real_weights(self) -> Tensor:
        """The weights, zero for padded queries."""
        return self.weights.masked_fill(~self.real.unsqueeze(-1), 0.0)

    @staticmethod
    def renormalized(weights: Tensor, allowed: Tensor) -> Tensor:
        """Keep the weights on allowed keys, and renormalize the rows: (..., query, key) -> same.

        A row without weight on allowed keys is spread evenly over them; one without allowed keys
        stays zero. NaN, which padded queries have, counts as zero.
        """
        kept = torch.where(allowed, weights, 0.0).nan_to_num(0.0)
        is_empty = kept.sum(-1, keepdim=True) <= 0.0
        kept = torch.where(is_empty, allowed.to(kept.dtype), kept)
        return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)


def allowed_of(call: AttentionCall) -> Tensor:
    """Return the edges that are allowed in any head of any row: (query, key) boolean."""
    num_queries, num_keys = call.query.shape[-2], call.key.shape[-2]
    mask = KeptMask(call.mask, num_queries, num_keys, call.query.device).part()
    if mask is None:
        return torch.ones(num_queries, num_keys, dtype=torch.bool, device=call.query.device)
    if mask.dtype != torch.bool:
        mask = mask > float("-inf")
    return mask.flatten(0, 1).any(0)


def scores_of(call: AttentionCall, head: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the scores (row, head, query, key), -inf where blocked, and the heads' values.

    With a head's number only that head's; the axis stays, of size 1.

    Raises:
        WrongUsage: this attention computes its scores from more than queries, keys and a mask.
    """
    if not call.query.shape[-1]:
        raise WrongUsage(
            "this model's attention is a softmax of its own, whose queries and keys are not seen: "
            f"{QUERY_ADVICE}, or change the weights by edits, such as CutEdge or UniformPattern."
        )
    if not call.is_whole:
        raise WrongUsage(
            "this model's scores depend on more than queries, keys and a mask (soft-capped scores "
            "or sinks), so patterns cannot be computed here; change the weights by edits instead, "
            "such as CutEdge or UniformPattern."
        )
    query, key, value = call[:3]
    mask = KeptMask(call.mask, query.shape[-2], key.shape[-2], query.device)
    scores = KeptCall(query, key, mask, call.scale, "scores").make(head=head)
    value = share_heads(value, query.shape[-3])
    if head is not None:
        value = value[:, head : head + 1]
    return scores, value.to(scores.dtype)


def pattern_of(call: AttentionCall, head: int | None = None) -> HeadPatterns:
    """Return the pattern of all heads, or of one."""
    scores, value = scores_of(call, head)
    return HeadPatterns(attention_weights(scores), scores > float("-inf"), value, call.is_cross)
