"""Sweeps: many small changes to one pass, each alone, which share their common computation.

A case changes the value of one site. Everything before that site keeps its value and is not
computed again: earlier blocks supply their outputs, and known attentions of the block are skipped.
Many cases at one site are rows of one batch. Where only the last positions of a decoder matter, its
last block and its logits are computed for these alone. All of this is exact: a case has the result
that it would have by itself, but for rounding.

A change that is no larger than rounding is no effect. How far rounding moves the metric of an input
is tried out several times: the value at the first site of any case is moved by one rounding error
in random directions, which the model carries to its output as it does the rounding of the cases. A
case that moves the metric of an input by no more than `_MARGIN` times the largest of these gets the
plain number, to the bit.
"""

import contextvars
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core.sizes import count_numbers
from attnlab.edits.effects.baseline import Baseline, portions_that_fit, run_plain
from attnlab.edits.effects.metrics import Metric, PreparedMetric, measured_words, prepare_metric
from attnlab.edits.effects.tail import Tail, find_tail
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call
from attnlab.models.decoder import Decoder
from attnlab.pretrained.model import Pretrained
from attnlab.progress import notebook_bar
from attnlab.shapes import require_integer
from attnlab.sites import Hook, installed, site_of, site_suffix


@dataclass(frozen=True)
class PatchTarget:
    """A part or site of the model by its path, or one head, position, edge or channel of it.

    query alone is a position; query and key are an edge; channel is a number along the last axis,
    such as one neuron.
    """

    path: str
    head: int | None = None
    query: int | None = None
    key: int | None = None
    channel: int | None = None

    @property
    def site(self) -> str:
        """The site where the place is changed: a head's output, or a feed-forward part's."""
        if self.head is not None:
            return site_of(self.path, "heads")
        if self.path.endswith("feed_forward"):
            return f"{self.path}.output"
        return self.path

    @property
    def cell(self) -> tuple[int, ...]:
        """The index in its part's table: (query, key) of an edge, else head, position and
        channel."""
        numbers: tuple[int | None, ...] = (self.query, self.key)
        if self.key is None:
            numbers = (self.head, self.query, self.channel)
        return tuple(number for number in numbers if number is not None) or (0,)

    @property
    def is_stream(self) -> bool:
        """Is this a position of the residual stream before a block?"""
        is_whole = self.query is not None and self.channel is None
        return self.path.endswith("residual_before") and is_whole

    @property
    def index(self) -> tuple[Any, ...]:
        """The index of a head, a position or a channel, of one or of all, in its site's value
        (row, …)."""
        query: Any = slice(None) if self.query is None else self.query
        channel: Any = slice(None) if self.channel is None else self.channel
        if self.head is not None:
            return slice(None), self.head, query, channel
        return (..., query, channel)

    @staticmethod
    def table(places: "Sequence[PatchTarget]", values: Tensor) -> Tensor:
        """Lay values out by part and cell, (part, ...): means of several, NaN where there is
        none."""
        parts = list(dict.fromkeys(place.path for place in places))
        size = [1 + max(column) for column in zip(*(place.cell for place in places), strict=True)]
        sums = torch.zeros(len(parts), *(size or [0]), dtype=values.dtype)
        counts = torch.zeros_like(sums)
        for place, value in zip(places, values, strict=True):
            index = (parts.index(place.path), *place.cell)
            sums[index] += value
            counts[index] += 1
        return sums / counts

    def __str__(self) -> str:
        text = self.path or "attention"
        if self.head is not None:
            text = f"head {head_name(self.path, self.head)}"
        if self.key is not None:
            return f"{text}, query {self.query} to key {self.key}"
        if self.query is not None:
            text += f", position {self.query}"
        return text if self.channel is None else f"{text}, channel {self.channel}"


# numbers of the widest value: a larger batch takes more memory and, on a processor, no less time
_CACHED = 2**21
_TRIALS = 4  # of rounding
# in 500 random models, controls that change rounding alone went up to 2 times as far as the trials
_MARGIN = 4.0
# multiply-adds of a pass, below which starting threads costs more than they bring
_WORTH_A_THREAD = 2e8


@dataclass(frozen=True)
class SweepOptions:
    """The computation of a sweep; its numbers do not depend on it, but for rounding.

    budget: bytes to use beside the model; inputs and cases are computed in portions that fit.
    threads: passes at once on a processor; None for torch's number of threads, or one if the passes
    are too small. progress: called with the numbers of done and of all cases; None for a bar in a
    notebook. Whatever the budget, two inputs and one case are computed together, because controls
    need the patterns of one head on two inputs.
    """

    budget: int = 512 * 1024**2
    threads: int | None = None
    progress: Callable[[int, int], None] | None = None

    @staticmethod
    def of(how: "SweepOptions", title: str) -> "SweepOptions":
        """Check the options, and add a progress bar of this title in a notebook.

        Raises:
            WrongUsage: an option is invalid.
        """
        if not isinstance(how, SweepOptions):
            raise WrongUsage(f"how= is such as SweepOptions(budget=2**30); got {how!r}.")
        require_integer("budget (in bytes)", how.budget)
        if how.threads is not None:
            require_integer("threads", how.threads)
        if how.progress is None:
            bar = notebook_bar(title)
            return how if bar is None else dataclasses.replace(how, progress=bar.count)
        if not callable(how.progress):
            raise WrongUsage(f"progress is a function of two numbers; got {how.progress!r}.")
        return how

    def portion(self, number: int, portions: int) -> "SweepOptions":
        """Return the options for one of several portions of the inputs, with its share of the
        progress."""
        report = self.progress
        if report is None:
            return self
        return dataclasses.replace(
            self, progress=lambda done, total: report(number * total + done, portions * total)
        )


USUAL = SweepOptions()


@dataclass(frozen=True)
class SweepCase:
    """One change: `write` changes, in place, a copy of the value at `site`, (row, …).

    place: the name of the change in results, such as a `PatchTarget`.
    """

    site: str
    write: Callable[[Tensor], object]
    place: Any = None


def writer(source: Tensor | None, place: PatchTarget) -> Callable[[Tensor], None]:
    """Return a function that writes the source's values, or zeros, at a place of another run."""
    index = place.index

    def write(value: Tensor) -> None:
        value[index] = 0.0 if source is None else source[index]

    return write


@dataclass(eq=False)
class Script(threading.local, Hook):
    """The hook of one pass; each thread has its own script.

    known: functions that return the values to supply instead of computing them. change: the new
    values by site. keep: the sites to keep; afterwards `kept` holds their first values. tail: the
    last block for the last positions alone, if used.
    """

    known: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)
    change: Mapping[str, Tensor] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    kept: dict[str, Tensor] = field(default_factory=dict)
    tail: Tail | None = None

    def wants(self, site: str) -> bool:
        """Say whether the script changes or keeps a site."""
        return site in self.change or site in self.keep

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Keep the value, and return the script's value for the site."""
        if site in self.keep:
            self.kept.setdefault(site, value)
        return self.change.get(site, value)

    def supply(self, site: str) -> Tensor | None:
        """Return the value of a site if the script knows it."""
        tail = self.tail
        value = self.known[site]() if site in self.known else None
        if tail is None or site != tail.leaves:
            return value
        if value is not None:
            return value[:, -tail.num_last :]
        # the last block at the last positions alone
        x = self.kept.pop(tail.enters)
        if tail.heads in self.known:
            heads = self.known[tail.heads]()[..., -tail.num_last :, :]
        else:
            heads = tail.attended(x)
        self.known, self.change, self.keep = {tail.heads: lambda: heads}, {}, frozenset()
        self.tail = None
        output: Tensor = tail.block(x[:, -tail.num_last :])
        return output


def measure(
    model: nn.Module,
    call: Call,
    make_cases: Callable[[Baseline], list[SweepCase]],
    metric: Metric,
    sites: Sequence[str],
    how: SweepOptions,
) -> tuple[str, tuple[Any, ...], Tensor, Tensor, str]:
    """Run plain passes and sweeps over as many rows at a time as fit.

    Returns the metric's name, the cases' places, the metric before (row,) and after (case, row),
    and what is measured in words. A user's own metric is a function of all rows, which then stay
    together.
    """
    portions = [(slice(None), call)]
    if not callable(metric.measure):
        portions = portions_that_fit(model, call, how.budget, sites)
    before, after, answers = [], [], []
    for number, (span, part) in enumerate(portions):
        base = run_plain(model, part, sites)
        row_metric = prepare_metric(metric.rows(span), base.logits, part.real)
        cases = make_cases(base)
        if not cases:
            raise WrongUsage("there is nothing to measure: no case is left.")
        before.append(row_metric(base.logits, base.logits)[0].cpu())
        answers += row_metric.answers(model, base.logits.shape[-1])
        base.keep_last(row_metric.num_last)
        after.append(sweep(model, base, cases, row_metric, how=how.portion(number, len(portions))))
    places = tuple(case.place for case in cases)
    position: object = metric.position
    is_spread = isinstance(metric.target, Tensor) and metric.target.dim() == 2
    if is_spread or base.logits.dim() == 2:
        position = None
    words = measured_words(row_metric.name, answers, position)
    return row_metric.name, places, torch.cat(before), torch.cat(after, 1), words


@torch.no_grad()
def sweep(
    model: nn.Module,
    baseline: Baseline,
    cases: Sequence[SweepCase],
    metric: PreparedMetric,
    *,
    reference: Tensor | None = None,
    how: SweepOptions = USUAL,
) -> Tensor:
    """Measure every case: (case, row), in float64; a change below rounding counts as none.

    Args:
        model: the model of the plain pass.
        baseline: the plain pass, with the sites of all cases kept.
        cases: one change each.
        metric: of the baseline's inputs.
        reference: the logits at the base of a divergence; None for the baseline's.
        how: half of the budget is left for the baseline.
    """
    num_rows = baseline.call.num_rows
    if not cases:
        return torch.empty(0, num_rows, dtype=torch.float64)
    if reference is None:
        reference = baseline.logits
    cases = [*_trials(baseline, cases), *cases]
    effects = torch.empty(len(cases), num_rows, dtype=torch.float64)
    most = how.budget // 2 // (baseline.row_bytes(metric.num_last) * num_rows)
    workers = _workers(model, baseline, len(cases), how.threads)
    most //= workers
    if baseline.logits.device.type == "cpu":
        most = min(most, _CACHED // max(1, baseline.hidden * num_rows))
    script, done = Script(), 0
    batches = list(_batches(cases, max(1, most), workers))

    def run(chosen: list[int]) -> Tensor:
        some = [cases[index] for index in chosen]
        return metric(_logits(model, script, baseline, some, metric.num_last), reference)

    with installed(model, script):
        for chosen, values in zip(batches, _mapped(run, batches, workers), strict=True):
            effects[chosen] = values.cpu()
            done += len(chosen)
            if how.progress is not None:
                how.progress(max(0, done - _TRIALS), len(cases) - _TRIALS)
    plain = metric(baseline.logits, reference)[0].cpu()
    return _settled(
        effects[_TRIALS:], plain, effects[:_TRIALS], torch.finfo(baseline.logits.dtype).eps
    )


def _trials(baseline: Baseline, cases: Sequence[SweepCase]) -> list[SweepCase]:
    """Return cases that move the first changed site by one rounding error."""
    site = min({case.site for case in cases}, key=baseline.order.index)
    dtypes = (baseline.values[site].dtype, baseline.logits.dtype)
    precision = max(torch.finfo(dtype).eps for dtype in dtypes)

    def move(number: int, value: Tensor) -> None:
        generator = seeds.generator(number, "effects", "rounding")
        signs = torch.randint(2, value.shape, generator=generator) * 2 - 1
        # NaN at padded queries
        largest = value.abs().amax(-1, keepdim=True).nan_to_num(0.0, 0.0)
        value += precision * largest * signs.to(value)

    return [SweepCase(site, partial(move, number)) for number in range(_TRIALS)]


def _settled(values: Tensor, plain: Tensor, tried: Tensor, precision: float) -> Tensor:
    """Return the plain number for cases that differ from it by no more than rounding.

    A row that the trials happened not to move takes the bound of the median row, and at least one
    rounding step of the metric itself.
    """
    moved = (tried - plain).abs().amax(0)
    floor = torch.maximum(_MARGIN * torch.maximum(moved, moved.median()), precision * plain.abs())
    return torch.where((values - plain).abs() <= floor, plain, values)


def known_before(baseline: Baseline, site: str, times: int) -> dict[str, Callable[[], Tensor]]:
    """Return the values of the blocks and attentions before `site`, which cannot change."""
    writers: dict[str, Callable[[], Tensor]] = {}
    for earlier, value in baseline.values.items():
        if earlier == site:
            break
        if site_suffix(earlier) in ("heads", "residual_after"):
            writers[earlier] = lambda value=value: copies(value, times)  # type: ignore[misc]
    return writers


def copies(value: Tensor, times: int) -> Tensor:
    """Repeat a value (row, …) `times` times: (copy · row, …)."""
    return value.unsqueeze(0).expand(times, *value.shape).flatten(0, 1)


def side_by_side(value: Tensor, writes: Sequence[Callable[[Tensor], object]]) -> Tensor:
    """Apply each function to its own copy of a value (row, …): (copy · row, …)."""
    changed = value.unsqueeze(0).repeat(len(writes), *[1] * value.dim())
    for copy, write in zip(changed, writes, strict=True):
        write(copy)
    return changed.flatten(0, 1)


def _logits(
    model: nn.Module,
    script: Script,
    baseline: Baseline,
    cases: Sequence[SweepCase],
    num_last: int | None,
) -> Tensor:
    """Compute the cases of one site in one pass: the logits, (case · row, …)."""
    site, times = cases[0].site, len(cases)
    value = side_by_side(baseline.values[site], [case.write for case in cases])
    tail = find_tail(model, baseline, num_last, times, site)
    known = known_before(baseline, site, times)
    if site_suffix(site) in ("heads", "residual_after"):
        known[site] = lambda: value
    script.known, script.keep, script.tail = known, frozenset(), tail
    # Also where it is supplied: not every part asks for known values.
    script.change = {site: value}
    if tail is not None:
        script.keep = frozenset({tail.enters})
        if site in (tail.heads, tail.leaves):
            script.change = {}
    script.kept.clear()
    call = baseline.call.repeated(times)
    # a case that changes the logits, or a module that may make them, needs all of them
    is_whole = site_suffix(site) in ("logits", "result")
    if num_last is not None and not is_whole and isinstance(model, Decoder | Pretrained):
        call = dataclasses.replace(call, options={**model.last_alone(num_last), **call.options})
    with torch.no_grad():  # which holds for one thread
        return call(model)


def _batches(cases: Sequence[SweepCase], most: int, workers: int) -> Iterator[list[int]]:
    """Split the cases into even batches of one site each, of at most `most` cases."""
    by_site: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        by_site.setdefault(case.site, []).append(index)
    for chosen in by_site.values():
        number = -(-len(chosen) // min(most, -(-len(chosen) // workers)))
        yield from (part.tolist() for part in torch.tensor(chosen).tensor_split(number))


def _workers(model: nn.Module, baseline: Baseline, num_cases: int, threads: int | None) -> int:
    if baseline.logits.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return 1  # autocast holds for one thread alone
    if threads is None:
        threads = 1
        streams = [value for site, value in baseline.values.items() if site_suffix(site) != "heads"]
        positions = max((value.shape[1] for value in streams), default=1)
        multiply_adds = count_numbers(model.parameters()) * positions * baseline.call.num_rows
        if multiply_adds > _WORTH_A_THREAD:
            threads = torch.get_num_threads()
    return max(1, min(threads, num_cases))


def _mapped(
    run: Callable[[list[int]], Tensor], batches: Sequence[list[int]], workers: int
) -> Iterator[Tensor]:
    """Run the batches in order, several at once, each on one thread."""
    if workers == 1:
        yield from map(run, batches)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(workers)
    try:
        # A context for each: what holds in a `with` here shall hold there.
        contexts = [contextvars.copy_context() for _ in batches]
        yield from pool.map(lambda context, batch: context.run(run, batch), contexts, batches)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)
