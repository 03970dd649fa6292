"""Estimates of patches: every place at once, from one pass with gradients or a few.

    patch_all(model, clean, corrupted, "heads", estimate="gradient")

gradient     the change of the value times the gradient of the metric in the run that is patched
             (attribution patching: Nanda 2023; Syed et al. 2023)
integrated   the same with the gradient's mean on the straight way of the embeddings from one run to
             the other (Sundararajan et al. 2017; Hanna et al. 2024)

The first is right where the metric is a straight line in the value. The second adds up to the
difference of the runs over what they differ in at the embedding. Neither need be near the patch
itself: `attnlab truth estimates` says how far they are where that is known.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy
import torch
from torch import Tensor, nn

from attnlab.edits.effects.baseline import Baseline
from attnlab.edits.effects.metrics import PreparedMetric
from attnlab.edits.effects.sweep import PatchTarget
from attnlab.errors import WrongUsage
from attnlab.sites import Hook, installed, site_suffix

Estimate = Literal["gradient", "integrated"]

_STEPS = 16  # on the way between the embeddings, where Gauss and Legendre put them
_MOST_TOKENS = 1024  # of the steps that are read in one pass


class _Differentiable(Hook):
    """Supplies embeddings from which gradients are taken, and keeps the values at some sites."""

    def __init__(self, embeddings: Mapping[str, Tensor], sites: Sequence[str]) -> None:
        self._embeddings, self._wanted = embeddings, frozenset((*embeddings, *sites))
        self._sites = frozenset(sites)
        self.kept: dict[str, Tensor] = {}

    def wants(self, site: str) -> bool:
        return site in self._wanted

    def visit(self, site: str, value: Tensor) -> Tensor:
        value = self._embeddings.get(site, value)
        if not value.requires_grad:
            value = value.detach().requires_grad_()
        if site in self._sites:
            self.kept[site] = value
        return value


def estimate_patches(
    model: nn.Module,
    base: Baseline,
    source: Baseline,
    metric: PreparedMetric,
    reference: Tensor,
    places: Mapping[str, Sequence[PatchTarget]],
    estimate: Estimate,
) -> Tensor:
    """Estimate the metric of `base` with each place's value from `source`: (place, row).

    Args:
        model: the model of both runs.
        base, source: the plain runs, with the values of the sites.
        metric: of the inputs.
        reference: the logits at the base of a divergence.
        places: by site, in order.
        estimate: which of the two.

    Raises:
        WrongUsage: the metric has no gradient, or the model no embedding to integrate from.
    """
    plain = metric(base.logits, reference)[0].cpu()
    between = {0.0: 1.0}
    if estimate == "integrated":
        between = dict(zip(*gauss_legendre(_STEPS), strict=True))
    gradients = _mean_gradients(model, base, source, metric, reference, list(places), between)
    values = []
    for site, at_site in places.items():
        change = source.values[site].double() - base.values[site].double()
        products = (change * gradients[site]).nan_to_num(0.0).cpu()  # NaN at padded queries
        rows = len(products)
        values += [products[place.index].reshape(rows, -1).sum(1) for place in at_site]
    return plain + torch.stack(values)


def _mean_gradients(
    model: nn.Module,
    base: Baseline,
    source: Baseline,
    metric: PreparedMetric,
    reference: Tensor,
    sites: list[str],
    between: Mapping[float, float],
) -> dict[str, Tensor]:
    """Return the mean gradients of the metric at some sites, over runs whose embeddings lie between
    those of two runs: between are their shares of the way, and the weight of each."""
    embeddings = [site for site in base.values if site_suffix(site) == "embedding"]
    if not embeddings and any(between):
        raise WrongUsage('this model has no site "embedding"; estimate="gradient" needs none.')
    sums = {site: torch.zeros_like(base.values[site], dtype=torch.float64) for site in sites}
    tokens = sum(base.values[name].shape[:2].numel() for name in embeddings)
    together = max(1, _MOST_TOKENS // max(1, tokens))
    for first in range(0, len(between), together):
        shares, mixed = list(between)[first : first + together], {}
        for name in embeddings:
            ends = base.values[name], source.values[name]
            mixed[name] = torch.cat([torch.lerp(*ends, share) for share in shares])
        hook = _Differentiable(mixed, sites)
        with torch.enable_grad(), installed(model, hook):
            measured = metric(base.call.repeated(len(shares))(model), reference)
        if not measured.requires_grad:
            raise WrongUsage(f"the metric {metric.name} has no gradient, so nothing is estimated.")
        kept = [hook.kept[site] for site in sites]
        for site, gradient in zip(sites, torch.autograd.grad(measured.sum(), kept), strict=True):
            weights = gradient.new_tensor([between[share] for share in shares], dtype=torch.float64)
            by_share = gradient.double().reshape(len(shares), -1, *gradient.shape[1:])
            sums[site] += torch.einsum("s,s...->...", weights, by_share)
    return sums


def gauss_legendre(steps: int) -> tuple[list[float], list[float]]:
    """Return places from 0 to 1 and their weights, by which a mean over the way is exact for
    polynomials of twice as many terms.

    >>> places, weights = gauss_legendre(2)
    >>> round(sum(weight * place**3 for place, weight in zip(places, weights)), 12)
    0.25
    """
    places, weights = numpy.polynomial.legendre.leggauss(steps)
    return ((places + 1) / 2).tolist(), (weights / 2).tolist()
