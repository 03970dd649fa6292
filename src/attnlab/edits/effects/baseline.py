"""The plain pass: what the unedited model computes, kept so that later passes reuse it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call
from attnlab.parts.dropout import drops_out
from attnlab.sites import AttentionCall, Hook, hooks_of, installed

__all__ = ["Baseline", "check_plain", "row_bytes", "run_plain"]


@dataclass
class Baseline:
    """One plain pass.

    logits: what the model put out, or its last positions. length: of all its positions. values: by
    site, as asked for. order: the sites seen, in the order of the pass. calls: what each attention
    was computed from, by its path. hidden: numbers in the widest value, for each row.
    """

    call: Call
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    length: int = 1
    values: dict[str, Tensor] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    calls: dict[str, AttentionCall] = field(default_factory=dict)
    hidden: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        kept = [*self.values.values(), *(part for call in self.calls.values() for part in call[:3])]
        return sum(each.numel() * each.element_size() for each in [self.logits, *kept])

    def keep_last(self, num_last: int | None) -> None:
        """Forget the logits before so many last positions; None keeps all."""
        if num_last is not None and self.logits.dim() == 3 and num_last < self.logits.shape[1]:
            self.logits = self.logits[:, -num_last:].clone()

    def before(self, site: str) -> list[str]:
        """List the sites that were seen before one."""
        return self.order[: self.order.index(site)]


class _Watcher(Hook):
    """Keeps what passes the sites that are asked for, without copying it."""

    changes = False

    def __init__(
        self, baseline: Baseline, asked: Callable[[str], bool], *, keeps_calls: bool
    ) -> None:
        self._baseline, self._asked, self._keeps_calls = baseline, asked, keeps_calls

    def wants(self, site: str) -> bool:
        return self._asked(site) or site.endswith(".hidden")

    def visit(self, site: str, value: Tensor) -> Tensor:
        if site.endswith(".hidden"):
            self._baseline.hidden = max(self._baseline.hidden, value[0].numel())
        if self._asked(site):
            if site in self._baseline.values:
                raise WrongUsage(
                    f"{site} is passed twice in one forward pass; single effects cannot be "
                    "told apart."
                )
            self._baseline.order.append(site)
            self._baseline.values[site] = value.detach()
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        # The mask is always needed, the rest only by who makes weights anew.
        self._baseline.calls[part] = (
            call
            if self._keeps_calls
            else call._replace(
                **{
                    name: getattr(call, name).new_empty(0, *getattr(call, name).shape[1:])
                    for name in _QKV
                }
            )
        )


_QKV = ("query", "key", "value")
_ALWAYS = ("heads", "residual_after", "embedding")


@torch.no_grad()
def run_plain(
    model: nn.Module, call: Call, *, sites: Iterable[str] = (), keeps_calls: bool = False
) -> Baseline:
    """Run the model as it is.

    Args:
        model: made of attnlab's parts, in evaluation mode.
        call: its inputs.
        sites: what to keep besides every `heads`, `residual_after` and `embedding`.
        keeps_calls: also keep queries, keys and values, from which weights can be made.
    """
    check_plain(model)
    baseline, more = Baseline(call), frozenset(sites)
    watcher = _Watcher(
        baseline,
        lambda site: site.rpartition(".")[2] in _ALWAYS or site in more,
        keeps_calls=keeps_calls,
    )
    with installed(model, watcher):
        baseline.logits = call(model).detach()
    baseline.length = baseline.logits.shape[1] if baseline.logits.dim() == 3 else 1
    return baseline


def check_plain(model: nn.Module) -> None:
    """Raise unless a pass of the model is the same each time, and nothing is changed in it."""
    if any(each.changes for each in hooks_of(model)):
        raise WrongUsage(
            "an edit is in force; effects are measured from the model as it is. Leave the "
            "edit first."
        )
    if drops_out(model):
        raise WrongUsage(
            "the model is in training mode and drops out at random; call model.eval() first."
        )


def row_bytes(baseline: Baseline, num_last: int | None) -> int:
    """Estimate the bytes that one more row of a pass takes at its peak."""
    rows = baseline.call.num_rows
    stream = max((value.numel() // rows for value in baseline.values.values()), default=0)
    logits = baseline.logits[:1]
    last = logits if num_last is None or logits.dim() < 3 else logits[:, -num_last:]
    return (3 * baseline.hidden + 8 * stream + 4 * last.numel()) * logits.element_size()
