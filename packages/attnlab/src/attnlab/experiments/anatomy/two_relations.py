"""`heads`: what several heads can do that one head of the same width cannot.

The task has two parts: copy half of the channels of the token before, and the other half of the
token before that one. A head has one row of weights for all its channels, so it can copy the one
token, or the other, or blur both. With weights `a` that depend on positions alone, the best linear
read-out of `Σ a_j x_j` leaves an error of `1 - (a_1² + a_2²) / 2‖a‖²`, for tokens of unit variance:
never below ½. Weights that also depend on the content do not have this bound; training shows
whether they help. Two heads of half the width, with the same number of parameters, need one row
each.
"""

import math
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core.sizes import count_numbers
from attnlab.core.stats import Interval, share_interval
from attnlab.display import plural
from attnlab.draw.sections import Heatmap, Level, Lines, MapChoice, Maps, Series
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.parts.attend import weighted_values
from attnlab.parts.heads import MultiHeadAttention, multi_head_attention
from attnlab.parts.positions import Rotary
from attnlab.train.config import TrainConfig
from attnlab.train.faults import NotFinite
from attnlab.train.history import Evaluation
from attnlab.train.loop import Member, Sampler, Trained

_LENGTH, _WIDTH = 6, 8
_COUNTS = (1, 2, 4)
_BATCH, _HELD_OUT = 32, 500
_RATE = 5e-2
_SOLVED = 0.05  # of a variance of 1


@dataclass(frozen=True)
class HeadCountTrial:
    """All seeds with one number of heads."""

    models: list[MultiHeadAttention]
    trained: list[Trained | None]

    @property
    def parameters(self) -> int:
        """The parameters of one model."""
        return count_numbers(self.models[0].parameters())

    @property
    def errors(self) -> list[float]:
        """Each seed's error on held-out tokens; infinity if the training diverged."""
        errors = []
        for trained in self.trained:
            errors.append(math.inf if trained is None else trained.evaluation.figures["error"])
        return errors

    @property
    def num_solved(self) -> int:
        """The number of seeds with an error so small that the task is solved."""
        return sum(error <= _SOLVED for error in self.errors)


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Train attention with one, two and four heads on the same task, over seeds."""
    generator = seeds.generator(context.seed, NAME, "heads", "rows")
    floor = least_error_of_one_row(config.draws, generator)
    trials = {count: train_heads(count, config, context) for count in _COUNTS}
    one, two = trials[1], trials[2]
    solved, total = two.num_solved, config.seeds
    stuck = sum(0.45 <= error <= 0.6 for error in one.errors)
    counts = sorted({trial.parameters for trial in trials.values()})
    numbers: Numbers = {
        "median": median,
        "seeds": total,
        "batch": _BATCH,
        "solved_at": _SOLVED,
        "floor": floor,
        "one": one.errors,
        "two": two.errors,
        "stuck": stuck,
        "solved": solved,
        "share": share_interval(solved, total),
        "parameters": one.parameters,
        "counts": counts,
    }
    lines = Lines(
        series=[_curve(_heads(count), trial) for count, trial in trials.items()],
        levels=[Level(name="least for one row of weights, ½", y=0.5)],
        **WORDS.texts("heads.lines", numbers),
    )
    # Two heads, the most telling case, come first.
    shown = sorted(trials.items(), key=lambda pair: pair[0] != 2)
    x, _ = make_batch(seeds.generator(context.seed, NAME, "heads", "picture"))
    choices = [_choice(_heads(count), trial, x) for count, trial in shown]
    maps = Maps(choices=choices, **WORDS.texts("heads.maps", numbers))
    return PartResult("heads", numbers, _claims(numbers), [lines, maps])


def _claims(numbers: Numbers) -> list[Claim]:
    total, floor, one, two = (numbers[name] for name in ("seeds", "floor", "one", "two"))
    stuck, solved, share = numbers["stuck"], numbers["solved"], numbers["share"]
    wanted, counts = -(-9 * total // 10), numbers["counts"]
    return [
        Claim(
            "one_row_of_weights_is_not_enough",
            "no row of weights leaves an error below one half, even with the best linear read-out "
            "(53 rows; ½ by proof, up to sampling)",
            f"an error of at least {floor:.3f}",
            "0.48 to 0.52",
            0.48 <= floor <= 0.52,
        ),
        Claim(
            "one_head_stays_there",
            "trained on two relations at once, one head of the full width keeps an error of one "
            "half, with each seed",
            f"{stuck}/{total} seeds; errors {min(one):.3f} to {max(one):.3f}",
            f"{total}/{total} seeds; errors 0.45 to 0.60",
            stuck == total,
        ),
        Claim(
            "two_heads_solve_it",
            "trained on the same, two heads of half the width, of as many parameters, bring the "
            f"error to at most {_SOLVED} in at least 9 of 10 seeds",
            f"{solved}/{total} seeds ({share.low:.0%} to {share.high:.0%}); errors {min(two):.4f} "
            f"to {max(two):.4f}; {' and '.join(map(str, counts))} parameters",
            f"at least {wanted}/{total} seeds; as many parameters",
            solved >= wanted and len(counts) == 1,
        ),
    ]


def make_batch(generator: torch.Generator, *sizes: int) -> tuple[Tensor, Tensor]:
    """Draw tokens, (…, length, width), and targets from the third on, (…, length - 2, width)."""
    x = torch.randn(*(sizes or (_BATCH,)), _LENGTH, _WIDTH, generator=generator)
    half = _WIDTH // 2
    return x, torch.cat((x[..., 1:-1, :half], x[..., :-2, half:]), -1)


def make_sampler(seed: int, number: int) -> Sampler:
    """Return the data of one seed's training."""
    return lambda first, count: make_batch(
        seeds.generator(seed, NAME, "heads data", number, first), count, _BATCH
    )


def squared_error(model: nn.Module, x: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean squared error of causal attention on the task; an output of 0 gives 1."""
    output: Tensor = model(x, mask="causal", need_weights=True).output[:, 2:]
    return (output - wanted).square().mean()


def train_heads(num_heads: int, config: AnatomyConfig, context: RunContext) -> HeadCountTrial:
    """Train one attention part for each seed, all seeds together."""
    context.stage(f"heads ({num_heads})")
    held_out = make_batch(seeds.generator(context.seed, NAME, "heads", "judge"), _HELD_OUT)

    def evaluate(model: nn.Module) -> Evaluation:
        error = squared_error(model, *held_out)
        return Evaluation((-error,), {"error": error})  # type: ignore[arg-type, dict-item]  # the training makes numbers

    settings = TrainConfig(
        steps=config.steps,
        learning_rate=_RATE,
        weight_decay=0.0,
        evaluate_every=max(1, config.steps // 10),
    )
    models, members = [], []
    for number in range(config.seeds):
        with seeds.isolated(context.seed, NAME, "heads", number):
            models.append(multi_head_attention(_WIDTH, num_heads, position=Rotary()))
        members.append(Member(models[-1], settings, make_sampler(context.seed, number), evaluate))
    try:
        trained = context.train(f"heads-{num_heads}", members, squared_error, num_threads=1).members
    except NotFinite:
        trained = [None] * len(models)
    return HeadCountTrial(models, trained)


def least_error_of_one_row(draws: int, generator: torch.Generator) -> float:
    """Return the least error of any row of weights, with the best linear read-out.

    The rows are 50 random ones, and those that attend to one of the two tokens, or to both equally.
    """
    x, wanted = make_batch(generator, max(draws, 20_000))
    x, wanted = x[:, :3].double(), wanted[:, :1].double()  # the third position sees three tokens
    rows = torch.rand(50, 3, generator=generator, dtype=torch.float64).pow(3)
    chosen = torch.tensor([[0, 1, 0], [1, 0, 0], [0.5, 0.5, 0]])
    rows = torch.cat((rows / rows.sum(-1, keepdim=True), chosen))
    errors = []
    for row in rows:
        seen = weighted_values(row.expand(len(x), 1, 3), x)[:, 0]
        read_out = torch.linalg.lstsq(seen, wanted[:, 0]).solution
        squares = (seen @ read_out - wanted[:, 0]).square().sum(0)
        errors.append(float(squares.mean()) / (len(x) - _WIDTH))  # degrees of freedom
    return least(errors)


def median_and_quartiles(errors: list[float]) -> Interval:
    """Return the median and the two quartiles."""
    return Interval(*np.quantile(errors, (0.5, 0.25, 0.75)).tolist())


def _heads(count: int) -> str:
    return f"{count} {plural(count, 'head')}"


def _curve(name: str, trial: HeadCountTrial) -> Series:
    """Return the median error and quartiles at each evaluation, over seeds that did not diverge."""
    lines: dict[float, list[float]] = {}
    for trained in filter(None, trial.trained):
        for line in trained.metrics:
            if "error" in line:
                lines.setdefault(line["step"], []).append(line["error"])
    return Series.of_intervals(name, list(lines), map(median_and_quartiles, lines.values()))


@torch.no_grad()
def _choice(label: str, trial: HeadCountTrial, x: Tensor) -> MapChoice:
    """Show the weights of the first seed, mean over inputs."""
    places, maps = list(map(str, range(_LENGTH))), []
    weights = trial.models[0](x, mask="causal", need_weights=True).weights.mean(0)
    for head, rows in enumerate(weights.tolist()):
        maps.append(Heatmap.of_weights(f"head {head}", rows, places, places))
    return MapChoice(label=label, note=f"The first seed, error {trial.errors[0]:.3f}.", maps=maps)
