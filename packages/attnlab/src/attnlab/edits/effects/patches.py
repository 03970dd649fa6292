"""Patching: which part of a clean run, put into a corrupted one, restores the answer.

A patch is measured by the usual normalised metric: 0 if it leaves the metric at the corrupted
run's, 1 if it brings it to the clean run's (Wang et al. 2022; Heimersheim and Nanda 2024). Where
clean and corrupted barely differ, shares lie far beyond 0 and 1: `Patched.contrast` compares the
difference of the runs with the changes by patches, and `Patched.caution` warns.

    patch_all(model, clean, corrupted)       # the stream before each block, at each position
    patch_all(model, clean, corrupted, "heads")     # each head, at all positions
    patch_paths(model, clean, corrupted)            # the direct effect of each head on the logits

A path (Wang et al. 2022; Goldowsky-Dill et al. 2023) is one edge: the sender's change reaches the
receiver by the residual stream alone, every head and feed-forward part between them stays as it
was; from the receiver on everything is computed anew.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from attnlab.display import NumberTable, count_words, displayed
from attnlab.edits.effects.baseline import Baseline, portions_that_fit, run_plain
from attnlab.edits.effects.metrics import Metric, MetricLike, PreparedMetric, prepare_metric
from attnlab.edits.effects.place_tables import place_tables, place_words
from attnlab.edits.effects.sweep import USUAL, Case, PatchTarget, SweepOptions, sweep, writer
from attnlab.errors import WrongUsage, require_known
from attnlab.look.inputs import Call, Inputs
from attnlab.look.position_names import position_names
from attnlab.look.target_ids import Target
from attnlab.shapes import shape_text
from attnlab.sites import matches, part_of, site_suffix

What = Literal["stream", "heads", "attentions", "mlps"]
Direction = Literal["denoise", "noise"]

_FAINT = 0.5  # of a typical change: closer than this, the two runs give no scale for it

_PATTERNS = {
    "stream": "*residual_before",
    "heads": "*heads",
    "attentions": "*attention.output",
    "mlps": "*feed_forward.output",
}


@dataclass(frozen=True)
class Recovery:
    """The two ends of the normalized metric: clean and corrupted, (row,) each."""

    clean: Tensor
    corrupted: Tensor

    def share(self, values: Tensor) -> Tensor:
        """Return where values (…, row) lie between both ends: 0 corrupted, 1 clean."""
        low, high = self.corrupted.mean(), self.clean.mean()
        return (values.mean(-1) - low) / (high - low)


@displayed
@dataclass(frozen=True)
class Patched:
    """The effect of every patch alone.

    places · metric: its name · direction: "denoise" puts clean values into the corrupted run,
    "noise" the other way round · ends: the metric of both runs · after (place, row): the metric
    under each patch · tokens: the names of the positions of each stack, `{"": ("a", "b/c")}`, both
    tokens where clean and corrupted differ.
    """

    places: tuple[Any, ...]
    metric: str
    direction: Direction
    ends: Recovery
    after: Tensor
    tokens: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def shares(self) -> Tensor:
        """The normalized metric of each patch, (place,): 0 as corrupted, 1 as clean."""
        return self.ends.share(self.after)

    def table(self) -> Tensor:
        """Return the shares as (site, head or position) or (site, head, position); NaN if not
        patched."""
        return PatchTarget.table(self.places, self.shares)

    @property
    def difference(self) -> float:
        """The mean metric of the clean run less that of the corrupted one: a share of 1."""
        return float(self.ends.clean.mean() - self.ends.corrupted.mean())

    @property
    def typical_change(self) -> float:
        """The typical change of the mean metric by a patch: weighted by size, Σ c² / Σ |c|.

        So the many patches with almost no effect do not make it small.
        """
        start = self.ends.corrupted if self.direction == "denoise" else self.ends.clean
        changes = (self.after.mean(-1) - start.mean()).abs()
        return float((changes.square().sum() / changes.sum()).nan_to_num(0.0))

    @property
    def contrast(self) -> float:
        """`difference` in typical changes; infinite if no patch changes anything."""
        typical = self.typical_change
        return abs(self.difference) / typical if typical > 0.0 else math.inf

    @property
    def caution(self) -> str:
        """A warning if clean and corrupted differ by less than half a typical change; else ""."""
        if self.contrast >= _FAINT:
            return ""
        return (
            f"caution: clean and corrupted barely differ, by {abs(self.difference):.3g}, while a "
            f"patch typically changes {self.metric} by {self.typical_change:.3g}; such shares mean "
            "little. Choose inputs or a metric that differ more"
        )

    def largest(self, number: int = 10) -> list[tuple[Any, float]]:
        """List the patches with the largest changes of either sign, largest first."""
        start = 0.0 if self.direction == "denoise" else 1.0
        ranked = (self.shares - start).abs().argsort(descending=True, stable=True)[:number]
        return [(self.places[index], float(self.shares[index])) for index in ranked.tolist()]

    def number_tables(self) -> list[NumberTable]:
        """Return the shares as tables to draw: layer by position, by head, or of paths."""
        label = f"share of {self.metric}: 0 as corrupted, 1 as clean"
        return place_tables(self.places, self.shares, label, self.tokens)

    def __str__(self) -> str:
        clean, corrupted = float(self.ends.clean.mean()), float(self.ends.corrupted.mean())
        patched = "clean values in the corrupted run"
        if self.direction == "noise":
            patched = "corrupted values in the clean run"
        number = count_words(len(self.ends.clean), "input")
        lines = [
            f"{self.metric} of {number}: clean {clean:.5g}, corrupted {corrupted:.5g}; the "
            f"difference is {self.contrast:.2g} times what a patch typically changes",
            self.caution,
            f"{patched}; shares (0 as corrupted, 1 as clean), largest change first",
        ]
        for place, share in self.largest():
            lines.append(f"  {share + 0.0:+.4g}  {place_words(place, self.tokens)}")
        return "\n".join(filter(None, lines))


@dataclass(frozen=True)
class Pair:
    """Two plain runs of one shape: values of `source` are patched into `base`.

    reference: the clean run's logits, the base of a divergence.
    """

    base: Baseline
    source: Baseline
    metric: PreparedMetric
    ends: Recovery
    reference: Tensor

    def sweep(self, model: nn.Module, cases: Sequence[Case], how: SweepOptions) -> Tensor:
        """Measure the cases on the base: (case, row)."""
        return sweep(model, self.base, cases, self.metric, reference=self.reference, how=how)


def patch_all(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    what: What | str = "stream",
    *,
    metric: MetricLike = "logit",
    target: Target = None,
    each_position: bool | None = None,
    direction: Direction = "denoise",
    how: SweepOptions = USUAL,
) -> Patched:
    """Patch one place after another, from one run into the other.

    Which position carries the difference of two inputs::

        model = attnlab.load("runs/sorting")
        print(attnlab.patch_all(model, "abc", "cbb"))

    Args:
        model: made of attnlab's parts, in evaluation mode.
        clean, corrupted: texts of as many tokens, or other inputs of the same shapes, row by row a
            pair.
        what: "stream" (before each block), "heads", "attentions", "mlps", or sites with `*` for
            anything.
        metric: a name, or a `Metric`.
        target: the answer to measure: " Mary", an id, a list with one for each input, or ids (row,
            length); None for the model's answer to the clean input.
        each_position: patch position by position; None for all but heads, which are patched whole.
        direction: "denoise" puts clean values into the corrupted run, "noise" corrupted ones into
            the clean run.
        how: memory, threads and progress, see `SweepOptions`.

    Raises:
        WrongUsage: the shapes differ, or the metric is the same for both, so that nothing can be
            restored.
    """
    how = SweepOptions.of(how, "patches")
    if not isinstance(what, str) or not ("." in what or "*" in what):
        require_known("set of patches", what, _PATTERNS)
    sites = matches(_PATTERNS.get(what, what), model)
    for site in sites:
        if site_suffix(site) in ("mask", "scores", "weights", "logits"):
            raise WrongUsage(f"patch_all does not patch {site}; use the edit Patch.")

    def patched(pair: Pair, how: SweepOptions) -> tuple[list[PatchTarget], Tensor]:
        cases = []
        for site in sites:
            for place in _places(site, pair.base.values[site], each_position):
                cases.append(Case(site, writer(pair.source.values[site], place), place))
        return [case.place for case in cases], pair.sweep(model, cases, how)

    chosen_metric = Metric.of(metric, target, model, clean)
    return patch_pairs(
        model, clean, corrupted, chosen_metric, patched, sites, direction=direction, how=how
    )


def _places(site: str, value: Tensor, each_position: bool | None) -> list[PatchTarget]:
    """List the patches at a site: heads, positions, both, or the whole value."""
    is_heads = site_suffix(site) == "heads"
    if each_position is None:
        each_position = not is_heads
    places = [PatchTarget(site)]
    if is_heads:
        places = [PatchTarget(part_of(site), head) for head in range(value.shape[1])]
    if not each_position:
        return places
    patches = []
    for place in places:
        for query in range(value.shape[-2]):
            patches.append(replace(place, query=query))
    return patches


def patch_pairs(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    metric: Metric,
    patched: Callable[[Pair, SweepOptions], tuple[list[Any], Tensor]],
    sites: Sequence[str],
    *,
    direction: Direction,
    how: SweepOptions,
) -> Patched:
    """Run the model on both inputs, as many rows at a time as fit, and patch one run.

    Args:
        model, clean, corrupted, metric, direction, how: see `patch_all`. A user's own metric is a
            function of all rows, which then stay together.
        patched: returns the places patched in a pair of runs, and the metric, (place, row).
        sites: the kept sites of both runs; see `Baseline`.
    """
    require_known("direction", direction, get_args(Direction))
    one, other = Call.of(clean, model), Call.of(corrupted, model)
    if _shapes_of(one) != _shapes_of(other):
        got = f"{_shapes_of(one)} and {_shapes_of(other)}"
        raise WrongUsage(
            f"clean and corrupted inputs are of the same shapes; got {got}. A patch goes from a "
            "position to the same position: give texts of as many tokens."
        )
    spans = [slice(None)]
    if not callable(metric.measure):
        spans = [span for span, _ in portions_that_fit(model, one, how.budget // 2, sites)]

    def make(span: slice) -> Pair:
        clean_call = one.rows(span)
        clean = run_plain(model, clean_call, sites)
        corrupted = run_plain(model, other.rows(span), sites)
        # The clean run is the base of labels and divergences.
        reference = clean.logits
        row_metric = prepare_metric(metric.rows(span), reference, clean_call.real)
        ends = Recovery(
            row_metric(reference, reference)[0].cpu(),
            row_metric(corrupted.logits, reference)[0].cpu(),
        )
        if direction == "denoise":
            return Pair(corrupted, clean, row_metric, ends, reference)
        return Pair(clean, corrupted, row_metric, ends, reference)

    pair = make(spans[0])
    all_ends = [pair.ends]
    for span in spans[1:]:
        all_ends.append(make(span).ends)
    ends = Recovery(
        torch.cat([end.clean for end in all_ends]),
        torch.cat([end.corrupted for end in all_ends]),
    )
    _check_apart(ends, pair.metric.name, torch.finfo(pair.base.logits.dtype).eps)
    after = []
    for number, span in enumerate(spans):
        if number > 0:
            pair = make(span)
        places, values = patched(pair, how.portion(number, len(spans)))
        after.append(values)
    names = position_names([one, other], model)
    return Patched(tuple(places), pair.metric.name, direction, ends, torch.cat(after, 1), names)


def _check_apart(ends: Recovery, metric: str, precision: float) -> None:
    high, low = float(ends.clean.mean()), float(ends.corrupted.mean())
    if not math.isfinite(high - low):
        raise WrongUsage(
            f"the metric {metric} is {high:.6g} for the clean and {low:.6g} for the corrupted "
            "input; shares need finite numbers. Look at what the model says of both first."
        )
    if abs(high - low) <= max(1e-9, precision * max(abs(high), abs(low))):
        raise WrongUsage(
            f"the metric {metric} is {high:.6g} for the clean and for the corrupted input, but "
            "for rounding: a patch has nothing to restore."
        )


def _shapes_of(call: Call) -> str:
    """Describe the tensors of a call, by their names."""
    named: list[tuple[str, object]] = []
    for index, argument in enumerate(call.arguments):
        named.append((f"input {index}", argument))
    shapes = []
    for name, value in (*named, *call.options.items()):
        if isinstance(value, Tensor):
            shapes.append(f"{name} {shape_text(value.shape)}")
    return ", ".join(shapes)
