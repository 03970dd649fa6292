"""Sites: the names under which everything inside a model can be seen and changed, and the door to them.

A site's full name is the path of the part that owns it plus the site's own name:
`layers.3.attention.weights`, `decoder.layers.0.cross_attention.scores`. Because parts are ordinary modules,
the path comes for free, in our models and in anybody's model built from our parts.

An *instrument* stands at the door: it says which sites it wants and is handed each value as it appears; what it
returns goes on through the model. A part without an instrument pays one attribute look-up. Recordings and edits
(the floors above) are instruments; this file knows neither.
"""

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean

__all__ = ["SITES", "Instrument", "SitedModule", "installed", "matches", "site_names"]

SITES: dict[str, str] = {
    "query": "(batch, head, query, head_width), positions applied",
    "key": "(batch, kv_head, key, head_width), positions applied",
    "value": "(batch, kv_head, key, value_width)",
    "mask": "what attention may look at: (..., query, key), boolean or added to the scores; absent when all may",
    "scores": "(batch, head, query, key), scaled, before the softmax, -inf where blocked",
    "weights": "(batch, head, query, key), after the softmax, before dropout",
    "heads": "(batch, head, query, value_width), each head's output before the output projection",
    "output": "(batch, length, d_model), what a sub-layer adds to the residual stream",
    "embedding": "(batch, length, d_model), tokens with their positions",
    "residual_before": "(batch, length, d_model), the residual stream as a block receives it",
    "residual_between": "(batch, length, d_model), after attention, before the feed-forward part",
    "residual_after_cross": "(batch, length, d_model), after cross-attention, in decoder blocks that have it",
    "residual_after": "(batch, length, d_model), as the block leaves it",
    "hidden": "(batch, length, d_ff), inside the feed-forward part, after its activation",
    "logits": "(batch, length, vocabulary) or (batch, classes)",
}


class Instrument(Protocol):
    """What may stand at the door."""

    def wants(self, site: str) -> bool:
        """Say whether the value at this full site name is asked for (asking for weights costs the fused kernel)."""
        ...

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Take the value at a site and return what the model shall go on with (usually the same)."""
        ...


class SitedModule(nn.Module):
    """A module that shows some of its intermediates at the door.

    `sites` lists their short names; a test holds them to the vocabulary `SITES`.
    """

    sites: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._instrument: Instrument | None = None
        self._path = ""

    def wants(self, site: str) -> bool:
        """Say whether an instrument is installed that asks for this site of this part."""
        return self._instrument is not None and self._instrument.wants(_join(self._path, site))

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Hand a value to the instrument, if one wants it, and go on with what comes back."""
        if self._instrument is None:
            return value
        name = _join(self._path, site)
        return self._instrument.visit(name, value) if self._instrument.wants(name) else value


def site_names(model: nn.Module) -> list[str]:
    """List every site of a model in the order of its modules."""
    return [
        _join(path, site)
        for path, module in model.named_modules()
        if isinstance(module, SitedModule)
        for site in module.sites
    ]


def matches(pattern: str, model: nn.Module) -> list[str]:
    """List the sites a pattern names; a pattern that names none is an error, not a silent zero.

    `*` stands for anything, as in `layers.*.attention.weights`.
    """
    names = site_names(model)
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        if not names:
            raise WrongUsage(f"{type(model).__name__} has no sites: none of its modules is a part of attnlab.")
        raise WrongUsage(f"no site of this model matches {pattern!r}; {did_you_mean(pattern, names)}")
    return found


@contextmanager
def installed(model: nn.Module, instrument: Instrument) -> Iterator[None]:
    """Put an instrument at every door of one model, and take it away again whatever happens.

    Other models, also other copies of this one, are not touched.

    Raises:
        WrongUsage: an instrument stands there already (open one context with all that is wanted).
    """
    parts = [(path, part) for path, part in model.named_modules() if isinstance(part, SitedModule)]
    for path, part in parts:
        if part._instrument is not None:
            raise WrongUsage(
                f"an instrument is already installed at {path or type(model).__name__!r}; "
                "leave its context first, or ask for everything in one."
            )
    try:
        for path, part in parts:
            part._path, part._instrument = path, instrument
        yield
    finally:
        for _, part in parts:
            part._path, part._instrument = "", None


def _join(path: str, site: str) -> str:
    return f"{path}.{site}" if path else site
