"""The plain pass: what the unedited model computes, kept so that later passes reuse it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from attnlab.edits.where import own_name
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call
from attnlab.parts.dropout import drops_out
from attnlab.sites import AttentionCall, Hook, hooks_of, installed

_ALWAYS = ("heads", "residual_after", "embedding")


@dataclass(eq=False)
class Baseline(Hook):
    """One plain pass, and the hook that keeps what passes its sites, without copying it.

    also: the sites that are kept besides every `heads`, `residual_after` and `embedding`.
    keeps_calls: whether queries, keys and values are kept, too.
    logits: what the model put out, or its last positions. length: of all its positions.
    values: by site, in the order of the pass.
    calls: what each attention was computed from, by its path.
    hidden: numbers in the widest value, for each row.
    """

    call: Call
    also: frozenset[str] = frozenset()
    keeps_calls: bool = False
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    length: int = 1
    values: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, AttentionCall] = field(default_factory=dict)
    hidden: int = 0

    changes = False

    @property
    def order(self) -> list[str]:
        """The sites that were kept, in the order of the pass."""
        return list(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        kept = [self.logits, *self.values.values()]
        for call in self.calls.values():
            kept += call[:3]
        return sum(each.numel() * each.element_size() for each in kept)

    def row_bytes(self, num_last: int | None) -> int:
        """Estimate the bytes that one more row of a pass takes at its peak."""
        rows = self.call.num_rows
        stream = max((value.numel() // rows for value in self.values.values()), default=0)
        last = self.logits[:1]
        if num_last is not None and last.dim() == 3:
            last = last[:, -num_last:]
        return (3 * self.hidden + 8 * stream + 4 * last.numel()) * self.logits.element_size()

    def keep_last(self, num_last: int | None) -> None:
        """Forget the logits before so many last positions; None keeps all."""
        if num_last is not None and self.logits.dim() == 3 and num_last < self.logits.shape[1]:
            self.logits = self.logits[:, -num_last:].clone()

    def wants(self, site: str) -> bool:
        """Say whether a site is kept or measured."""
        return own_name(site) in (*_ALWAYS, "hidden") or site in self.also

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Keep a value."""
        if own_name(site) == "hidden":
            self.hidden = max(self.hidden, value[0].numel())
        if own_name(site) != "hidden" or site in self.also:
            if site in self.values:
                raise WrongUsage(
                    f"{site} is passed twice in one forward pass; single effects cannot be "
                    "told apart."
                )
            self.values[site] = value.detach()
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        """Keep the mask of an attention, and the rest where weights are to be made anew."""
        if not self.keeps_calls:
            query, key, value = (each.new_empty(0, *each.shape[1:]) for each in call[:3])
            call = call._replace(query=query, key=key, value=value)
        self.calls[part] = call


@torch.no_grad()
def run_plain(
    model: nn.Module, call: Call, *, sites: Iterable[str] = (), keeps_calls: bool = False
) -> Baseline:
    """Run the model as it is; see `Baseline` for what is kept."""
    check_plain(model)
    baseline = Baseline(call, frozenset(sites), keeps_calls)
    with installed(model, baseline):
        baseline.logits = call(model).detach()
    if baseline.logits.dim() == 3:
        baseline.length = baseline.logits.shape[1]
    return baseline


def check_plain(model: nn.Module) -> None:
    """Raise unless a pass of the model is the same each time, and nothing is changed in it."""
    if any(each.changes for each in hooks_of(model)):
        raise WrongUsage(
            "an edit is in force; effects are measured from the model as it is. Leave the "
            "edit first."
        )
    if drops_out(model):
        raise WrongUsage("a model in training mode drops out at random; call model.eval() first.")
