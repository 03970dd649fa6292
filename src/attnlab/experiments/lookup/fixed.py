"""The fixed table: models trained on it, decoded, scrambled, and asked where they look."""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.errors import CouldNotRun
from attnlab.experiments.experiment import Run
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.look.causality import largest_change, largest_leak
from attnlab.look.recording import record
from attnlab.models.config import PositionKind
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import generate
from attnlab.tasks import lookup as task
from attnlab.train.loop import Judgement, Trained
from attnlab.train.population import train_population

__all__ = [
    "KINDS",
    "FixedFound",
    "Masses",
    "Member",
    "Probed",
    "Scrambled",
    "build_model",
    "decoder_leak",
    "greedy_decode",
    "is_right",
    "measure_masses",
    "probe",
    "scramble",
    "train_members",
]

KINDS = ("key", "value", "other words", "padding")
"""What a head may look at."""

_CHUNK = 2_000  # samples decoded at once


class Member(NamedTuple):
    """One model of many: its number, its own data, and its training (None where that broke)."""

    number: int
    model: EncoderDecoder
    split: task.Split
    trained: Trained | None


class Scrambled(NamedTuple):
    """One model on every order of every source.

    outputs_changed of num_orders decoded outputs differ from those of the source as it was; difference32 and
    difference64 are the largest between two logits, the model computing in float32 and in float64.
    """

    outputs_changed: int
    num_orders: int
    difference32: float
    difference64: float


class Masses(NamedTuple):
    """Where a model's cross-attention looks, on average over its test samples.

    mean (head, row, kind): heads of all layers; row 0 looks from `[SOS]`, row 1 from the value; kinds as in `KINDS` ·
    largest_error: by how much the weights of any row miss 1 at most · largest_on_padding: of all weights.
    """

    mean: Tensor
    largest_error: float
    largest_on_padding: float


class Probed(NamedTuple):
    """What models answer on a pair that no fact has: of so many models, the value shown, the key's own, or neither."""

    key: str
    shown: str
    own: str
    follow_shown: int
    say_own: int
    other: int


def build_model(
    config: LookupConfig, seed: int, index: int = 0, *, encoder_positions: PositionKind = "none"
) -> EncoderDecoder:
    """Make one model with its initial weights."""
    with seeds.isolated(seed, NAME, "model", index):
        return EncoderDecoder(config.model_config(encoder_positions=encoder_positions))


def train_members(
    config: LookupConfig,
    context: Run,
    models: list[EncoderDecoder],
    *,
    patience: int | None,
    first: int = 0,
) -> list[Member]:
    """Train models side by side, each on a data set of its own, until all have had enough.

    They are counted from `first`.

    Raises:
        CouldNotRun: the training of number 0, which is the run's own, broke.
    """
    splits = [
        task.make_split(config.samples, seeds.generator(context.seed, NAME, "data", index))
        for index in range(first, first + len(models))
    ]
    generators = [seeds.generator(context.seed, NAME, "order", index) for index in range(first, first + len(models))]
    trained = train_population(
        models,
        config.train_config(),
        draw=_Epochs(splits, generators, config, reads_sets=models[0].config.encoder_positions == "none"),
        loss=_loss,
        judge=_Judge(models, splits),
        generators=generators,
        stop=lambda judgement: judgement.figures["perfect_epochs"] >= (patience or config.epochs + 1),
        observer=context.observer,
        num_threads=1,
    )
    if first == 0 and trained[0] is None:
        raise CouldNotRun("the training was no longer finite. Try a smaller learning_rate.")
    return [
        Member(number, model.eval(), split, each)
        for number, (model, split, each) in enumerate(zip(models, splits, trained, strict=True), first)
    ]


class FixedFound(NamedTuple):
    """All that was found of the fixed table: the members with what was measured of each, and the control."""

    members: list[Member]
    scrambled: list[Scrambled]
    masses: list[Masses]
    control_model: EncoderDecoder
    controls: list[Scrambled]
    probed: list[Probed]


class _Epochs:
    """Batches that go through each member's training samples in an order drawn anew for each epoch.

    A batch is rows and how often each is in it. To a reader of sets the orders of the same words are one row, so three
    rows and their numbers are any batch, with the same gradient but for rounding.
    """

    def __init__(
        self, splits: list[task.Split], generators: list[torch.Generator], config: LookupConfig, *, reads_sets: bool
    ) -> None:
        self._rows, self._which = dict[int, task.Batch](), dict[int, Tensor]()
        for generator, split in zip(generators, splits, strict=True):
            rows, which = split.train, torch.arange(len(split.train))
            if reads_sets:
                rows = task.all_sources()[:: len(task.all_sources()) // len(task.FACTS)]
                which = (task.key_of(split.train).unsqueeze(-1) == task.key_of(rows)).int().argmax(-1)
            self._rows[id(generator)], self._which[id(generator)] = task.make_batch(rows, length=config.pad_to), which
        self._left = {key: torch.empty(0, dtype=torch.int64) for key in self._rows}
        self._size, self._reads_sets = config.batch_size, reads_sets

    def __call__(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        key = id(generator)
        rows, which, left = self._rows[key], self._which[key], self._left[key]
        while len(left) < self._size:
            left = torch.cat((left, torch.randperm(len(which), generator=generator)))
        chosen, self._left[key] = which[left[: self._size]], left[self._size :]
        if self._reads_sets:
            return (*rows, torch.bincount(chosen, minlength=len(rows.source)))
        return (*(part[chosen] for part in rows), torch.ones(self._size, dtype=torch.int64))


class _Judge:
    """Each member's validation samples, decoded; and for how many epochs in a row all were right."""

    def __init__(self, models: list[EncoderDecoder], splits: list[task.Split]) -> None:
        self._validation = {id(model): split.validation for model, split in zip(models, splits, strict=True)}
        self._perfect = dict.fromkeys(self._validation, 0)

    def __call__(self, model: nn.Module) -> Judgement:
        assert isinstance(model, EncoderDecoder)
        sources = self._validation[id(model)]
        accuracy = float(is_right(model, sources).double().mean())
        loss = float(_loss(model, *task.make_batch(sources)))
        self._perfect[id(model)] = self._perfect[id(model)] + 1 if accuracy == 1.0 else 0
        figures = {"accuracy": accuracy, "validation_loss": loss, "perfect_epochs": float(self._perfect[id(model)])}
        return Judgement((accuracy, -loss), figures)


def _loss(
    model: nn.Module,
    source: Tensor,
    source_real: Tensor,
    given: Tensor,
    wanted: Tensor,
    target_real: Tensor,
    times: Tensor | None = None,
) -> Tensor:
    """Return the mean next-token cross-entropy over the real tokens of the targets, teacher-forced.

    times (batch,): how often each row counts; None counts each once.
    """
    logits = model(source, given, real=source_real, target_mask=target_real[:, None, None, :])
    losses = F.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=task.PAD, reduction="none")
    counts = target_real if times is None else target_real * times.unsqueeze(-1)
    return (losses * counts).sum() / counts.sum()


@torch.no_grad()
def greedy_decode(model: EncoderDecoder, sources: Tensor, *, real: Tensor | None = None) -> Tensor:
    """Decode each source token by token until `[EOS]`: (batch, length) -> (batch, at most 9) ids, `[SOS]` left out."""
    start = torch.full((len(sources), 1), task.SOS)
    return generate(model.conditioned(sources, real=real), start, task.MAX_LENGTH - 1, stop=task.EOS).tokens[:, 1:]


def is_right(model: EncoderDecoder, sources: Tensor) -> Tensor:
    """Say which sources are decoded exactly right, the value and then `[EOS]`: (batch,) boolean."""
    found = []
    for part in sources.split(_CHUNK):  # type: ignore[no-untyped-call]
        decoded, wanted = greedy_decode(model, part), task.target_output(task.answer(part))
        same = decoded[:, : wanted.shape[1]] == wanted[:, : decoded.shape[1]]
        found.append(same.all(-1) & (decoded.shape[1] >= wanted.shape[1]))
    return torch.cat(found)


def probe(models: list[EncoderDecoder]) -> list[Probed]:
    """Ask models about a key beside a value that is not its own: is the value copied, or the key looked up?"""
    found = []
    for key, own in task.FACTS.items():
        for shown in task.FACTS.values():
            if shown in (key, own):
                continue
            source = task.parse(f"NAME COLOR {key} ITEM {shown}").unsqueeze(0)
            said = [task.VOCABULARY[int(greedy_decode(model, source)[0, 0])] for model in models]
            both = said.count(shown), said.count(own)
            found.append(Probed(key, shown, own, *both, len(said) - sum(both)))
    return found


@torch.no_grad()
def scramble(model: EncoderDecoder) -> Scrambled:
    """Put every order of the words of every distinct source to the model, and compare with the source as it was."""
    sources = task.all_sources()
    orders = torch.stack([task.permutations(source) for source in sources])  # (72, 120, 5); the first is the source
    # Different sources have orders in common: each is computed once.
    rows, place = torch.unique(orders.flatten(0, 1), dim=0, return_inverse=True)
    place = place.view(orders.shape[:2])
    decoded = greedy_decode(model, rows)[place]
    given = task.target_input(task.answer(rows))

    def difference(model: EncoderDecoder) -> float:
        logits = model(rows, given)[place]
        return float((logits - logits[:, :1]).abs().max())

    changed = int((decoded != decoded[:, :1]).any(-1).sum())
    return Scrambled(changed, place.numel(), difference(model), difference(copy.deepcopy(model).double()))


@torch.no_grad()
def measure_masses(model: EncoderDecoder, sources: Tensor) -> Masses:
    """Add up where each head looks, over sources padded to the longest there may be."""
    batch = task.make_batch(sources, length=task.MAX_LENGTH)
    given = task.target_input(task.answer(sources))
    with record(model, "decoder.layers.*.cross_attention.weights") as recording:
        model(batch.source, given, real=batch.source_real)
    weights = torch.cat([recording[site] for site in recording], 1).double()  # (sample, head, row, key)
    is_key = batch.source == task.key_of(sources).unsqueeze(-1)
    is_value = batch.source == task.answer(sources).unsqueeze(-1)
    is_padding = ~batch.source_real
    kinds = torch.stack((is_key, is_value, ~(is_key | is_value | is_padding), is_padding)).double()
    mean = torch.einsum("shrk,tsk->hrt", weights, kinds) / len(sources)
    error = float((weights.sum(-1) - 1).abs().max())
    return Masses(mean, error, float(weights.masked_fill(batch.source_real[:, None, None, :], 0.0).max()))


class _Given(nn.Module):
    """The model as a function of its target alone."""

    def __init__(self, model: EncoderDecoder, sources: Tensor) -> None:
        super().__init__()
        self.model, self._sources = model, sources

    def forward(self, target: Tensor) -> Tensor:
        logits: Tensor = self.model(self._sources, target)
        return logits


def decoder_leak(model: EncoderDecoder) -> tuple[float, float, int]:
    """Ask whether an output of the decoder depends on a later target token.

    Returns:
        the largest derivative, the largest change when later tokens are exchanged, and the number of targets.
    """
    sources = task.all_sources()
    given = task.make_batch(sources).target_input
    target = torch.cat((given, task.key_of(sources).unsqueeze(-1), given), -1)  # longer than in training, up to 5
    seen = _Given(model, sources)
    return largest_leak(seen, target, site="model.decoder.embedding"), largest_change(seen, target), len(target)
