"""The training loop, for one model or a thousand: sample, step, evaluate, keep the best, write
checkpoints.

It knows neither tasks nor reports: the caller gives what a member learns from, a loss, an
evaluator, and places to write to. How the members lie in memory and what computes their steps is
the layout's business (`train/layouts`).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core.sizes import count_bytes
from attnlab.core.store import check_room, explained, locked
from attnlab.errors import not_none, require_known
from attnlab.train.checkpoint import Checkpoint, Pace, latest_checkpoint, tidy, write_checkpoint
from attnlab.train.compatibility import Description, describe_training, read_history, versions
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.faults import NotFinite, first_not_finite
from attnlab.train.history import Evaluation, History, MetricsLine, plain_evaluations, summary
from attnlab.train.interrupts import DeferredSignal, held_back
from attnlab.train.layouts.choose import choose_layout
from attnlab.train.layouts.layout import Batches, Layout, Loss, StepResults
from attnlab.train.layouts.sequential import batch_of
from attnlab.train.layouts.update import MOMENTS
from attnlab.train.layouts.vmap import over_members
from attnlab.train.members import Member as Member
from attnlab.train.members import Sampler as Sampler
from attnlab.train.members import Trained as Trained
from attnlab.train.members import TrainResult as TrainResult
from attnlab.train.members import common_config
from attnlab.train.observer import Observer, SilentObserver
from attnlab.train.schedule import Schedule, is_evaluated, span_at


def train_together(
    members: Sequence[Member],
    loss: Loss,
    *,
    stop: Callable[[Sequence[Evaluation]], bool] | None = None,
    observer: Observer | None = None,
    folder: Path | None = None,
    record: Callable[[int, MetricsLine], None] | None = None,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    num_threads: int | None = None,
) -> TrainResult:
    """Train members side by side, leaving each with its best weights.

    Each member takes the steps that it would take alone, but for rounding. A long training makes
    that grow until the weights are others, as it does between any two layouts; see "Engines" in
    benchmarks/README.md.

    Args:
        members: of one shape.
        loss: called as loss(model, *batch), the mean loss in nats.
        stop: called with a member's evaluations so far, the last of them new; True ends the
            member's training, and the training ends when all members have ended.
        observer: receives the progress.
        folder: of the checkpoints (`Pace` says how often): a training that finds one resumes from
            it, to the bit, and a finished one returns its result. None writes nothing.
        record: called with each line of metrics as it comes, and the number of its member.
        layout, engine: how steps are computed, see `choose_layout`.
        num_threads: torch's threads meanwhile; 1 is quickest for tiny models. (Blocks of the
            compiled layout `simd` are divided among the threads that torch had before.)

    Raises:
        NotFinite: the loss of every member is no longer finite; the last good checkpoint is kept.
        CouldNotRun: the folder holds checkpoints of another training, or damaged ones alone; or it
            cannot be written.
        KeyboardInterrupt: Ctrl-C came; where there is a folder, a checkpoint of the last step is in
            it.
    """
    require_known("layout", layout, get_args(LayoutName))
    require_known("engine", engine, get_args(EngineName))
    training = _Training(members, loss, stop, observer or SilentObserver(), folder, record)
    with ExitStack() as stack:
        checkpoint = None
        if folder is not None:
            with explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder))
            tidy(folder)
            checkpoint = latest_checkpoint(folder, training.observer.tell)
        if num_threads is None and checkpoint is not None:
            num_threads = checkpoint.threads
        stack.enter_context(using_threads(num_threads))
        return training.run(checkpoint, layout, engine)


@dataclass
class _Training:
    """A training while it runs."""

    members: Sequence[Member]
    loss: Loss
    stop: Callable[[Sequence[Evaluation]], bool] | None
    observer: Observer
    folder: Path | None
    record: Callable[[int, MetricsLine], None] | None

    def __post_init__(self) -> None:
        members = self.members
        self._config = common_config(members)
        self._configs = [member.config for member in members]
        self._models = [member.model for member in members]
        self._evaluators = [member.evaluate for member in members]
        self._schedule = Schedule(self._configs)
        self._history = History(len(members))
        self._best: dict[str, Tensor] = {}
        self._told = 0  # how many times of the history went to `record`
        self._since_note: list[Tensor] = []
        self._has_checkpoint = False
        self._workers = torch.get_num_threads()  # before `num_threads` limits torch's own
        self._evaluate_all: Callable[[dict[str, Tensor]], Evaluation] | None = None
        if len(members) > 1 and len(set(map(id, self._evaluators))) == 1:
            self._evaluate_all = over_members(self._models, members[0].evaluate)

    def run(
        self, checkpoint: Checkpoint | None, layout_name: LayoutName, engine: EngineName
    ) -> TrainResult:
        """Train until the end, from the beginning or from a checkpoint."""
        first, end = span_at(self._config, 0)
        batches = self._sample(first, end)
        noise = [member.noise for member in self.members]
        self._description: Description | None = None
        if self.folder is not None:
            self._description = describe_training(self._configs, noise, batches)
        done = 0
        if checkpoint is not None:
            done, layout_name, engine = self._remember(checkpoint)
        if self._is_finished(done):
            return self._finish(layout_name)
        layout = self._lay_out(layout_name, engine, noise, batches)
        if checkpoint is not None:
            if (layout.name, layout.is_compiled) != (layout_name, engine == "compiled"):
                self.observer.tell(
                    f"It began with the layout {layout_name}, {engine}: the last digits may differ."
                )
            layout.load_state(checkpoint.tensors)
        self._check_room(layout)
        with held_back() as held:
            self._advance(done, layout, held)
        return self._finish(layout.name)

    def _lay_out(
        self, name: LayoutName, engine: EngineName, noise: Sequence[int], batches: Sequence[Batches]
    ) -> Layout:
        return choose_layout(
            self._models,
            self._configs,
            self.loss,
            noise=noise,
            example=batches,
            layout=name,
            engine=engine,
            workers=self._workers,
            tell=self.observer.tell,
        )

    def _advance(self, done: int, layout: Layout, held: DeferredSignal) -> None:
        """Take all remaining steps."""
        pace = Pace()
        while not self._is_finished(done):
            first, end = span_at(self._config, done)
            batches = [_without(stream, done - first) for stream in self._sample(first, end)]
            progress = layout.advance(batches, self._schedule.rates(done, end), done, held.came)
            start, done = done, done + len(progress.losses)
            self._find_faults(progress, start, batches, layout)
            self._since_note.append(progress.losses)
            if done == end:
                self._note(done, progress, layout)
            if self._is_finished(done) or held.came() or pace.is_due():
                began = time.monotonic()
                self._save(done, layout)
                pace.saved(time.monotonic() - began)
            if held.came():
                held.deliver()

    def _sample(self, first: int, end: int) -> list[Batches]:
        return [member.sample(first, end - first) for member in self.members]

    def _is_finished(self, done: int) -> bool:
        return done >= self._config.steps or None not in self._history.ends

    def _find_faults(
        self, progress: StepResults, start: int, batches: Sequence[Batches], layout: Layout
    ) -> None:
        """End the members whose loss or gradient was not finite; they keep the state before that
        step."""
        is_bad = ~(torch.isfinite(progress.losses) & torch.isfinite(progress.norms))
        if not bool(is_bad.any()):
            return
        weights = layout.parameters()
        for place in is_bad.any(0).nonzero().flatten().tolist():
            if not self._history.is_active(place):
                continue
            index = int(is_bad[:, place].int().argmax())
            step = start + index
            model = self._hold(place, weights).train()
            with seeds.isolated(self.members[place].noise, "noise", step):
                culprit = first_not_finite(model, self.loss, batch_of(batches[place], index))
            value, norm = float(progress.losses[index, place]), float(progress.norms[index, place])
            what = f"loss {value:g}, gradient norm {norm:g}; first in {culprit}"
            self._end(place, step, f"at step {step + 1:,} ({what})")

    def _end(self, member: int, step: int, fault: str) -> None:
        self._history.ends[member], self._history.faults[member] = step, fault
        if None in self._history.faults:
            return
        what = f"no training is finite: the last broke {fault}"
        if len(self.members) == 1:
            what = f"the training was no longer finite {fault}"
        if self._has_checkpoint:
            what += "; the last good checkpoint is kept"
        raise NotFinite(f"{what}. Try a smaller learning_rate.")

    def _note(self, step: int, progress: StepResults, layout: Layout) -> None:
        """Record the loss since the last note, and evaluate if it is time."""
        losses = torch.cat(self._since_note).double().mean(0)
        self._since_note.clear()
        rates = self._schedule.rates(step - 1, step)[0]
        self._history.note(step, losses, progress.norms[-1], rates)
        self.observer.step(step, self._config.steps, summary(losses))
        if is_evaluated(self._config, step):
            self._evaluate(step, layout)
        self._tell_lines()

    @torch.no_grad()
    def _evaluate(self, step: int, layout: Layout) -> None:
        history = self._history
        weights = layout.parameters()
        active = list(filter(history.is_active, range(len(self.members))))
        history.evaluated_steps.append(step)
        better = []
        for member, evaluation in zip(active, self._evaluations_of(weights, active), strict=True):
            if not all(map(math.isfinite, evaluation.figures.values())):
                self._end(member, step, f"at step {step:,} (evaluated {dict(evaluation.figures)})")
                continue
            best = history.best(member)
            if best is None or evaluation.score > best[1].score:
                better.append(member)
            history.evaluations[member].append(evaluation)
            if self.stop is not None and self.stop(history.evaluations[member]):
                history.ends[member] = step
        self._keep_best(weights, better)
        self.observer.step(step, self._config.steps, self._seen())

    def _keep_best(self, weights: Mapping[str, Tensor], better: list[int]) -> None:
        """Keep the weights of the members that are better than before; at first, of all."""
        if not self._best:
            self._best = {name: value.detach().clone() for name, value in weights.items()}
        elif better:
            for name, value in weights.items():
                best_so_far = self._best[name]  # on the CPU after a checkpoint
                best_so_far[better] = value.detach()[better].to(best_so_far.device)

    def _evaluations_of(self, weights: dict[str, Tensor], active: list[int]) -> list[Evaluation]:
        if self._evaluate_all is not None:
            try:
                return plain_evaluations(self._evaluate_all(weights), active)
            except (RuntimeError, ValueError, TypeError):
                self._evaluate_all = None  # it reads the numbers in Python, which vmap forbids
        evaluations = []
        for member in active:
            evaluations += plain_evaluations(
                self._evaluators[member](self._hold(member, weights).eval())
            )
        return evaluations

    def _seen(self) -> dict[str, float]:
        """Summarize the last evaluations for the observer: one model's figures, or means and the
        share that is done."""
        last = [evaluations[-1].figures for evaluations in self._history.evaluations if evaluations]
        seen = {}
        for name in self._history.figures():
            seen[name] = sum(figures[name] for figures in last) / len(last)
        if len(self.members) > 1 and self.stop is not None:
            # A member that broke has ended too, without having solved anything.
            solved = self._history.faults.count(None) - self._history.ends.count(None)
            seen["solved"] = solved / len(self.members)
        return seen

    @torch.no_grad()
    def _hold(self, member: int, weights: Mapping[str, Tensor]) -> nn.Module:
        """Copy a member's weights into its model."""
        model = self._models[member]
        state = model.state_dict()
        for name, value in weights.items():
            if state[name].data_ptr() != value[member].data_ptr():
                state[name].copy_(value[member])
        return model

    def _tell_lines(self) -> None:
        """Pass on the lines of metrics that were not passed on yet."""
        before, self._told = self._told, len(self._history.steps)
        if self.record is not None:
            for noted in range(before, self._told):
                for member, line in self._history.lines_of(noted):
                    self.record(member, line)

    def _check_room(self, layout: Layout) -> None:
        if self.folder is not None:
            tensors = (*layout.state().values(), *layout.parameters().values())
            size = count_bytes(tensors)
            check_room(self.folder, 3 * size + 2**16, "a training of this size")

    def _save(self, done: int, layout: Layout) -> None:
        if self.folder is None:
            return
        tensors, facts = self._history.to_state()
        tensors |= layout.state()
        # Moments of parameters that get no gradient are zero.
        for part in MOMENTS[self._config.optimiser]:
            for name, _ in self._models[0].named_parameters():
                blank = torch.zeros_like(tensors[f"model.{name}"])
                tensors.setdefault(f"{part}.{name}", blank)
        for name, value in self._best.items():
            tensors[f"best.{name}"] = value
        if self._since_note:
            tensors["since_note"] = torch.cat(self._since_note)
        facts |= vars(not_none(self._description))
        facts |= {"versions": versions(), "threads": torch.get_num_threads()}
        facts |= {"step": done, "layout": layout.name, "is_compiled": layout.is_compiled}
        write_checkpoint(self.folder, done, tensors, facts)
        self._has_checkpoint = True

    def _remember(self, checkpoint: Checkpoint) -> tuple[int, LayoutName, EngineName]:
        """Restore all but the layout's state, and pass on the metrics until then; return step and
        layout."""
        tensors, facts = checkpoint.tensors, checkpoint.facts
        about, folder = not_none(self._description), not_none(self.folder)
        self._history = read_history(checkpoint, about, self._models, folder)
        before, now = facts["versions"], versions()
        if before != now:
            self.observer.tell(
                f"It began with {_listed(before)}, now it is {_listed(now)}: the last digits may "
                "differ."
            )
        for name, tensor in tensors.items():
            if name.startswith("best."):
                self._best[name.removeprefix("best.")] = tensor
        if "since_note" in tensors:
            self._since_note = [tensors["since_note"]]
        self._has_checkpoint = True
        self._tell_lines()
        return facts["step"], facts["layout"], "compiled" if facts["is_compiled"] else "eager"

    def _finish(self, layout: str) -> TrainResult:
        """Leave each model with its best weights."""
        trained: list[Trained | None] = [None] * len(self._models)
        for member, fault in enumerate(self._history.faults):
            # A member that diverged before its first evaluation has its last good weights.
            self._hold(member, self._best).eval()
            best = self._history.best(member)
            if best is not None and fault is None:
                trained[member] = Trained(*best, self._history.lines(member))
        return TrainResult(trained, self._history, layout)


def _without(batches: Batches, count: int) -> Batches:
    """Skip the first batches."""
    if isinstance(batches, list):
        return batches[count:]
    return tuple(part[count:] for part in batches)


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in names.items())


@contextmanager
def using_threads(number: int | None) -> Iterator[None]:
    """Let torch use so many threads within the `with`; None leaves it as it is."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
