"""The tally: what edits did to each value, counted for the certificate while they are at work."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from attnlab.edits.certificate import Certificate, Change, RowSums
from attnlab.edits.where import own_name

Numbers: TypeAlias = list[int] | None
"""Chosen rows or heads; None for all."""


class Tally:
    """Writes into a certificate what became of the values at the sites."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    def count_edit(
        self, change: Change, site: str, before: Tensor, after: Tensor, chosen: Tensor | None
    ) -> None:
        """Count what one edit changed in some rows and heads; chosen: which values it meant, None
        for all."""
        if is_traced():
            return
        after = after.detach().expand(before.shape)
        differs = _differs(before, after)
        meant, outside = before.numel(), 0
        if chosen is not None:
            meant = int(chosen.expand(before.shape).sum())
            outside = int((differs & ~chosen).sum())
        change.values = (change.values or 0) + meant
        change.changed = (change.changed or 0) + int(differs.sum())
        change.largest = max(change.largest or 0.0, _largest(before, after))
        if outside:
            self._wrong(f"{site}: {outside} values changed that {change.edit} did not mean")
        if own_name(site) == "weights" and bool((_is_off(after) & ~_is_off(before)).any()):
            rows = self._certificate.rows.setdefault(site, RowSums())
            if change.edit not in rows.because:
                rows.because.append(change.edit)

    def check_site(
        self,
        site: str,
        before: Tensor,
        after: Tensor,
        edited: Sequence[tuple[Numbers, Numbers]],
        seen: Tensor | None,
    ) -> None:
        """Check that no other rows and heads changed, and how weights sum up.

        Args:
            site: its name.
            before, after: the values without and with all edits of the site.
            edited: which rows and heads they were for.
            seen: which keys may be looked at, for weights.
        """
        if is_traced():
            return
        has_heads = after.dim() == 4
        differs = _differs(before, after.detach())
        if not has_heads:
            differs = differs.unsqueeze(1)
        meant = torch.zeros(differs.shape[:2], dtype=torch.bool)
        for rows, heads in edited:
            for row in range(len(meant)) if rows is None else rows:
                meant[row, ... if heads is None else heads] = True
        wrong = differs.flatten(2).any(-1).cpu() & ~meant
        for row, head in wrong.nonzero().tolist()[:3]:
            what = f"head {head} of row {row}" if has_heads else f"row {row}"
            self._wrong(f"{site}: {what} changed, and no edit meant it")
        if own_name(site) == "weights":
            self._count_rows(site, after.detach(), seen)

    def _count_rows(self, site: str, weights: Tensor, seen: Tensor | None) -> None:
        """Count the rows of weights that do not sum to one."""
        rows = self._certificate.rows.setdefault(site, RowSums())
        alive = ((weights != 0) if seen is None else seen).any(-1)
        off = alive & _is_off(weights)
        rows.rows += int(alive.sum())
        rows.dead += int((~alive).sum())
        if bool(off.any()):
            least, most = (float(each) for each in weights.sum(-1)[off].aminmax())
            rows.least = min(rows.least, least)
            rows.most = max(rows.most, most) if rows.off else most
            rows.off += int(off.sum())
            rows.first = rows.first or tuple(off.nonzero()[0].tolist())

    def _wrong(self, what: str) -> None:
        if what not in self._certificate.off_target:
            self._certificate.off_target.append(what)


def is_traced() -> bool:
    """Are the numbers out of reach now, in a transform of torch.func or a compiled graph?"""
    return torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()


def _is_off(weights: Tensor) -> Tensor:
    """Say which rows do not sum to one, within rounding; NaN does not."""
    sums = weights.detach().sum(-1)
    return ~((sums - 1.0).abs() <= (1e-9 if sums.dtype == torch.float64 else 1e-4))


def _differs(before: Tensor, after: Tensor) -> Tensor:
    differs = before.detach() != after
    if before.is_floating_point():
        differs = differs & ~(before.isnan() & after.isnan())
    return differs


def _largest(before: Tensor, after: Tensor) -> float:
    if not before.is_floating_point() or not before.numel():
        return 0.0
    apart = (after - before.detach()).abs()
    return float(torch.where(apart.isfinite(), apart, 0.0).max())
