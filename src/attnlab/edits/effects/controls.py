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
many inputs it takes; see `PatternEffects.caution`. Copies of an input say nothing new: in the
tests their effects count once, as their mean.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.display import Card, card_text, displayed, frame
from attnlab.edits.effects.baseline import Baseline, run_plain
from attnlab.edits.effects.measurement import Place, measure, parts_with, portions_that_fit
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
from attnlab.edits.sources import other_rows
from attnlab.edits.where import site_of
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.inputs import Call, Inputs
from attnlab.parts.attend import weighted_values

Control: TypeAlias = Literal[
    "uniform", "shuffled", "mean", "frozen", "first", "value_zeroed", "zeroed"
]
CONTROLS: tuple[Control, ...] = get_args(Control)
PATTERN_CONTROLS = CONTROLS[:5]


@dataclass(frozen=True)
class Rule:
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
        is_large = self.tested.mean.abs() >= self.rule.least
        return (self.tested.p_corrected <= self.rule.alpha) & is_large

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
        if not (self.can_tell and self._asks_where):
            return []
        return self._where(self.is_sharp & ~self.pattern_matters)

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
        told = []
        if self.distinct < len(self.before):
            told.append(
                f"of {len(self.before)} inputs {self.distinct} are different; in the tests "
                "copies count once"
            )
        if not self.can_tell:
            told.append(self._too_few())
        return "; ".join(told)

    def _too_few(self) -> str:
        number, tests, rule = self.distinct, self.tested.p.numel(), self.rule
        inputs, draws = enough(rule.alpha, tests, correction=rule.correction)
        words = []
        if number < inputs:
            words.append(f"at least {inputs}")
        if max(number, inputs) > MOST_LISTED and rule.draws < draws:
            words.append(f"Rule(draws={draws}) or more")
        what = "an effect by itself" if rule.correction == "bh" else "anything"
        return (
            f"{number} inputs cannot show {what} at alpha {rule.alpha:g} with {tests} "
            f"test{'s' * (tests > 1)} (the least p they can give is {self.least_p:.3g}); "
            f"give {' and '.join(words)}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per head and control; matters=False needs `can_tell`."""
        found, tested = [], self.tested
        pairs = itertools.product(enumerate(self.heads), enumerate(self.controls))
        for (i, place), (j, control) in pairs:
            row: dict[str, Any] = {"part": place.path, "head": place.head, "control": control}
            row["effect"] = float(tested.mean[i, j])
            for name in ("low", "high", "p", "p_corrected"):
                row[name] = float(getattr(tested, name)[i, j])
            row |= {"matters": bool(self.matters[i, j]), "can_tell": self.can_tell}
            row |= {"largest_weight": float(self.largest[i]), "entropy": float(self.entropy[i])}
            found.append(row)
        return found

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def _card(self) -> Card:
        rows = []
        matters, means = self.matters.tolist(), self.tested.mean.tolist()
        for index, place in enumerate(self.heads):
            cells = zip(means[index], matters[index], strict=True)
            effects = [f"{effect:+.4g}{'*' * is_sure}" for effect, is_sure in cells]
            rows.append([str(place), f"{float(self.largest[index]):.2f}", *effects])
        before = f"{self.metric} of {len(self.before)} inputs: {float(self.before.mean()):.4g}"
        lines = []
        if self.caution:
            lines.append(self.caution)
        if self.can_tell:
            idle = ("sharp, but where they look is not found to matter", self.pretty_but_idle)
            plain = ("not sharp, but needed", self.plain_but_needed)
            for words, places in (idle, plain) if self._asks_where else (plain,):
                lines.append(f"{words}: {'; '.join(map(str, places)) or 'none'}")
        columns = ("head", "largest weight", *self.controls)
        return Card(f"{before}; mean changes, * where sure", (), columns, rows, lines)

    def __str__(self) -> str:
        return card_text(self._card())

    @property
    def _asks_where(self) -> bool:
        return any(name in PATTERN_CONTROLS for name in self.controls)

    def _where(self, chosen: Tensor) -> list[Place]:
        return [self.heads[index] for index in chosen.nonzero().flatten().tolist()]


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
            0.05; `PatternEffects.caution` says what is short.
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
    _check_rule(rule)
    chosen, call = _checked_controls(controls), Call.of(inputs, model)
    copies = call.copies()
    distinct = int(copies.max()) + 1
    if distinct < 2:
        got = "one" if call.num_rows == 1 else f"{call.num_rows} copies of one"
        raise WrongUsage(f"whether a pattern matters is asked of many different inputs; got {got}.")
    paths = parts_with(model, "heads", parts)
    seen = _look(model, call, paths, how.budget, keeps_means="mean" in chosen)
    portions = itertools.count(1)

    def cases(base: Baseline) -> list[Case]:
        portion, found = next(portions), []
        for path in paths:
            for head in range(base.values[site_of(path, "heads")].shape[1]):
                place = Place(path, head)
                for control in chosen:
                    draw = seeds.generator(seed, "effects", control, portion, str(place))
                    write = _writer(base, place, control, seen.means.get(path), draw)
                    found.append(Case(place.site, write, place))
        return found

    found = measure(model, call, cases, Metric.of(metric, labels), keeps_calls=True, how=how)
    effects = found.after - found.before
    sums = effects.new_zeros(len(effects), distinct).index_add_(1, copies, effects)
    results = assess(
        sums / copies.bincount(),
        correction=rule.correction,
        interval=rule.interval,
        draws=rule.draws,
        seed=seed,
    )
    places = found.places[:: len(chosen)]
    shape = (len(places), len(chosen))
    return PatternEffects(
        heads=tuple(places),
        controls=chosen,
        metric=found.metric,
        before=found.before,
        effects=effects.view(*shape, -1),
        tested=Assessed(*(each.view(shape) for each in results)),
        largest=torch.cat(seen.largest),
        entropy=torch.cat(seen.entropy),
        rule=rule,
        distinct=distinct,
    )


def _check_rule(rule: Rule) -> None:
    is_rule = isinstance(rule, Rule) and isinstance(rule.least, int | float)
    if not (is_rule and isinstance(rule.sharp, int | float)):
        raise WrongUsage(f"rule= is a Rule, such as Rule(alpha=0.01, sharp=0.5); got {rule!r}.")
    if not (isinstance(rule.alpha, float) and 0.0 < rule.alpha < 1.0):
        raise WrongUsage(f"alpha must be between 0 and 1, such as 0.05; got {rule.alpha!r}.")


def _checked_controls(controls: Iterable[Control]) -> tuple[Control, ...]:
    listed = [controls] if isinstance(controls, str) else controls
    chosen: tuple[Control, ...] = tuple(dict.fromkeys(listed))  # type: ignore[arg-type]
    for name in chosen:
        if name not in CONTROLS:
            raise WrongUsage(f"there is no control {name!r}; {did_you_mean(str(name), CONTROLS)}")
    if not chosen:
        raise WrongUsage(f"name at least one control; there are {', '.join(CONTROLS)}.")
    return chosen


@dataclass(frozen=True)
class _Seen:
    """Where the heads look: mean patterns by path, each head's largest weight and entropy."""

    means: dict[str, Tensor]
    largest: list[Tensor]
    entropy: list[Tensor]


def _look(
    model: nn.Module, call: Call, paths: Sequence[str], budget: int, *, keeps_means: bool
) -> _Seen:
    """Average where the heads look over all inputs, one head at a time to save memory."""
    means: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}  # (largest, entropy, rows), each (head,)
    for _, part in portions_that_fit(model, call, budget, keeps_calls=True):
        base = run_plain(model, part, keeps_calls=True)
        for path in paths:
            seen, found = base.calls[path], []
            num_heads = seen.query.shape[1]
            for head in range(num_heads):
                pattern = pattern_of(seen, head)
                found.append(_sharpness(pattern))
                if keeps_means:
                    weights = pattern.real_weights
                    if path not in means:
                        size = (num_heads, *weights.shape[-2:])
                        means[path] = weights.new_zeros(size, dtype=torch.float64)
                    # NaN where a padded query attends
                    total = weights.nan_to_num(0.0).sum((0, 1), dtype=torch.float64)
                    means[path][head] += total / call.num_rows
            sums[path] = sums.get(path, 0.0) + torch.cat(found, 1)
    totals = [(sums[path] / sums[path][2].clamp(min=1.0)).cpu() for path in paths]
    return _Seen(means, [each[0] for each in totals], [each[1] for each in totals])


def _sharpness(pattern: Pattern) -> Tensor:
    """Add up the rows' largest weights and relative entropies, and count the rows: (3, head).

    A row with one key has no choice, and a position that no query may attend to is padding;
    they do not count.
    """
    choices = pattern.allowed.sum(-1)
    counts = (choices > 1) & pattern.real
    entropy = torch.special.entr(pattern.weights).sum(-1, dtype=torch.float64)
    entropy = entropy / choices.clamp(min=2).double().log()
    measures = torch.stack([pattern.weights.amax(-1).double(), entropy, counts.double()])
    return measures.masked_fill(~counts, 0.0).sum((1, 3))


def _writer(
    base: Baseline, place: Place, control: Control, means: Tensor | None, draw: torch.Generator
) -> Callable[[Tensor], None]:
    """Return what puts in place what a head gathers under a control, made when it is wanted.

    means: of the part's patterns, (head, query, key).
    """

    def write(heads: Tensor) -> None:
        if control == "zeroed":
            heads[:, place.head] = 0.0
            return
        pattern = pattern_of(base.calls[place.path], place.head)
        weights, allowed = pattern.weights, pattern.allowed
        if control == "value_zeroed":
            brightest = torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).bool()
            weights = weights.masked_fill(brightest, 0.0)
        elif control == "uniform":
            weights = renormalised(allowed.to(weights.dtype), allowed)
        elif control == "first":
            weights = (allowed & (allowed.cumsum(-1) == 1)).to(weights.dtype)
        elif control == "mean":
            assert means is not None
            weights = renormalised(means[place.head].to(weights).expand_as(weights), allowed)
        elif control == "frozen":
            donors = other_rows(len(weights), draw).to(weights.device)
            weights = renormalised(pattern.real_weights[donors], allowed)
        else:
            weights = _shuffled(weights, allowed, draw)
        gathered = weighted_values(weights, pattern.value)
        heads[:, place.head] = gathered.squeeze(1).to(heads.dtype)

    return write


def _shuffled(weights: Tensor, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Deal each row's weights out anew among the keys it may look at."""
    draw = torch.rand(weights.shape, generator=generator).to(weights.device)
    random = draw.masked_fill(~allowed, 2.0).argsort(-1)
    natural = (~allowed).to(torch.uint8).argsort(dim=-1, stable=True)
    return torch.zeros_like(weights).scatter(-1, random, weights.gather(-1, natural))
