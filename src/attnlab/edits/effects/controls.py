"""Does this pattern matter? Each head is replaced by controls, and the effects are tested.

Seven controls, each alone. The first five leave the head its values and change where it looks:

    uniform        evenly at all it may look at
    shuffled       the same weights, on other keys, drawn for each query
    mean           the pattern that is the mean over all inputs: what does not depend on the input
    frozen         the pattern it had on another of the inputs
    first          at the first token it may look at
    value_zeroed   the value of the key with the largest weight is zeros (Mohebbi et al. 2023)
    zeroed         it says nothing

A pattern that sums differently after a change of keys (padding) keeps what lies on allowed keys,
summing to 1 again. That a pattern is sharp does not say that it matters, nor the other way round
(Jain and Wallace 2019; Wiegreffe and Pinter 2019); heads where picture and effect disagree are
listed.

Few inputs cannot show anything: with n of them p is at least 2 / 2^n, times the number of tests
(one for each head and control). Where that is above alpha, nothing is said of idle heads, but how
many inputs it takes; see `Matters.caution`. Copies of an input say nothing new: in the tests their
effects count once, as their mean.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.display import Card, displayed, frame
from attnlab.edits.effects.baseline import Baseline, run_plain
from attnlab.edits.effects.measurement import Place, measure, parts_with, portions_that_fit, site_of
from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.edits.effects.patterns import Pattern, pattern_of, renormalised
from attnlab.edits.effects.significance import (
    MOST_LISTED,
    Assessed,
    Correction,
    IntervalKind,
    assess,
    enough,
    least_p,
)
from attnlab.edits.effects.sweep import USUAL, Case, How, check_how
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.inputs import Call, Inputs
from attnlab.parts.attend import weighted_values

__all__ = ["CONTROLS", "PATTERN_CONTROLS", "Control", "PatternEffects", "Rule", "pattern_effects"]

Control: TypeAlias = Literal[
    "uniform", "shuffled", "mean", "frozen", "first", "value_zeroed", "zeroed"
]
CONTROLS: tuple[Control, ...] = get_args(Control)
PATTERN_CONTROLS = CONTROLS[:5]


class Rule(NamedTuple):
    """When an effect is called one, and a picture sharp.

    correction, interval, draws: see `assess`; all heads and controls together are one family of
    tests. alpha: the level at which an effect is there. least: how large its mean must be, in the
    metric's unit. sharp: the mean largest weight from which on a picture is sharp.
    """

    correction: Correction = "holm"
    interval: IntervalKind = "skewed"
    alpha: float = 0.05
    least: float = 0.0
    sharp: float = 0.5
    draws: int = 10_000


USUAL_RULE = Rule()


@displayed
@dataclass(frozen=True)
class PatternEffects:
    """What the controls did to each head.

    heads · controls · metric: its name · before (input,): the metric of the model as it is ·
    effects (head, control, input): changed less plain · tested: of each effect, (head, control), p
    corrected for all of them together · largest, entropy (head,): the picture: the mean of the
    rows' largest weights, and of their entropies as a share of the most there could be · rule: by
    which they are judged · distinct: how many of the inputs are different.
    """

    heads: tuple[Place, ...]
    controls: tuple[Control, ...]
    metric: str
    before: Tensor
    effects: Tensor
    tested: Assessed
    largest: Tensor
    entropy: Tensor
    rule: Rule
    distinct: int

    @property
    def matters(self) -> Tensor:
        """Which effects are there: (head, control) boolean."""
        return (self.tested.p_corrected <= self.rule.alpha) & (
            self.tested.mean.abs() >= self.rule.least
        )

    @property
    def is_sharp(self) -> Tensor:
        """Which heads have a sharp picture: (head,) boolean."""
        return self.largest >= self.rule.sharp

    @property
    def pattern_matters(self) -> Tensor:
        """For which heads it is shown to matter where they look: (head,) boolean; see
        `can_tell`."""
        chosen = [name in PATTERN_CONTROLS for name in self.controls]
        return self.matters[:, chosen].any(1)

    @property
    def needed(self) -> list[Place]:
        """The heads that any control shows to be needed."""
        return self._where(self.matters.any(1))

    @property
    def pretty_but_idle(self) -> list[Place]:
        """Sharp heads whose pattern was not found to matter; empty unless `can_tell`.

        None either where no control changed where they look.
        """
        return (
            self._where(self.is_sharp & ~self.pattern_matters)
            if self.can_tell and self._asks_where
            else []
        )

    @property
    def plain_but_needed(self) -> list[Place]:
        """Heads without a sharp picture that are needed nevertheless."""
        return self._where(~self.is_sharp & self.matters.any(1))

    @property
    def least_p(self) -> float:
        """The least corrected p that so many inputs can give one effect among so many tests."""
        tests = self.tested.p.numel()
        return least_p(self.distinct, tests, correction=self.rule.correction, draws=self.rule.draws)

    @property
    def can_tell(self) -> bool:
        """Could any effect, however large, be found with so few inputs? If not, silence means
        nothing."""
        return self.least_p <= self.rule.alpha

    @property
    def caution(self) -> str:
        """What weakens the tests, and what to do about it; empty where nothing does."""
        told = [] if self.can_tell else [self._too_few()]
        if self.distinct < len(self.before):
            told.insert(
                0,
                f"of {len(self.before)} inputs {self.distinct} are different; in the tests "
                "copies count once",
            )
        return "; ".join(told)

    def _too_few(self) -> str:
        number, tests, alpha = self.distinct, self.tested.p.numel(), self.rule.alpha
        inputs, draws = enough(alpha, tests, correction=self.rule.correction)
        words = [f"at least {inputs}"] if number < inputs else []
        if max(number, inputs) > MOST_LISTED and self.rule.draws < draws:
            words.append(f"Rule(draws={draws}) or more")
        what = "an effect by itself" if self.rule.correction == "bh" else "anything"
        return (
            f"{number} inputs cannot show {what} at alpha {alpha:g} with {tests} "
            f"test{'s' if tests > 1 else ''} (the least p they can give is {self.least_p:.3g}); "
            f"give {' and '.join(words)}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per head and control; matters=False needs `can_tell`."""
        found = self.tested
        return [
            {
                "part": place.path,
                "head": place.head,
                "control": control,
                "effect": float(found.mean[i, j]),
                "low": float(found.low[i, j]),
                "high": float(found.high[i, j]),
                "p": float(found.p[i, j]),
                "p_corrected": float(found.p_corrected[i, j]),
                "matters": bool(self.matters[i, j]),
                "can_tell": self.can_tell,
                "largest_weight": float(self.largest[i]),
                "entropy": float(self.entropy[i]),
            }
            for i, place in enumerate(self.heads)
            for j, control in enumerate(self.controls)
        ]

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def _card(self) -> Card:
        rows = []
        for index, place in enumerate(self.heads):
            cells = zip(self.tested.mean[index].tolist(), self.matters[index].tolist(), strict=True)
            effects = [f"{effect:+.4g}{'*' if is_sure else ''}" for effect, is_sure in cells]
            rows.append([str(place), f"{float(self.largest[index]):.2f}", *effects])
        title, *_ = str(self).splitlines()
        facts = [("caution", self.caution)] if self.caution else []
        return Card(title, facts, ("head", "largest weight", *self.controls), rows)

    def __str__(self) -> str:
        lines = [
            f"{self.metric} of {len(self.before)} inputs: {float(self.before.mean()):.4g}; "
            "mean changes, * where sure"
        ]
        lines.append(
            f"{'':32}{'largest':>8}" + "".join(f"{control:>14}" for control in self.controls)
        )
        for index, place in enumerate(self.heads):
            cells = zip(self.tested.mean[index].tolist(), self.matters[index].tolist(), strict=True)
            shown = "".join(
                f"{effect:>+13.4f}{'*' if is_sure else ' '}" for effect, is_sure in cells
            )
            lines.append(f"{place!s:32}{float(self.largest[index]):>8.2f}{shown}")
        if self.caution:
            lines.append(self.caution)
        if not self.can_tell:
            return "\n".join(lines)
        told = [("not sharp, but needed", self.plain_but_needed)]
        if self._asks_where:
            told.insert(
                0, ("sharp, but where they look is not found to matter", self.pretty_but_idle)
            )
        for words, places in told:
            lines.append(f"{words}: {'; '.join(map(str, places)) or 'none'}")
        return "\n".join(lines)

    @property
    def _asks_where(self) -> bool:
        return any(name in PATTERN_CONTROLS for name in self.controls)

    def _where(self, chosen: Tensor) -> list[Place]:
        return [
            place for place, is_chosen in zip(self.heads, chosen.tolist(), strict=True) if is_chosen
        ]


def pattern_effects(
    model: nn.Module,
    inputs: Inputs,
    *,
    metric: MetricLike = "logit",
    labels: Tensor | None = None,
    parts: str | Sequence[str] = "*",
    controls: Iterable[Control] = CONTROLS,
    rule: Rule = USUAL_RULE,
    seed: int = 0,
    how: How = USUAL,
) -> PatternEffects:
    """Put every head under every control, over many inputs.

    Args:
        model: made of attnlab's parts, in evaluation mode.
        inputs: at least two, and better dozens: a tensor of ids, (source, target), or a mapping.
            Two heads under seven controls are 14 tests, which take ten inputs to show anything at
            0.05; `Matters.caution` says what is short.
        metric, labels: a name and what is right, or a `Metric`.
        parts: paths of the attentions, with `*` for anything.
        controls: which of `CONTROLS`.
        rule: by which an effect is called one, and a picture sharp.
        seed: of what is drawn: shuffles, donors, signs.
        how: it is computed; what is drawn depends on the portions that the budget makes.

    Raises:
        WrongUsage: fewer than two inputs, an unknown control, an alpha that is no level, and what
            `ablate` refuses.
    """
    how = check_how(how, "controls")
    if not (
        isinstance(rule, Rule)
        and isinstance(rule.least, int | float)
        and isinstance(rule.sharp, int | float)
    ):
        raise WrongUsage(
            f"rule= is a Rule, such as Rule(alpha=0.01, least=0.1, sharp=0.5); got {rule!r}."
        )
    if not (isinstance(rule.alpha, float) and 0.0 < rule.alpha < 1.0):
        raise WrongUsage(f"alpha must be between 0 and 1, such as 0.05; got {rule.alpha!r}.")
    chosen, call = _checked_controls(controls), Call.of(inputs, model)
    copies = call.copies()
    distinct = int(copies.max()) + 1
    if distinct < 2:
        got = "one" if call.num_rows == 1 else f"{call.num_rows} copies of one"
        raise WrongUsage(f"whether a pattern matters is asked of many different inputs; got {got}.")
    paths = parts_with(model, "heads", parts)
    seen = _look(model, call, paths, how.budget, keeps_means="mean" in chosen)
    portion = 0

    def cases(base: Baseline) -> "tuple[list[tuple[Place, Control]], list[Case]]":
        nonlocal portion
        portion += 1
        made = _Made(base, seen.means, seed, portion)
        named = [
            (Place(path, head), control)
            for path in paths
            for head in range(base.values[site_of(path, "heads")].shape[1])
            for control in chosen
        ]
        return named, [Case(place.site, made.write(place, control)) for place, control in named]

    found = measure(model, call, cases, Metric.of(metric, labels), keeps_calls=True, how=how)
    effects = found.after - found.before
    places = [place for place, _ in found.names[:: len(chosen)]]
    once = (
        effects.new_zeros(len(effects), distinct).index_add_(1, copies, effects) / copies.bincount()
    )
    results = assess(
        once, correction=rule.correction, interval=rule.interval, draws=rule.draws, seed=seed
    )
    shape = (len(places), len(chosen))
    return PatternEffects(
        tuple(places),
        chosen,
        found.metric,
        found.before,
        effects.view(*shape, -1),
        Assessed(*(each.view(shape) for each in results)),
        torch.cat(seen.largest),
        torch.cat(seen.entropy),
        rule,
        distinct,
    )


class _Seen(NamedTuple):
    """Where the heads look: mean patterns by path, each head's largest weight and entropy."""

    means: dict[str, Tensor]
    largest: list[Tensor]
    entropy: list[Tensor]


def _look(
    model: nn.Module, call: Call, paths: Sequence[str], budget: int, *, keeps_means: bool
) -> _Seen:
    """Average where the heads look over all inputs, one head at a time to save memory."""
    sums: dict[str, Tensor] = {}
    sharpness: dict[str, Tensor] = {}  # (largest, entropy, rows), each (head,)
    for _, part in portions_that_fit(model, call, budget, keeps_calls=True):
        base = run_plain(model, part, keeps_calls=True)
        for path in paths:
            seen, found = base.calls[path], []
            for head in range(seen.query.shape[1]):
                weights, allowed, _ = pattern_of(seen, head)
                found.append(_sharpness(weights, allowed, is_cross=seen.is_cross))
                if keeps_means:
                    weights = _of_real(weights, allowed, is_cross=seen.is_cross)
                    size = (seen.query.shape[1], *weights.shape[-2:])
                    total = sums.setdefault(path, weights.new_zeros(size, dtype=torch.float64))
                    # NaN where a padded query attends
                    total[head] += weights.nan_to_num(0.0).sum((0, 1), dtype=torch.float64)
            sharpness[path] = sharpness.get(path, 0.0) + torch.cat(found, 1)
    totals = [sharpness[path] / sharpness[path][2].clamp(min=1.0) for path in paths]
    means = {path: total / call.num_rows for path, total in sums.items()}
    return _Seen(means, [each[0].cpu() for each in totals], [each[1].cpu() for each in totals])


def _sharpness(weights: Tensor, allowed: Tensor, *, is_cross: bool) -> Tensor:
    """Add up the rows' largest weights and relative entropies, and count the rows: (3, head).

    A row with one key has no choice, and a position that no query may attend to is padding;
    they do not count.
    """
    choices = allowed.sum(-1)
    counts = choices > 1
    if weights.shape[-1] == weights.shape[-2] and not is_cross:
        counts = counts & allowed.any(-2)
    entropy = (
        torch.special.entr(weights).sum(-1, dtype=torch.float64)
        / choices.clamp(min=2).double().log()
    )
    kept = [
        each.masked_fill(~counts, 0.0).sum((0, 2)) for each in (weights.amax(-1).double(), entropy)
    ]
    return torch.stack([*kept, counts.sum((0, 2)).double()])


class _Made:
    """Makes what each head gathers under each control, when it is wanted."""

    def __init__(self, base: Baseline, means: dict[str, Tensor], seed: int, portion: int) -> None:
        self._base, self._means, self._seed, self._portion = base, means, seed, portion

    def write(self, place: Place, control: Control) -> Callable[[Tensor], None]:
        def write(heads: Tensor) -> None:
            assert place.head is not None
            if control == "zeroed":
                heads[:, place.head] = 0.0
                return
            pattern = pattern_of(self._base.calls[place.path], place.head)
            weights, value = self._changed(pattern, place, control)
            heads[:, place.head] = weighted_values(weights, value).squeeze(1).to(heads.dtype)

        return write

    def _changed(self, pattern: Pattern, place: Place, control: Control) -> tuple[Tensor, Tensor]:
        """Weights (row, 1, query, key), and values that broadcast to them."""
        weights, allowed, value = pattern
        if control == "value_zeroed":
            brightest = torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).bool()
            return weights.masked_fill(brightest, 0.0), value
        if control == "uniform":
            return renormalised(allowed.to(weights.dtype), allowed), value
        if control == "first":
            first = allowed & (allowed.cumsum(-1) == 1)
            return first.to(weights.dtype), value
        if control == "mean":
            mean = self._means[place.path][place.head].to(weights)
            return renormalised(mean.expand_as(weights), allowed), value
        generator = seeds.generator(self._seed, "effects", control, self._portion, str(place))
        if control == "frozen":
            is_cross = self._base.calls[place.path].is_cross
            donors = _donors(len(weights), generator).to(weights.device)
            donated = _of_real(weights, allowed, is_cross=is_cross)[donors]
            return renormalised(donated, allowed), value
        return _shuffled(weights, allowed, generator), value


def _of_real(weights: Tensor, allowed: Tensor, *, is_cross: bool) -> Tensor:
    """Set the weights of padded queries to zero: (row, head, query, key) -> the same."""
    if weights.shape[-1] != weights.shape[-2] or is_cross:
        return weights
    return weights.masked_fill(~allowed.any(-2).unsqueeze(-1), 0.0)


def _donors(num_rows: int, generator: torch.Generator) -> Tensor:
    """Give each row another row, each once: all around one random circle."""
    circle = torch.randperm(num_rows, generator=generator)
    donors = torch.empty_like(circle)
    donors[circle] = circle.roll(1)
    return donors


def _shuffled(weights: Tensor, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Deal each row's weights out anew among the keys it may look at."""
    draw = torch.rand(weights.shape, generator=generator).to(weights.device)
    random = draw.masked_fill(~allowed, 2.0).argsort(-1)
    natural = (~allowed).to(torch.uint8).argsort(dim=-1, stable=True)
    return torch.zeros_like(weights).scatter(-1, random, weights.gather(-1, natural))


def _checked_controls(controls: Iterable[Control]) -> tuple[Control, ...]:
    chosen: tuple[Control, ...] = tuple(
        dict.fromkeys([controls] if isinstance(controls, str) else controls)  # type: ignore[list-item]
    )
    for name in chosen:
        if name not in CONTROLS:
            raise WrongUsage(f"there is no control {name!r}; {did_you_mean(str(name), CONTROLS)}")
    if not chosen:
        raise WrongUsage(f"name at least one control; there are {', '.join(CONTROLS)}.")
    return chosen
