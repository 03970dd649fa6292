"""The axis of the batch in calls of torch's own functions, verified on a batch of two.

An attention function of transformers has a fixed order of axes; a call of
`scaled_dot_product_attention` or of a softmax has not. Heads before inputs, (head, batch, query,
width), or heads and inputs joined the other way round, (head · batch, query, width), look the same
as ours in a batch of one, and would be addressed wrongly.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.pretrained.model import Pretrained
from attnlab.sites import Hook, installed

__all__ = ["require_batch_first"]

_BACKENDS = ("sdpa", "softmax")


@torch.no_grad()
def require_batch_first(model: Pretrained, inputs: Mapping[str, Any]) -> None:
    """Raise unless every attention found at torch's functions has its batch on the first axis.

    Models whose inputs do not begin with the batch, or cannot be put into a batch of two, pass.
    """
    paths = [
        path
        for path, point in model.attention_points()
        if point.backend in _BACKENDS and "heads" in point.sites
    ]
    if not paths:
        return
    first = {name: each[:1] if _has_rows(each) else each for name, each in inputs.items()}
    both = {
        name: torch.cat((each, each.flip(-1))) if _has_rows(each) else each
        for name, each in first.items()
    }
    try:
        one, two = model(**first), model(**both)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return  # it takes no other batch
    if two.shape[0] != 2 * one.shape[0] or not _are_close(two[: one.shape[0]], one):
        return
    alone, together = (_heads(model, paths, given) for given in (first, both))
    for path in paths:
        rows = alone[path].shape[0]
        if together[path].shape[0] != 2 * rows or not _are_close(
            together[path][:rows], alone[path]
        ):
            raise CouldNotRun(
                f"{path} of {model.name} has its axes in another order than (batch, head, query, "
                "key or width): with two inputs its first half is not the first input, so heads "
                "would be taken for inputs."
            )


class _HeadsRecorder(Hook):
    """Records the outputs of heads."""

    changes = False

    def __init__(self, paths: list[str]) -> None:
        self._sites = {f"{path}.heads": path for path in paths}
        self.found: dict[str, Tensor] = {}

    def wants(self, site: str) -> bool:
        return site in self._sites

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.found[self._sites[site]] = value
        return value


def _heads(model: Pretrained, paths: list[str], inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    recorder = _HeadsRecorder(paths)
    with installed(model, recorder):
        model(**inputs)
    return recorder.found


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1


def _are_close(one: Tensor, other: Tensor) -> bool:
    size = float(other.abs().max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(
        one.float(), other.float(), rtol=1e-3, atol=1e-4 * max(size, 1.0)
    )
