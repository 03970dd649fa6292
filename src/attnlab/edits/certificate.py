"""The certificate: what edits did, and what speaks for it.

It reads as a short text (`print(certificate)`) and as plain values (`certificate.to_mapping()`).
What edits did to each value is counted in `attnlab.edits.tally`; the model is run without them in
`attnlab.edits.checks`.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from attnlab.display import displayed
from attnlab.look.heads import head_at


@dataclass
class Change:
    """What one edit did.

    calls: how often each of its sites ran · values: how many it targeted, over all calls · changed:
    how many became different · largest: by how much at most (infinite differences not counted).
    """

    edit: str
    calls: dict[str, int] = field(default_factory=dict)
    values: int | None = None
    changed: int | None = None
    largest: float | None = None

    def __str__(self) -> str:
        if not self.calls:
            return f"{self.edit}: no call"
        total = sum(self.calls.values())
        where = next(iter(self.calls)) if len(self.calls) == 1 else f"{len(self.calls)} sites"
        text = f"{self.edit}: {total} call{'s' * (total != 1)} at {where}"
        if self.values is not None:
            text += f", {self.changed:,} of {self.values:,} values changed"
        if self.largest:
            text += f", by {self.largest:.3g} at most"
        return text


@dataclass
class RowSums:
    """How the rows of weights at one site sum up.

    rows: that attend to something · off: that do not sum to one, but to between least and most ·
    first: the first of those, (row, head, query) · because: the edits that left them so · dead:
    rows that attend to nothing.
    """

    rows: int = 0
    off: int = 0
    dead: int = 0
    least: float = 1.0
    most: float = 1.0
    first: tuple[int, ...] | None = None
    because: list[str] = field(default_factory=list)

    def text(self, site: str) -> str:
        """Write it as a sentence about the weights of this site."""
        dead = f"; {self.dead:,} look at nothing" if self.dead else ""
        if not self.off:
            return f"rows of {site}: all {self.rows:,} sum to one{dead}"
        row, head, query = self.first or (0, 0, 0)
        because = ", ".join(self.because)
        return (
            f"rows of {site}: {self.off:,} of {self.rows:,} do not sum to one but to "
            f"{self.least:.3g} to {self.most:.3g}, because of "
            f"{because or 'what came before (a sink of the model, an edit outside)'}; the first is "
            f"row {row}, head {head_at(site, head)}, query {query}{dead}"
        )


@dataclass
class OutputChange:
    """How far a module's edited output is from the unedited one, over all compared forward passes.

    largest, mean: over every value of those passes · passes, values: how many passes, and numbers
    that they put out · identity: of the first pass with edits that change nothing at the same
    sites, which must be exactly 0 · kernel: of the first with attention computed openly instead of
    by the fused kernel, where edits ask for that · fast_path: of the first without torch's fast
    path, which the unedited call takes, and in which nothing can be seen or changed; these two are
    part of the others.
    """

    largest: float = 0.0
    mean: float = 0.0
    passes: int = 0
    values: int = 0
    identity: float | None = None
    kernel: float | None = None
    fast_path: float | None = None

    def add(self, largest: float, mean: float, values: int) -> None:
        """Take in one more pass."""
        self.largest = max(self.largest, largest)
        self.passes += 1
        self.values += values
        self.mean += (mean - self.mean) * values / max(self.values, 1)

    def lines(self, path: str) -> list[str]:
        """Write it as lines about the output of the module at this path."""
        where, first = f"output of {path}" if path else "output", ""
        if self.passes > 1:
            where, first = f"{where} of {self.passes} forward passes", ", in the first"
        found = [f"{where}: changed by {self.largest:.3g} at most, {self.mean:.3g} on average"]
        if self.kernel is not None:
            found.append(f"  of which open instead of fused attention{first}: {self.kernel:.3g}")
        if self.fast_path is not None:
            off = f"of which leaving torch's fast path, which cannot be watched{first}"
            found.append(f"  {off}: {self.fast_path:.3g}")
        if self.identity is not None:
            same = f"the same sites with nothing changed{first}"
            found.append(f"  {same}: {self.identity:.3g} (must be exactly 0)")
        return found


@displayed
@dataclass
class Certificate:
    """What is known of edits, complete when their context has ended.

    backend: how the model's attention reaches the hook point ("native": our own parts) · edits:
    one `Change` for each, in their order · rows: sums of weights, by site · off_target: what
    changed and was not meant, which must be nothing · effects: by the path of the module that was
    called, "" for the model · parameters: their SHA-256 before and after · not_checked: what was
    left out, and why.
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
        """How often each edited site has passed."""
        found: dict[str, int] = {}
        for change in self.edits:
            for site, calls in change.calls.items():
                found[site] = max(calls, found.get(site, 0))
        return found

    @property
    def identity(self) -> float | None:
        """The largest difference that edits made which change nothing; must be exactly 0. None
        where not checked."""
        found = [each.identity for each in self.effects.values() if each.identity is not None]
        return max(found, default=None)

    @property
    def parameters_unchanged(self) -> bool | None:
        """Whether the parameters are what they were; None where not checked."""
        return None if self.parameters is None else self.parameters[0] == self.parameters[1]

    @property
    def failures(self) -> list[str]:
        """What speaks against trusting what was seen."""
        found = list(self.off_target)
        if self.identity is not None and self.identity != 0.0:
            found.append(
                f"edits that change nothing changed the output by {self.identity:.3g}; it "
                "must be exactly 0"
            )
        if self.parameters_unchanged is False:
            found.append("the parameters are not what they were")
        return found

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.failures

    def to_mapping(self) -> dict[str, Any]:
        """Return all of it as plain values for JSON."""
        return {**asdict(self), "calls": self.calls, "holds": self.holds, "failures": self.failures}

    def __str__(self) -> str:
        lines = [str(change) for change in self.edits]
        for path, effect in self.effects.items():
            lines += effect.lines(path)
        lines += [rows.text(site) for site, rows in self.rows.items()]
        if self.parameters is not None:
            lines.append(f"parameters: {'unchanged' if self.parameters_unchanged else 'CHANGED'}")
        lines += [f"not checked: {each}" for each in self.not_checked]
        lines += [f"FAILED: {each}" for each in self.failures]
        title = f"{len(self.edits)} edit{'s' * (len(self.edits) != 1)}, {self.backend} backend"
        return "\n  ".join([title, *lines])
