"""The fixed table: its models, their training, decoding, scrambling and attention."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.display import plural
from attnlab.errors import not_none
from attnlab.experiments.experiment import MetricLine, Problem, RunContext
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.experiments.lookup.trainer import train_problem
from attnlab.look.recording import record
from attnlab.models.config import PositionKind
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import generate
from attnlab.tasks import lookup as task
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Sampler

KINDS = ("key", "value", "other words", "padding")
"""The kinds of source tokens that a head attends to."""


@dataclass(frozen=True)
class ScrambleResult:
    """One model on every order of every source.

    outputs_changed: how many of num_orders decoded outputs differ from those of the source itself.
    difference32, difference64: the largest difference of a logit, in float32 and in float64.
    """

    outputs_changed: int
    num_orders: int
    difference32: float
    difference64: float


class ProbeAnswers(NamedTuple):
    """How many models answer a mismatched pair with the value shown, the key's own, or another."""

    key: str
    shown: str
    own: str
    follow_shown: int
    say_own: int
    other: int


@dataclass(frozen=True)
class TableModel:
    """One trained model, and what was measured of it.

    number: of its seed and data. metrics: of its training; none if that diverged. masses: see
    `measure_masses`.
    """

    number: int
    model: EncoderDecoder
    split: task.SourceSplit
    metrics: Sequence[MetricLine]
    scrambled: ScrambleResult
    masses: Tensor

    @property
    def num_steps(self) -> int:
        """The steps of its training; 0 if that diverged."""
        return int(self.metrics[-1]["step"]) if self.metrics else 0


@dataclass(frozen=True)
class FixedTable:
    """The models of the fixed table, their controls, and how the models answer mismatched pairs."""

    models: list[TableModel]
    controls: list[TableModel]
    probed: list[ProbeAnswers]

    def weights_on(self, kind: int) -> list[float]:
        """Return each model's mean weight over its heads on one of `KINDS`, at `[SOS]`."""
        return [float(model.masses[:, 0, kind].mean()) for model in self.models]


def build_model(
    config: LookupConfig, seed: int, index: int = 0, *, encoder_positions: PositionKind = "none"
) -> EncoderDecoder:
    """Make one model with its initial weights."""
    with seeds.isolated(seed, NAME, "model", index):
        return EncoderDecoder(config.model_config(encoder_positions=encoder_positions))


def split_of(config: LookupConfig, seed: int, index: int = 0) -> task.SourceSplit:
    """Draw the data set of one model."""
    return task.make_split(config.samples, seeds.generator(seed, NAME, "data", index))


def learner(model: EncoderDecoder, config: LookupConfig, seed: int, index: int = 0) -> Member:
    """Make the member that trains one model."""
    split, reads_sets = split_of(config, seed, index), _reads_sets(model)
    sample = _make_sampler(split.train, config, seed, index, reads_sets=reads_sets)
    evaluate = _make_evaluator(split.validation, reads_sets=reads_sets)
    return Member(model, config.train_config(), sample, evaluate)


def problem_of(config: LookupConfig, members: list[Member]) -> Problem:
    """Make the problem that members learn.

    A training ends after `patience` epochs in a row with every validation sample right.
    """
    patience = config.patience

    def stop(evaluations: Sequence[Evaluation]) -> bool:
        last = evaluations[-not_none(patience) :]
        return len(last) == patience and all(map(_is_solved, last))

    words = range(1, task.all_sources().shape[1] + 1)
    return Problem(
        members,
        make_loss(config, reads_sets=_reads_sets(members[0].model)),
        stop if patience else None,
        _is_solved,
        positions=("start", "answer"),
        sources=[f"word {number}" for number in words],
    )


def _is_solved(evaluation: Evaluation) -> bool:
    return evaluation.figures["accuracy"] == 1.0


def make_loss(config: LookupConfig, *, reads_sets: bool) -> Callable[..., Tensor]:
    """Return the loss of a batch as it is drawn.

    To a model without positions all orders of the same words are one row, so a batch is given as
    the counts of three rows, with the same gradient but for rounding; a model with positions is
    given the rows themselves.
    """
    if not reads_sets:
        return lambda model, source, target_input, wanted: _mean_loss(
            model,
            task.LookupBatch(
                source, source != task.PAD, target_input, wanted, target_input != task.PAD
            ),
        )
    rows = task.make_batch(_sets(), length=config.pad_to)
    return lambda model, times: _mean_loss(model, rows, times)


def train(config: LookupConfig, context: RunContext, main: EncoderDecoder) -> FixedTable:
    """Train `main`, further models and the controls, each on data of its own, and measure them.

    Raises:
        NotFinite: the training of every model diverged.
    """
    seed = context.seed
    others = [build_model(config, seed, index) for index in range(1, config.seeds)]
    controls = []
    for index in range(config.control_seeds):
        positions = config.control_positions
        controls.append(build_model(config, seed, index, encoder_positions=positions))
    main_config = replace(config, patience=config.own_patience)
    more = f"the same table, {len(others)} more {plural(len(others), 'seed')}"
    trained: list[Trained | None] = []
    for name, stage, how, models, first in (
        ("fixed", "a fixed table, this run's model", main_config, [main], 0),
        ("fixed-others", more, config, others, 1),
        ("fixed-control", "the control, with positions", config, controls, 0),
    ):
        if models:
            context.stage(stage)
            members = [learner(model, how, seed, at) for at, model in enumerate(models, first)]
            trained += train_problem(context, name, problem_of(how, members), name)
    context.stage("every order of every source")
    measured = []
    numbers = [*range(config.seeds), *range(config.control_seeds)]
    for number, model, result in zip(numbers, [main, *others, *controls], trained, strict=True):
        measured.append(measure_scrambling(config, seed, number, model, result))
        context.step(len(measured), len(numbers))
    return FixedTable(measured[: config.seeds], measured[config.seeds :], probe([main, *others]))


def measure_scrambling(
    config: LookupConfig, seed: int, number: int, model: EncoderDecoder, trained: Trained | None
) -> TableModel:
    """Scramble the sources of a trained model, and see where its attention goes."""
    split, metrics = split_of(config, seed, number), list[MetricLine]()
    if trained is not None:
        metrics = trained.metrics
    masses = measure_masses(model, split.test)
    return TableModel(number, model, split, metrics, scramble(model), masses)


def _reads_sets(model: nn.Module) -> bool:
    assert isinstance(model, EncoderDecoder)
    return model.config.encoder_positions == "none"


def _make_sampler(
    sources: Tensor, config: LookupConfig, seed: int, index: int, *, reads_sets: bool
) -> Sampler:
    """Return the data of a training, with a new random order of the samples in each epoch.

    The last samples of an epoch, too few for a batch, are batched with the first of the next.
    """
    number, size = len(sources), config.batch_size
    which = _which_set(sources)
    batch = task.make_batch(sources, length=config.pad_to)

    @functools.lru_cache(maxsize=2)
    def order(epoch: int) -> Tensor:
        return torch.randperm(number, generator=seeds.generator(seed, NAME, "order", index, epoch))

    def sample(first: int, count: int) -> tuple[Tensor, ...]:
        start, end = first * size, (first + count) * size
        epochs = range(start // number, (end - 1) // number + 1)
        passed = torch.cat(list(map(order, epochs)))
        offset = start - epochs[0] * number
        chosen = passed[offset : offset + end - start].view(count, size)
        if reads_sets:
            return (F.one_hot(which[chosen], len(_sets())).sum(1),)
        return batch.source[chosen], batch.target_input[chosen], batch.target_output[chosen]

    return sample


@functools.cache
def _sets() -> Tensor:
    """List one source of each set of words: (3, 5)."""
    return task.all_sources()[:: len(task.all_sources()) // len(task.FACTS)]


def _which_set(sources: Tensor) -> Tensor:
    """Number the set of words that each source is an order of, as in `_sets`: (batch,)."""
    return (task.key_of(sources).unsqueeze(-1) == task.key_of(_sets())).int().argmax(-1)


def _make_evaluator(sources: Tensor, *, reads_sets: bool) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation of a model: its accuracy on the validation samples, then its loss.

    Greedy decoding is right when each token is the likeliest after the right ones before it.
    Distinct samples are computed once; a model without positions is given each set of words once.
    """
    if reads_sets:
        rows, times = _sets(), torch.bincount(_which_set(sources), minlength=len(_sets()))
    else:
        rows, times = torch.unique(sources, dim=0, return_counts=True)
    batch = task.make_batch(rows)

    def evaluate(model: nn.Module) -> Evaluation:
        logits = model(batch.source, batch.target_input)
        losses = F.cross_entropy(logits.transpose(1, 2), batch.target_output, reduction="none")
        loss = losses.mean(-1)
        is_right = (logits.argmax(-1) == batch.target_output).all(-1)
        accuracy = (is_right.double() * times).sum() / times.sum()
        mean = (loss * times).sum() / times.sum()
        return Evaluation((accuracy, -mean), {"accuracy": accuracy, "validation_loss": mean})  # type: ignore[arg-type, dict-item]

    return evaluate


def _mean_loss(model: nn.Module, batch: task.LookupBatch, times: Tensor | None = None) -> Tensor:
    """Return the mean next-token cross-entropy over the real tokens of the targets, teacher-forced.

    times (batch,): how often each row counts; None counts each once.
    """
    source, source_real, target_input, wanted, target_real = batch
    logits = model(
        source, target_input, real=source_real, target_mask=target_real[:, None, None, :]
    )
    losses = F.cross_entropy(
        logits.transpose(1, 2), wanted, ignore_index=task.PAD, reduction="none"
    )
    counts = target_real if times is None else target_real * times.unsqueeze(-1)
    return (losses * counts).sum() / counts.sum()


@torch.no_grad()
def greedy_decode(model: EncoderDecoder, sources: Tensor) -> Tensor:
    """Decode each source until `[EOS]`: (batch, length) -> (batch, at most 9), without `[SOS]`."""
    start = torch.full((len(sources), 1), task.SOS)
    predictor = model.conditioned(sources)
    return generate(predictor, start, task.MAX_LENGTH - 1, stop=task.EOS).tokens[:, 1:]


def is_right(model: EncoderDecoder, sources: Tensor) -> Tensor:
    """Which sources are decoded exactly right, the value and then `[EOS]`? (batch,) boolean."""
    rows, places = torch.unique(sources, dim=0, return_inverse=True)
    decoded, wanted = greedy_decode(model, rows), task.target_output(task.right_answer(rows))
    same = decoded[:, : wanted.shape[1]] == wanted[:, : decoded.shape[1]]
    return (same.all(-1) & (decoded.shape[1] >= wanted.shape[1]))[places]


def probe(models: list[EncoderDecoder]) -> list[ProbeAnswers]:
    """Ask models about keys beside values that are not theirs: copied, or looked up by the key?"""
    answered = []
    for key, key_value in task.FACTS.items():
        for shown in task.FACTS.values():
            if shown in (key, key_value):
                continue
            source = task.parse(f"NAME COLOR {key} ITEM {shown}").unsqueeze(0)
            said = [task.VOCABULARY[int(greedy_decode(model, source)[0, 0])] for model in models]
            both = said.count(shown), said.count(key_value)
            answered.append(ProbeAnswers(key, shown, key_value, *both, len(said) - sum(both)))
    return answered


@torch.no_grad()
def scramble(model: EncoderDecoder) -> ScrambleResult:
    """Compare the model's output on every order of every source with that on the source itself."""
    sources = task.all_sources()
    # (72, 120, 5); the first order is the source itself.
    orders = torch.stack(list(map(task.permutations, sources)))
    # Different sources have orders in common: each is computed once.
    rows, place = torch.unique(orders.flatten(0, 1), dim=0, return_inverse=True)
    place = place.view(orders.shape[:2])
    decoded = greedy_decode(model, rows)[place]
    target_input = task.target_input(task.right_answer(rows))

    def difference(model: EncoderDecoder) -> float:
        logits = model(rows, target_input)[place]
        return float((logits - logits[:, :1]).abs().max())

    changed = int((decoded != decoded[:, :1]).any(-1).sum())
    double = copy.deepcopy(model).double()
    return ScrambleResult(changed, place.numel(), difference(model), difference(double))


@torch.no_grad()
def measure_masses(model: EncoderDecoder, sources: Tensor) -> Tensor:
    """Return the mean cross-attention weight by kind of token: (head, row, kind).

    Heads of all layers; row 0 is the query at `[SOS]`, row 1 the one at the value; kinds as in
    `KINDS`. Sources are padded to the maximal length.
    """
    batch = task.make_batch(sources, length=task.MAX_LENGTH)
    target_input = task.target_input(task.right_answer(sources))
    with record(model, "decoder.layers.*.cross_attention.weights") as recording:
        model(batch.source, target_input, real=batch.source_real)
    # (sample, head, row, key)
    weights = torch.cat(list(recording.values()), 1).double()
    is_key = batch.source == task.key_of(sources).unsqueeze(-1)
    is_value = batch.source == task.right_answer(sources).unsqueeze(-1)
    is_padding = ~batch.source_real
    kinds = torch.stack((is_key, is_value, ~(is_key | is_value | is_padding), is_padding)).double()
    return torch.einsum("shrk,tsk->hrt", weights, kinds) / len(sources)
