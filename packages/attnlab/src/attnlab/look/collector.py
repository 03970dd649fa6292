"""The base of streaming collectors: they process the chosen attentions while a model runs, and stop
it after the last.

Summaries of long texts and measures of a corpus are such collectors. They use queries, keys and the
mask, or the weights of a model that computes them explicitly.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, not_none
from attnlab.sites import AttentionCall, Hook, installed, part_of


class _Enough(BaseException):
    """Raised when everything is collected, to skip the rest of the model; not an `Exception`."""


class Collector(Hook):
    """Collects from the attentions of a model; `missing` are those that have not come yet."""

    changes = False
    one_thread = True

    def __init__(self, parts: Iterable[str]) -> None:
        self.missing = list(parts)
        self.sites: set[str] = {f"{part}.weights" if part else "weights" for part in self.missing}
        self._call: AttentionCall | None = None

    def check(self, part: str, call: AttentionCall) -> None:
        """Raise where an attention cannot be collected."""

    def collect(self, part: str, call: AttentionCall, weights: Tensor | None) -> None:
        """Collect from an attention; `weights` (batch, head, query, key) if they are explicit."""
        raise NotImplementedError

    def wants(self, site: str) -> bool:
        """Want the weights of the missing attentions."""
        part, _, name = site.rpartition(".")
        return name == "weights" and part in self.missing

    def watch(self, part: str, call: AttentionCall) -> None:
        """Collect from an attention whose weights can be computed from queries and keys."""
        if part not in self.missing:
            return
        self.check(part, call)
        self._call = call
        if not call.is_explicit:
            self._finish(part, call, None)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Collect from weights that the model computes explicitly."""
        self._finish(part_of(site), not_none(self._call), value)
        return value

    def _finish(self, part: str, call: AttentionCall, weights: Tensor | None) -> None:
        self.collect(part, call, weights)
        self.missing.remove(part)
        self._call = None
        if not self.missing:
            raise _Enough


@torch.no_grad()
def run_collector(
    model: nn.Module, collector: Collector, arguments: Iterable[Tensor], options: dict[str, object]
) -> None:
    """Run a model in evaluation mode until everything is collected.

    Raises:
        CouldNotRun: it ran to its end without one of the attentions.
    """
    total = len(collector.missing)
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with installed(model, collector):
            model(*arguments, **options)
    except _Enough:
        return
    finally:
        for module in training:
            module.training = True
    missing = collector.missing
    raise CouldNotRun(f"the model ran without {missing[0]}; {len(missing)} of {total} are missing.")
