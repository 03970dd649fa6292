"""Recordings: the values that passed chosen sites of a model.

    with record(model, "layers.*.attention.weights") as recording:
        model(tokens)
    recording["layers.0.attention.weights"]          # (batch, head, query, key)

Recording never changes what a model computes; asking for scores or weights makes attention compute them openly
instead of with the fused kernel, which can differ in the last bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.sites import Instrument, installed, matches

__all__ = ["Recording", "record"]


class Recording(Mapping[str, Tensor], Instrument):
    """Site names and their values; after several forward passes the value is the last one, `all` has every one."""

    def __init__(self, sites: Sequence[str]) -> None:
        self._asked = tuple(sites)
        self._values: dict[str, list[Tensor]] = {}

    def all(self, site: str) -> list[Tensor]:
        """Every value that passed a site, in order."""
        if site in self._values:
            return self._values[site]
        if site in self._asked:
            raise WrongUsage(f"nothing has passed {site!r} yet; run the model inside the recording's context.")
        raise WrongUsage(f"{site!r} is not recorded; {did_you_mean(site, self._asked)}")

    def __getitem__(self, site: str) -> Tensor:
        return self.all(site)[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def wants(self, site: str) -> bool:
        """Say whether a site was asked for (an instrument's duty)."""
        return site in self._asked

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Keep a copy of the value, and let it pass unchanged (an instrument's duty)."""
        self._values.setdefault(site, []).append(value.detach().clone())
        return value


@contextmanager
def record(model: nn.Module, patterns: str | Sequence[str]) -> Iterator[Recording]:
    """Record the sites that match, while the `with` lasts.

    Args:
        model: any module built of attnlab's parts.
        patterns: site names, with `*` for anything; one that names no site is an error.
    """
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    recording = Recording(list(dict.fromkeys(site for pattern in wanted for site in matches(pattern, model))))
    with installed(model, recording):
        yield recording
