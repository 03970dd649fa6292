"""Sweeps: many small changes to one pass, each alone, sharing what they have in common.

A case changes what passes one site. Everything that came before that site is as it was, so it is
not computed again: the blocks before give what they gave, and within the block a known attention is
not attended. Many cases at one site lie side by side as rows of one batch. Where only the last
positions of a decoder are asked for, its last block and its logits are computed for these alone.
All of it is exact: each case is what it would be by itself, but for rounding.

What is no more than rounding is no effect. How far rounding moves the metric of an input is tried
out: the value at the first site that a case changes is moved by one rounding, in directions drawn
at random, several times over, and the model carries that to its output as it carries the rounding
of the cases. A case that moves the metric of an input by no more than `_MARGIN` times the most of
these gets the plain number, to the bit.
"""

import contextvars
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.edits.effects.baseline import Baseline
from attnlab.edits.effects.metrics import Ready
from attnlab.edits.effects.tail import Tail, find_tail, last_alone
from attnlab.edits.where import own_name
from attnlab.errors import WrongUsage
from attnlab.progress import notebook_bar
from attnlab.shapes import require_integer
from attnlab.sites import Hook, installed

# numbers of the widest value: a larger batch takes more memory and, on a processor, no less time
_CACHED = 2**21
_TRIALS = 4  # of rounding
# in 500 random models, controls that change rounding alone went up to 2 times as far as the trials
_MARGIN = 4.0
# multiply-adds of a pass, below which starting threads costs more than they bring
_WORTH_A_THREAD = 2e8


@dataclass(frozen=True)
class How:
    """How a sweep is computed; the numbers are the same, but for rounding.

    budget: bytes that may be taken beside the model; inputs and cases are computed in portions that
    fit. threads: passes computed at once, on a processor; None for as many as torch has, or one
    where the passes are too small for it. progress: is told how many cases are done, and of how
    many; None for a bar in a notebook. Two inputs and one case are computed together in any case,
    whatever the budget: controls make the patterns of one head of two inputs.
    """

    budget: int = 512 * 1024**2
    threads: int | None = None
    progress: Callable[[int, int], None] | None = None

    def portion(self, number: int, portions: int) -> "How":
        """Return how one of several portions of the inputs is computed: it tells its own share of
        the progress."""
        report = self.progress
        if report is None:
            return self
        return dataclasses.replace(
            self, progress=lambda done, total: report(number * total + done, portions * total)
        )


USUAL = How()


def check_how(how: object, title: str) -> How:
    """Return how a sweep is computed, in a notebook with a bar of this title; refuse what is none.

    Raises:
        WrongUsage: a sweep cannot be computed like that.
    """
    if not isinstance(how, How):
        raise WrongUsage(f"how= is a How, such as How(budget=2**30); got {how!r}.")
    require_integer("budget (in bytes)", how.budget)
    if how.threads is not None:
        require_integer("threads", how.threads)
    if how.progress is not None:
        if not callable(how.progress):
            raise WrongUsage(
                "progress is a function of how many are done, and of how many; got "
                f"{how.progress!r}."
            )
        return how
    bar = notebook_bar(title)
    return how if bar is None else dataclasses.replace(how, progress=bar.count)


@dataclass(frozen=True)
class Case:
    """One change: `write` changes, in place, a copy of what passed `site`, (row, …).

    place: what the change is called in results, such as a `Place`.
    """

    site: str
    write: Callable[[Tensor], object]
    place: Any = None


@dataclass
class Script:
    """What happens in one pass.

    known: what is supplied instead of being computed, made when it is asked for. change: what goes
    on in place of a value. keep: the sites whose values are wanted; `kept` holds them, as they
    came, afterwards. tail: how the last block is cut short, if it is.
    """

    known: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)
    change: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    tail: Tail | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)


class Stage(Hook):
    """Plays scripts; one per thread, so that one model runs several passes at once."""

    changes = True

    def __init__(self) -> None:
        self._own = threading.local()

    @contextmanager
    def playing(self, script: Script) -> Iterator[None]:
        """Follow a script in this thread, while the `with` lasts."""
        before, self._own.script = self._script, script
        try:
            yield
        finally:
            self._own.script = before

    @property
    def _script(self) -> Script:
        return getattr(self._own, "script", None) or Script()

    def wants(self, site: str) -> bool:
        """Say whether the script has to do with a site."""
        script = self._script
        return site in script.change or site in script.keep

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Keep the value, and return what the script puts in its place."""
        script = self._script
        if site in script.keep:
            script.kept[site] = value
        return script.change[site](value) if site in script.change else value

    def supply(self, site: str) -> Tensor | None:
        """Return what the script knows already."""
        script = self._script
        known = script.known.get(site)
        if script.tail is None or site != script.tail.leaves:
            return None if known is None else known()
        if known is not None:
            return known()[:, -script.tail.num_last :]
        return self._cut_short(script.tail, script)

    def _cut_short(self, tail: Tail, script: Script) -> Tensor:
        """What the last block gives at the last positions alone."""
        x = script.kept.pop(tail.enters)
        if tail.heads in script.known:
            heads = script.known[tail.heads]()[..., -tail.num_last :, :]
        else:
            heads = tail.attended(x)
        with self.playing(Script(known={tail.heads: lambda: heads})):
            found: Tensor = tail.block(x[:, -tail.num_last :])
        return found


@torch.no_grad()
def sweep(
    model: nn.Module,
    baseline: Baseline,
    cases: Sequence[Case],
    metric: Ready,
    *,
    reference: Tensor | None = None,
    how: How = USUAL,
) -> Tensor:
    """Measure every case: (case, row), in float64; a change below rounding counts as none.

    Args:
        model: the model of the plain pass.
        baseline: the plain pass, with the sites of all cases kept.
        cases: one change each.
        metric: of the baseline's inputs.
        reference: the logits that a divergence is taken from; None for the baseline's.
        how: it is computed; half of the budget is left for the baseline.
    """
    num_rows = baseline.call.num_rows
    if not cases:
        return torch.empty(0, num_rows, dtype=torch.float64)
    if reference is None:
        reference = baseline.logits
    cases = [*_trials(baseline, cases), *cases]
    found = torch.empty(len(cases), num_rows, dtype=torch.float64)
    workers = _workers(model, baseline, len(cases), how.threads)
    most = max(1, how.budget // 2 // (baseline.row_bytes(metric.num_last) * num_rows)) // workers
    if baseline.logits.device.type == "cpu":
        most = min(most, _CACHED // max(1, baseline.hidden * num_rows))
    batches = list(_batches(cases, max(1, most), workers))
    stage, done = Stage(), 0

    def run(chosen: list[int]) -> Tensor:
        some = [cases[index] for index in chosen]
        return metric(_logits(model, stage, baseline, some, metric.num_last), reference)

    with installed(model, stage):
        for chosen, values in zip(batches, _mapped(run, batches, workers), strict=True):
            found[chosen] = values.cpu()
            done += len(chosen)
            if how.progress is not None:
                how.progress(max(0, done - _TRIALS), len(cases) - _TRIALS)
    plain = metric(baseline.logits, reference)[0].cpu()
    return _settled(found[_TRIALS:], plain, found[:_TRIALS], torch.finfo(baseline.logits.dtype).eps)


def _trials(baseline: Baseline, cases: Sequence[Case]) -> list[Case]:
    """Return cases that move the first changed site by one rounding error."""
    site = min({case.site for case in cases}, key=baseline.order.index)
    dtypes = (baseline.values[site].dtype, baseline.logits.dtype)
    precision = max(torch.finfo(dtype).eps for dtype in dtypes)

    def moving(number: int) -> Callable[[Tensor], object]:
        def write(value: Tensor) -> None:
            draw = seeds.generator(number, "effects", "rounding")
            signs = torch.randint(2, value.shape, generator=draw) * 2 - 1
            # NaN where padding looks
            largest = value.abs().amax(-1, keepdim=True).nan_to_num(0.0, 0.0)
            value += precision * largest * signs.to(value)

        return write

    return [Case(site, moving(number)) for number in range(_TRIALS)]


def _settled(values: Tensor, plain: Tensor, tried: Tensor, precision: float) -> Tensor:
    """Put the plain number where a case is no further from it than rounding takes it.

    A row that the trials happened to leave where it was is held to what they did to the middle one
    of the rows, and to a step of the metric itself.
    """
    moved = (tried - plain).abs().amax(0)
    floor = torch.maximum(_MARGIN * torch.maximum(moved, moved.median()), precision * plain.abs())
    return torch.where((values - plain).abs() <= floor, plain, values)


def known_before(baseline: Baseline, site: str, times: int) -> dict[str, Callable[[], Tensor]]:
    """Return which blocks and attentions come before `site` and so cannot change."""
    found: dict[str, Callable[[], Tensor]] = {}
    for earlier, value in baseline.values.items():
        if earlier == site:
            break
        if own_name(earlier) in ("heads", "residual_after"):
            found[earlier] = lambda value=value: copies(value, times)  # type: ignore[misc]
    return found


def copies(value: Tensor, times: int) -> Tensor:
    """Put a value (row, …) side by side so many times: (copy · row, …)."""
    return value.unsqueeze(0).expand(times, *value.shape).flatten(0, 1)


def side_by_side(value: Tensor, writes: Sequence[Callable[[Tensor], object]]) -> Tensor:
    """Change a copy of a value (row, …) by each of these: (copy · row, …)."""
    changed = value.unsqueeze(0).repeat(len(writes), *[1] * value.dim())
    for own, write in zip(changed, writes, strict=True):
        write(own)
    return changed.flatten(0, 1)


def _logits(
    model: nn.Module, stage: Stage, baseline: Baseline, cases: Sequence[Case], num_last: int | None
) -> Tensor:
    """Compute the cases of one site in one pass: the logits, (case · row, …)."""
    site, times = cases[0].site, len(cases)
    value = side_by_side(baseline.values[site], [case.write for case in cases])
    tail = find_tail(model, baseline, num_last, times, site)
    known = known_before(baseline, site, times)
    if own_name(site) in ("heads", "residual_after"):
        known[site] = lambda: value
    change: dict[str, Callable[[Tensor], Tensor]] = {}
    if tail is None or site not in (tail.heads, tail.leaves):
        # Also where it is supplied: not every part asks whether what it computes is known already.
        change[site] = lambda came: value
    keep = frozenset() if tail is None else frozenset({tail.enters})
    call = baseline.call.repeated(times)
    options = {**last_alone(model, num_last, site), **call.options}
    with stage.playing(Script(known, change, keep, tail)), torch.no_grad():
        return dataclasses.replace(call, options=options)(model)


def _batches(cases: Sequence[Case], most: int, workers: int) -> Iterator[list[int]]:
    """Split the cases into batches of one site each, spread evenly."""
    by_site: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        by_site.setdefault(case.site, []).append(index)
    for chosen in by_site.values():
        size = math.ceil(len(chosen) / workers)
        size = math.ceil(size / math.ceil(size / most))
        for start in range(0, len(chosen), size):
            yield chosen[start : start + size]


def _workers(model: nn.Module, baseline: Baseline, num_cases: int, threads: int | None) -> int:
    if baseline.logits.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return 1  # autocast holds for one thread alone
    if threads is None:
        streams = [value for site, value in baseline.values.items() if own_name(site) != "heads"]
        positions = max((value.shape[1] for value in streams), default=1)
        parameters = sum(each.numel() for each in model.parameters())
        is_worth_it = parameters * positions * baseline.call.num_rows > _WORTH_A_THREAD
        threads = torch.get_num_threads() if is_worth_it else 1
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
        # A context of its own for each: what holds in a `with` here shall hold there.
        contexts = [contextvars.copy_context() for _ in batches]
        yield from pool.map(lambda context, each: context.run(run, each), contexts, batches)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)
