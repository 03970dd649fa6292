"""`sorting`: a decoder of 480 parameters learns to sort three letters, and shows how.

Trained on rows `c a b SEP a b c`, it is judged on every input of its domain, held against the least loss that is
possible, and traced step by step. Its queries, keys and values are made from factorised matrices; every option of
the model, the task and the training is a field of `SortingConfig`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.configs import Config, option
from attnlab.draw import figures
from attnlab.errors import WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Findings, Run
from attnlab.look.causality import largest_leak
from attnlab.look.trace import Trace, trace
from attnlab.models.config import PositionKind
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.generation import generate
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.parts.blocks import NormPlace
from attnlab.parts.feed_forward import ActivationKind
from attnlab.parts.norms import NormKind
from attnlab.parts.projections import ProjectionKind
from attnlab.tasks.sequences import SEPARATOR, Rule, SequenceTask
from attnlab.train.loop import Judgement, TrainConfig, Trained, train

__all__ = ["NAME", "SUMMARY", "SortingConfig", "prompt_words", "run", "trace_text"]

NAME = "sorting"
SUMMARY = "a decoder of 480 parameters learns to sort letters, and shows where it looks"

_LOSS_TOLERANCE = 0.05
_MOST_TRACES = 200


@dataclass(frozen=True, kw_only=True)
class SortingConfig(Config):
    """Every option of the experiment."""

    task: Rule = option("sort", "what makes the answer from the letters")
    letters: int = option(3, "size of the alphabet", low=1, high=26)
    length: int = option(3, "letters of an input (of each number, for add)", low=1, high=64)
    d_model: int = option(6, "width of the residual stream", low=1, high=4_096)
    num_heads: int = option(2, "attention heads; they divide d_model", low=1, high=256)
    num_layers: int = option(1, "blocks", low=1, high=48)
    d_ff: int = option(6, "width inside the feed-forward part", low=1, high=16_384)
    projections: ProjectionKind = option("gated", "how queries, keys and values are made")
    rank: int = option(3, "rank of factorised projections", low=1, high=4_096)
    temperature: float = option(1.0, "of the softmax inside factorised projections", low=1e-3, high=1e3)
    positions: PositionKind = option("learned", "how order is told")
    norm: NormKind = option("layer", "which norm")
    norm_place: NormPlace = option("pre", "before a sub-layer, after its sum, or nowhere")
    activation: ActivationKind = option("relu", "between the feed-forward layers")
    bias: bool = option(False, "biases outside the norms")
    dropout: float = option(0.0, "probability of dropping, in training only", low=0.0, high=0.9)
    steps: int = option(15_000, "optimiser steps", low=1, high=10_000_000)
    batch_size: int = option(128, "rows drawn for a step", low=1, high=1_000_000)
    learning_rate: float = option(1e-3, "peak learning rate of AdamW", low=0.0, high=10.0)
    warmup_steps: int | None = option(None, "steps of linear warm-up; none: 500, or a tenth of few steps", low=0)
    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", low=0.0, high=10.0)
    clip: float = option(1.0, "largest norm of the whole gradient", low=1e-9, high=1e9)
    evaluate_every: int = option(500, "steps between two judgements", low=1, high=10_000_000)
    most_judged: int = option(10_000, "inputs judged; a larger domain is sampled", low=1, high=1_000_000)

    def validate(self) -> None:
        """Check what one field alone cannot tell."""
        self.sequence_task()
        self.model_config()
        self.train_config()

    def sequence_task(self) -> SequenceTask:
        """Return the task."""
        return SequenceTask(self.task, letters=self.letters, length=self.length)

    def model_config(self) -> DecoderConfig:
        """Return what the model is told."""
        task = self.sequence_task()
        return DecoderConfig(
            vocab_size=len(task.vocabulary),
            max_length=task.row_length,
            d_model=self.d_model,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            d_ff=self.d_ff,
            activation=self.activation,
            norm=self.norm,
            norm_place=self.norm_place,
            positions=self.positions,
            projections=self.projections,
            rank=self.rank,
            temperature=self.temperature,
            bias=self.bias,
            dropout=self.dropout,
        )

    def train_config(self) -> TrainConfig:
        """Return how the model is trained."""
        warmup_steps = min(500, self.steps // 10) if self.warmup_steps is None else self.warmup_steps
        names = ("steps", "learning_rate", "weight_decay", "clip", "evaluate_every")
        return TrainConfig(warmup_steps=warmup_steps, **{name: getattr(self, name) for name in names})


class Judged(NamedTuple):
    """The model on the inputs it is judged by."""

    prompts: Tensor
    answers: Tensor
    expected: Tensor
    confidences: Tensor
    are_all: bool

    @property
    def correct(self) -> Tensor:
        """Which inputs came out right: (inputs,) boolean."""
        return (self.answers == self.expected).all(-1)


def build_model(config: SortingConfig, seed: int) -> Decoder:
    """Make the model with its initial weights."""
    with seeds.isolated(seed, NAME, "model"):
        return Decoder(config.model_config())


def run(config: SortingConfig, context: Run) -> Findings:
    """Train, judge, trace, and say what holds."""
    task = config.sequence_task()
    model = build_model(config, context.seed)
    context.start(model)
    trained = _trained(model, task, config, context)
    with torch.no_grad():
        judged = _judged(model, task, config, context.seed)
        loss = float(_exact_loss(model, task.rows(judged.prompts)))
    traces = _traces(model, task, judged)
    claims = _claims(model, task, config, judged, loss)
    document = _document(model, task, config, context, trained=trained, judged=judged, loss=loss, traces=traces)
    return Findings(model, claims, document, _figures(task, trained, traces))


def prompt_words(config: SortingConfig) -> str:
    """Say what a person may type."""
    task = config.sequence_task()
    return f"{task.prompt_length} letters from a to {task.vocabulary[-1]}, such as {task.example}"


def trace_text(model: nn.Module, config: SortingConfig, text: str) -> Trace:
    """Trace the model on an input that a person typed."""
    if not isinstance(model, Decoder):
        raise WrongUsage(f"sorting traces a Decoder; got {type(model).__name__}.")
    task = config.sequence_task()
    return _trace(model, task, task.parse(text).unsqueeze(0))[0]


def _trained(model: Decoder, task: SequenceTask, config: SortingConfig, context: Run) -> Trained:
    rows = task.rows(task.all_prompts()) if task.num_prompts <= config.batch_size else None
    fixed, _ = task.prompts_to_judge(min(config.most_judged, 2_000), seeds.generator(context.seed, NAME, "watch"))
    fixed_rows = task.rows(fixed)

    def loss(model: nn.Module, generator: torch.Generator) -> Tensor:
        if rows is None:
            return _exact_loss(model, task.rows(task.sample(config.batch_size, generator)))
        # The batch holds few distinct rows, each several times: the same mean loss from each once, times its count.
        drawn = torch.randint(len(rows), (config.batch_size,), generator=generator)
        counts = torch.bincount(drawn, minlength=len(rows))
        return (_row_losses(model, rows) * counts).sum() / config.batch_size

    def judge(model: nn.Module) -> Judgement:
        accuracy = float((_answers(model, task, fixed)[0] == task.answer(fixed)).all(-1).double().mean())
        loss = float(_exact_loss(model, fixed_rows))
        return Judgement((accuracy, -loss), {"accuracy": accuracy, "domain_loss": loss})

    return train(
        model,
        config.train_config(),
        loss=loss,
        judge=judge,
        generator=seeds.generator(context.seed, NAME, "data"),
        observer=context.observer,
        folder=context.checkpoints,
        record=context.record,
        num_threads=1 if config.d_model <= 64 else None,
    )


def _row_losses(model: nn.Module, rows: Tensor) -> Tensor:
    """Return each row's mean next-token cross-entropy over all its positions: (rows,) nats."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none").mean(-1)


def _exact_loss(model: nn.Module, rows: Tensor) -> Tensor:
    return _row_losses(model, rows).mean()


def _with_separator(prompts: Tensor) -> Tensor:
    return F.pad(prompts, (0, 1), value=SEPARATOR)


def _answers(model: Any, task: SequenceTask, prompts: Tensor, *, use_cache: bool = True) -> tuple[Tensor, Tensor]:
    found = generate(model, _with_separator(prompts), task.answer_length, forbidden=[SEPARATOR], use_cache=use_cache)
    return found.tokens[:, task.prompt_length + 1 :], found.probabilities.amax(-1).amin(-1)


def _judged(model: Decoder, task: SequenceTask, config: SortingConfig, seed: int) -> Judged:
    prompts, are_all = task.prompts_to_judge(config.most_judged, seeds.generator(seed, NAME, "judge"))
    answers, confidences = _answers(model, task, prompts)
    return Judged(prompts, answers, task.answer(prompts), confidences, are_all)


def _trace(model: Decoder, task: SequenceTask, prompts: Tensor) -> list[Trace]:
    return trace(
        model,
        _with_separator(prompts),
        task.answer_length,
        task.vocabulary,
        forbidden=[SEPARATOR],
        num_input=task.prompt_length,
    )


def _traces(model: Decoder, task: SequenceTask, judged: Judged) -> list[Trace]:
    """Trace the wrong inputs first, then the others, up to what a page can hold, in alphabetical order."""
    order = torch.argsort(judged.correct.int(), stable=True)[:_MOST_TRACES].sort().values
    return _trace(model, task, judged.prompts[order])


def _claims(model: Decoder, task: SequenceTask, config: SortingConfig, judged: Judged, loss: float) -> list[Claim]:
    total, right = len(judged.prompts), int(judged.correct.sum())
    which = f"every one of the {total:,} inputs" if judged.are_all else f"every one of {total:,} inputs drawn at random"
    floor = task.loss_floor
    # A sampled domain has a sampled floor: what the draw could have made easier is not a leak.
    slack = 1e-5 if judged.are_all else 0.02
    sample = task.rows(judged.prompts[:64])[:, :-1]
    leak = largest_leak(model, sample)
    by_config, by_model = count_from_config(config.model_config()), count_from_model(model)
    slow, _ = _answers(model, task, judged.prompts[:1_000], use_cache=False)
    different = int((slow != judged.answers[:1_000]).any(-1).sum())
    return [
        Claim(
            "all_inputs_right",
            f"{which} is answered right by greedy generation (task: {config.task})",
            f"{right:,}/{total:,}",
            f"{total:,}/{total:,}",
            right == total,
        ),
        Claim(
            "loss_near_floor",
            "the mean loss comes within 0.05 nats of the least that is possible (the letters before SEP are random)",
            f"{loss:.4f} nats, {loss - floor:+.4f} from the floor",
            f"at most {floor + _LOSS_TOLERANCE:.4f} nats",
            loss <= floor + _LOSS_TOLERANCE,
        ),
        Claim(
            "loss_not_below_floor",
            "the mean loss is not below the least that is possible, as it would be if the future leaked in",
            f"{loss:.4f} nats",
            f"at least {floor:.4f} nats",
            loss >= floor - slack,
        ),
        Claim(
            "causal",
            f"no output depends on a later token: largest derivative over {len(sample)} inputs",
            f"{leak:g}",
            "exactly 0",
            leak == 0.0,
        ),
        Claim(
            "parameters_counted",
            "the parameters of each part, counted by arithmetic, are those the model holds",
            f"{sum(by_model.values()):,} in {len(by_model)} parts",
            f"{sum(by_config.values()):,} in {len(by_config)} parts",
            by_config == by_model,
        ),
        Claim(
            "cache_changes_nothing",
            f"generation with a key/value cache gives the same answers as without ({len(slow):,} inputs)",
            f"{different:,} different",
            "0 different",
            different == 0,
        ),
    ]


def _document(
    model: Decoder,
    task: SequenceTask,
    config: SortingConfig,
    context: Run,
    *,
    trained: Trained,
    judged: Judged,
    loss: float,
    traces: list[Trace],
) -> dict[str, Any]:
    total, right = len(judged.prompts), int(judged.correct.sum())
    counts = count_from_model(model)
    x, y = _curve(trained, "loss")
    x_domain, y_domain = _curve(trained, "domain_loss")
    shown = judged.correct.int().argsort(stable=True)[:_MOST_TRACES].sort().values.tolist()
    return {
        "title": NAME,
        "subtitle": (
            f"A decoder of {sum(counts.values()):,} parameters learns the task “{config.task}” over {config.letters} "
            f"letters; {right:,} of {total:,} {'inputs' if judged.are_all else 'sampled inputs'} come out right."
        ),
        "facts": [
            ["seed", str(context.seed)],
            ["parameters", f"{sum(counts.values()):,}"],
            ["projections", config.projections],
            ["positions", config.positions],
            ["steps", f"{config.steps:,} (best at {trained.best_step:,})"],
            ["loss", f"{loss:.4f} nats"],
            ["least possible", f"{task.loss_floor:.4f} nats"],
        ],
        "sections": [
            {
                "kind": "trace",
                "title": "Step by step",
                "caption": (
                    "Choose an input and step through its answer. At each step the model looks back from the last "
                    "token it knows; each head spreads one unit of weight over the tokens so far (a row of its "
                    "picture), and the next token is the likeliest."
                ),
                "traces": [each.to_mapping() for each in traces],
            },
            {
                "kind": "verdicts",
                "title": f"All {total:,} inputs" if judged.are_all and total == len(shown) else "Inputs",
                "caption": _verdicts_caption(judged, len(shown)),
                "items": [
                    {
                        "input": task.tokens(judged.prompts[index]),
                        "output": task.tokens(judged.answers[index]),
                        "expected": task.tokens(judged.expected[index]),
                        "correct": bool(judged.correct[index]),
                        "confidence": float(judged.confidences[index]),
                    }
                    for index in shown
                ],
            },
            {
                "kind": "lines",
                "title": "Loss",
                "caption": (
                    "Mean cross-entropy over all positions. The letters before SEP are random, and no model can "
                    "predict them; their entropy is the floor that no loss can go below."
                ),
                "x_label": "step",
                "y_label": "loss (nats per token)",
                "series": [
                    {"name": "training (mean of 50 steps)", "x": x, "y": y},
                    {"name": "whole domain" if judged.are_all else "fixed sample", "x": x_domain, "y": y_domain},
                ],
                "levels": [{"name": f"least possible {task.loss_floor:.4f}", "y": task.loss_floor}],
                "y_log": False,
            },
            {
                "kind": "table",
                "title": "Parameters",
                "caption": "Counted in the model, part by part; arithmetic from the settings gives the same.",
                "columns": ["part", "parameters"],
                "rows": [*([part, count] for part, count in counts.items()), ["all", sum(counts.values())]],
            },
            {
                "kind": "table",
                "title": "Settings",
                "caption": "Change any of them with --set name=value.",
                "columns": ["setting", "value", "meaning"],
                "rows": [[each.name, str(asdict(config)[each.name]), each.comment] for each in config.options()],
            },
        ],
    }


def _verdicts_caption(judged: Judged, num_shown: int) -> str:
    total = len(judged.prompts)
    if judged.are_all and num_shown == total:
        return "Every input of the domain, with the model's answer and the least probability among its choices."
    which = "the domain" if judged.are_all else "a random sample of the domain"
    return f"{num_shown:,} of the {total:,} inputs judged ({which}), the wrong ones first among those chosen."


def _curve(trained: Trained, figure: str) -> tuple[list[int], list[float]]:
    lines = [line for line in trained.metrics if figure in line]
    return [line["step"] for line in lines], [line[figure] for line in lines]


def _figures(task: SequenceTask, trained: Trained, traces: list[Trace]) -> Mapping[str, bytes]:
    if not figures.is_available():
        return {}
    floor = task.loss_floor
    loss = figures.curve_figure(
        {"training (mean of 50 steps)": _curve(trained, "loss"), "judged": _curve(trained, "domain_loss")},
        title="Loss against the least possible",
        x_label="step",
        y_label="nats per token",
        levels={f"least possible {floor:.4f}": floor},
    )
    example = next((each for each in traces if "".join(each.input) == task.example), traces[0])
    attention = figures.attention_figure(
        example.to_mapping(), title=f"{' '.join(example.input)} → {' '.join(step.choice for step in example.steps)}"
    )
    return figures.to_files("loss", loss) | figures.to_files("attention", attention)
