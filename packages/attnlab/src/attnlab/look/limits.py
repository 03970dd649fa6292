"""Do the window and the cap of a model's scores hold? Inputs that would show them missing say so.

A window is seen only in an input that is longer, and a cap only on scores that are larger: so the
input has a few tokens more than the window, and queries are scaled up until every score is capped.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.look.inputs import foreign_of
from attnlab.look.recording import record
from attnlab.pretrained.text import device_of, text_config
from attnlab.sites import Hook, installed, site_names, site_of

_MOST_TOKENS = 2_048  # of an input that is longer than a window
_BEYOND = 4  # tokens more than the window
_LARGE = 1e6  # by which queries are scaled


@dataclass(frozen=True)
class ScoreLimit:
    """A limit that a config states, and what was measured beyond it.

    kind: "window" or "cap" · stated: tokens, or the largest score · measured: the farthest key with
    a weight, as a number of tokens, or the largest score of scaled queries; None if not tried.
    """

    kind: str
    stated: float
    measured: float | None

    @property
    def holds(self) -> bool | None:
        """Is the limit reached and not passed? None if it was not tried."""
        if self.measured is None:
            return None
        return 0.99 * self.stated <= self.measured <= 1.001 * self.stated


def limits_of(model: nn.Module) -> list[ScoreLimit]:
    """Try the window and the cap of a pretrained language model, where its config states them."""
    config, limits = text_config(foreign_of(model)), []
    parts = [site.removesuffix(".weights") for site in site_names(model) if ".weights" in site]
    width = getattr(config, "sliding_window", None)
    kinds = list(getattr(config, "layer_types", None) or ["sliding"] * len(parts))
    narrow = [part for part, kind in zip(parts, kinds, strict=False) if "sliding" in str(kind)]
    if isinstance(width, int) and narrow and getattr(config, "use_sliding_window", True):
        limits.append(ScoreLimit("window", width, _farthest(model, config, narrow[0], width)))
    cap = getattr(config, "attn_logit_softcapping", None)
    if cap:
        limits.append(ScoreLimit("cap", float(cap), _largest_score(model, parts[0])))
    return limits


@torch.no_grad()
def _farthest(model: nn.Module, config: object, part: str, width: int) -> float | None:
    """Return how far back a query puts weight, itself counted, in a text longer than the window."""
    length = width + _BEYOND
    if length > min(_MOST_TOKENS, getattr(config, "max_position_embeddings", length)):
        return None
    ids = torch.arange(length, device=device_of(model)) % (getattr(config, "vocab_size", 3) - 1)
    with record(model, site_of(part, "weights")) as recording:
        model(ids.unsqueeze(0))
    weights = recording[site_of(part, "weights")][0].amax(0)
    queries, keys = weights.nonzero().unbind(1)
    return float((queries - keys).max() + 1)


class _Scaled(Hook):
    """Scales queries up."""

    def __init__(self, site: str) -> None:
        self.sites: frozenset[str] = frozenset({site})

    def wants(self, site: str) -> bool:
        return site in self.sites

    def visit(self, site: str, value: Tensor) -> Tensor:
        return value * _LARGE


@torch.no_grad()
def _largest_score(model: nn.Module, part: str) -> float:
    """Return the largest score in size where queries are scaled up."""
    ids = torch.arange(8, device=device_of(model)).unsqueeze(0)
    scores = site_of(part, "scores")
    with installed(model, _Scaled(site_of(part, "query"))), record(model, scores) as recording:
        model(ids)
    value = recording[scores]
    return float(value[value.isfinite()].abs().max())
