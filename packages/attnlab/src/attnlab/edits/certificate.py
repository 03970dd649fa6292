"""The certificate: what edits did to a model, counted in each forward pass, and checks of it.

It reads as a short text (`print(certificate)`) and as plain values (`certificate.to_mapping()`).
The model is run without the edits in `attnlab.edits.checks`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from attnlab.display import count_words, displayed
from attnlab.look.heads import head_at
from attnlab.sites import site_suffix

Numbers: TypeAlias = list[int] | None
"""Chosen rows or heads; None for all."""


@dataclass
class Change:
    """The change that one edit made.

    calls: how often each of its sites ran · values: how many it targeted, over all calls · changed:
    how many of them it changed · largest: the largest finite change.
    """

    edit: str
    calls: dict[str, int] = field(default_factory=dict)
    values: int | None = None
    changed: int | None = None
    largest: float | None = None

    def __str__(self) -> str:
        if not self.calls:
            return f"{self.edit}: no call"
        where = f"{len(self.calls)} sites" if len(self.calls) > 1 else next(iter(self.calls))
        text = f"{self.edit}: {count_words(sum(self.calls.values()), 'call')} at {where}"
        if self.values is not None:
            text += f", {self.changed:,} of {self.values:,} values changed"
        if self.largest:
            text += f", by {self.largest:.3g} at most"
        return text


@dataclass
class RowSums:
    """The sums of the rows of weights at one site.

    rows: how many attend to something · off: how many do not sum to one, but to between least and
    most · first: the first of those, (row, head, query) · because: the edits that made them so ·
    dead: how many attend to nothing.
    """

    rows: int = 0
    off: int = 0
    dead: int = 0
    least: float = 1.0
    most: float = 1.0
    first: tuple[int, ...] | None = None
    because: list[str] = field(default_factory=list)

    def count(self, weights: Tensor, seen: Tensor | None) -> None:
        """Count the rows of weights that do not sum to one; seen: the allowed keys."""
        if seen is None:
            seen = weights != 0
        alive = seen.any(-1)
        off = alive & _is_off(weights)
        self.rows += int(alive.sum())
        self.dead += int((~alive).sum())
        if bool(off.any()):
            least, most = map(float, weights.sum(-1)[off].aminmax())
            if self.off:
                least, most = min(self.least, least), max(self.most, most)
            self.least, self.most = least, most
            self.off += int(off.sum())
            self.first = self.first or tuple(off.nonzero()[0].tolist())

    def text(self, site: str) -> str:
        """Write it as a sentence about the weights of this site."""
        dead = f"; {self.dead:,} attend to nothing" if self.dead else ""
        if self.first is None:
            return f"rows of {site}: all {self.rows:,} sum to one{dead}"
        row, head, query = self.first
        because = ", ".join(self.because)
        if not because:
            because = "something earlier (a sink of the model, another edit)"
        return (
            f"rows of {site}: {self.off:,} of {self.rows:,} sum to {self.least:.3g} to "
            f"{self.most:.3g} instead of one, because of {because}; the first is row {row}, "
            f"head {head_at(site, head)}, query {query}{dead}"
        )


@dataclass
class OutputChange:
    """The difference of a module's edited output from the unedited one, over all compared passes.

    largest, mean: over every value of those passes · passes, values: the numbers of passes and of
    output values · identity: the difference that no-op edits at the same sites make in the first
    pass, which must be exactly 0 · kernel: the difference that explicit attention makes in the
    first pass, where edits need it instead of the fused kernel · fast_path: the difference that
    leaving torch's fast path makes in the first pass, since no hook runs in it; these two are part
    of the total.
    """

    largest: float = 0.0
    mean: float = 0.0
    passes: int = 0
    values: int = 0
    identity: float | None = None
    kernel: float | None = None
    fast_path: float | None = None

    def add(self, largest: float, mean: float, values: int) -> None:
        """Add one more pass."""
        self.largest = max(self.largest, largest)
        self.passes += 1
        self.values += values
        self.mean += (mean - self.mean) * values / max(self.values, 1)

    def lines(self, path: str) -> list[str]:
        """Describe the change of the output of the module at this path, line by line."""
        where, first = f"output of {path}" if path else "output", ""
        if self.passes > 1:
            where, first = f"{where} of {self.passes} forward passes", ", in the first"
        lines = [f"{where}: changed by {self.largest:.3g} at most, {self.mean:.3g} on average"]
        for words, figure, more in (
            ("of which explicit instead of fused attention", self.kernel, ""),
            ("of which leaving torch's fast path, where no hook runs", self.fast_path, ""),
            ("no-op edits at the same sites", self.identity, " (must be exactly 0)"),
        ):
            if figure is not None:
                lines.append(f"  {words}{first}: {figure:.3g}{more}")
        return lines


@displayed
@dataclass
class Certificate:
    """The record of what edits did, complete when their context has ended.

    Attributes:
        backend: how the model's attention reaches the hook point; "native" for attnlab's own parts.
        edits: what each edit changed, in their order.
        rows: sums of weights, by site.
        off_target: changes outside the targets, which must be none.
        effects: changes of the output, by the path of the module that was called; "" for the model.
        parameters: their SHA-256 before and after.
        not_checked: the checks that were left out, and why.
    """

    backend: str = "native"
    edits: list[Change] = field(default_factory=list)
    rows: dict[str, RowSums] = field(default_factory=dict)
    off_target: list[str] = field(default_factory=list)
    effects: dict[str, OutputChange] = field(default_factory=dict)
    parameters: tuple[str, str] | None = None
    not_checked: list[str] = field(default_factory=list)

    @property
    def calls(self) -> dict[str, int]:
        """How often each edited site ran."""
        counts: Counter[str] = Counter()
        for change in self.edits:
            counts |= Counter(change.calls)  # the larger of both
        return dict(counts)

    @property
    def identity(self) -> float | None:
        """The largest difference that no-op edits made, which must be exactly 0; None if
        unchecked."""
        differences = (effect.identity for effect in self.effects.values())
        return max((number for number in differences if number is not None), default=None)

    @property
    def parameters_unchanged(self) -> bool | None:
        """Whether the parameters are the same as before; None if unchecked."""
        return None if self.parameters is None else len(set(self.parameters)) == 1

    @property
    def failures(self) -> list[str]:
        """The reasons not to trust these edits."""
        reasons = list(self.off_target)
        if self.identity:
            reasons.append(
                f"the no-op edits changed the output by {self.identity:.3g}; it must be exactly 0"
            )
        if self.parameters_unchanged is False:
            reasons.append("the parameters changed (to train under edits, pass certify=False)")
        return reasons

    @property
    def holds(self) -> bool:
        """Whether every check passed."""
        return not self.failures

    def count_edit(
        self, change: Change, site: str, before: Tensor, after: Tensor, chosen: Tensor | None
    ) -> None:
        """Count the values that one edit changed in some rows and heads; chosen: its targets, None
        for all."""
        if is_traced():
            return
        after = after.detach().expand(before.shape)
        meant = torch.ones_like(before, dtype=torch.bool)
        if chosen is not None:
            meant &= chosen
        differs = _differs(before, after)
        change.values = (change.values or 0) + int(meant.sum())
        change.changed = (change.changed or 0) + int(differs.sum())
        change.largest = max(change.largest or 0.0, _largest(before, after))
        outside = int((differs & ~meant).sum())
        if outside:
            self._wrong(f"{site}: {change.edit} changed {outside} values outside its targets")
        if site_suffix(site) == "weights" and bool((_is_off(after) & ~_is_off(before)).any()):
            rows = self.rows.setdefault(site, RowSums())
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
        """Check that no other rows and heads changed, and what weights sum to.

        Args:
            site: its name.
            before, after: the values without and with all edits of the site.
            edited: the rows and heads of each edit.
            seen: the allowed keys, for weights.
        """
        if is_traced():
            return
        first = 2 if after.dim() == 4 else 1
        differs = _differs(before, after.detach()).flatten(first).any(-1).cpu()
        meant = torch.zeros_like(differs)
        for rows, heads in edited:
            for row in rows or range(len(meant)):
                meant[row, heads or ...] = True
        for row, *head in (differs & ~meant).nonzero().tolist()[:3]:
            what = f"row {row}"
            if head:
                what = f"head {head[0]} of {what}"
            self._wrong(f"{site}: {what} changed, but no edit targets it")
        if site_suffix(site) == "weights":
            self.rows.setdefault(site, RowSums()).count(after.detach(), seen)

    def _wrong(self, what: str) -> None:
        if what not in self.off_target:
            self.off_target.append(what)

    def to_mapping(self) -> dict[str, object]:
        """Return the certificate as plain values for JSON."""
        return {**asdict(self), "calls": self.calls, "holds": self.holds, "failures": self.failures}

    def __str__(self) -> str:
        lines = list(map(str, self.edits))
        for path, effect in self.effects.items():
            lines += effect.lines(path)
        for site, rows in self.rows.items():
            lines.append(rows.text(site))
        if self.parameters is not None:
            state = "unchanged" if self.parameters_unchanged else "CHANGED"
            lines.append(f"parameters: {state}")
        for note in self.not_checked:
            lines.append(f"not checked: {note}")
        for note in self.failures:
            lines.append(f"FAILED: {note}")
        title = f"{count_words(len(self.edits), 'edit')}, {self.backend} backend"
        return "\n  ".join([title, *lines])


def is_traced() -> bool:
    """Are values unreadable now, inside a torch.func transform or a compiled graph?"""
    return torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()


def _is_off(weights: Tensor) -> Tensor:
    """Mark the rows that do not sum to one, within rounding; NaN does not."""
    sums = weights.detach().sum(-1)
    rounding = 1e-9 if sums.dtype == torch.float64 else 1e-4
    return ~((sums - 1.0).abs() <= rounding)


def _differs(before: Tensor, after: Tensor) -> Tensor:
    before = before.detach()
    return (before != after) & ~(before.isnan() & after.isnan())


def _largest(before: Tensor, after: Tensor) -> float:
    if not before.is_floating_point() or not before.numel():
        return 0.0
    apart = (after - before.detach()).abs()
    return float(torch.where(apart.isfinite(), apart, 0.0).max())
