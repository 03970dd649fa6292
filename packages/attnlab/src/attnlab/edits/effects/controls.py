"""Does this pattern matter? Each head is replaced by controls, and the effects are tested.

There are seven controls. The first five keep the head's values and change its weights:

    uniform        equal weights on all allowed keys
    shuffled       the same weights, on other keys, drawn for each query
    mean           the mean pattern over all inputs, which does not depend on the input
    frozen         the pattern on another of the inputs
    first          all weight on the first allowed key
    value_zeroed   the value of the key with the largest weight is zero (Mohebbi et al. 2023)
    zeroed         the head's output is zero

A pattern of another input, whose padding differs, is renormalized on the allowed keys. A sharp
pattern need not matter, and one that matters need not be sharp (Jain and Wallace 2019; Wiegreffe
and Pinter 2019); heads where picture and effect disagree are listed.

Few inputs cannot show anything: with n of them p is at least 2 / 2^n, times the number of tests
(one for each head and control). Where that is above alpha, no head is called idle, and
`PatternEffects.caution` says how many inputs it takes. Copies of an input add no evidence: in the
tests their effects count once, as their mean.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.display import Card, NumberTable, card_text, count_words, displayed, frame
from attnlab.edits.effects import significance
from attnlab.edits.effects.baseline import Baseline, HeadPatterns, attention_calls, pattern_of
from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.edits.effects.significance import Assessed, Correction
from attnlab.edits.effects.sweep import USUAL, PatchTarget, SweepCase, SweepOptions, measure
from attnlab.edits.sources import other_rows
from attnlab.edits.targets import listed, parts_with
from attnlab.errors import WrongUsage, not_none, require_known
from attnlab.look.inputs import Call, Inputs
from attnlab.look.target_ids import AnswerTarget
from attnlab.parts.attend import weighted_values
from attnlab.sites import part_of, site_of

_WIDEST = 98  # letters of a table, at the prompt

Control: TypeAlias = Literal[
    "uniform", "shuffled", "mean", "frozen", "first", "value_zeroed", "zeroed"
]
CONTROLS: tuple[Control, ...] = get_args(Control)
PATTERN_CONTROLS = CONTROLS[:5]


@dataclass(frozen=True)
class SignificanceRule:
    """The rule by which effects are significant and patterns sharp.

    correction, draws: see `assess`; all heads and controls together are one family of tests. alpha:
    the level of significance. least: the smallest mean effect that counts, in the metric's unit.
    sharp: the smallest mean largest weight of a sharp pattern.
    """

    correction: Correction = "holm"
    alpha: float = 0.05
    least: float = 0.0
    sharp: float = 0.5
    draws: int = 10_000


USUAL_RULE = SignificanceRule()


@displayed
@dataclass(frozen=True)
class PatternEffects:
    """The effects of the controls on each head.

    heads: in order · controls: their names, in order · metric: its name · measured: the metric in
    words, with its answer and position · before (input,): the metric of the unedited model ·
    effects (head, control, input): changed less plain · tested (head, control): their tests, with p
    corrected for all of them together · largest, entropy (head,): the means of the rows' largest
    weights, and of their entropies as shares of the maximum · rule: of significance and sharpness ·
    distinct: how many of the inputs are different.
    """

    heads: tuple[PatchTarget, ...]
    controls: tuple[Control, ...]
    metric: str
    measured: str
    before: Tensor
    effects: Tensor
    tested: Assessed
    largest: Tensor
    entropy: Tensor
    rule: SignificanceRule
    distinct: int

    @property
    def matters(self) -> Tensor:
        """The significant effects: (head, control) boolean."""
        is_large = self.tested.mean.abs() >= self.rule.least
        return (self.tested.p_corrected <= self.rule.alpha) & is_large

    @property
    def is_sharp(self) -> Tensor:
        """The heads with a sharp pattern: (head,) boolean."""
        return self.largest >= self.rule.sharp

    @property
    def pattern_matters(self) -> Tensor:
        """The heads whose pattern is shown to matter: (head,) boolean; see `can_tell`."""
        chosen = [name in PATTERN_CONTROLS for name in self.controls]
        return self.matters[:, chosen].any(1)

    @property
    def needed(self) -> list[PatchTarget]:
        """The heads with a significant effect of any control."""
        return self._where(self.matters.any(1))

    @property
    def pretty_but_idle(self) -> list[PatchTarget]:
        """Sharp heads whose pattern is not shown to matter; empty unless `can_tell`, and without
        controls of patterns.
        """
        if not (self.can_tell and self._asks_where):
            return []
        return self._where(self.is_sharp & ~self.pattern_matters)

    @property
    def plain_but_needed(self) -> list[PatchTarget]:
        """Heads without a sharp pattern that are needed nevertheless."""
        return self._where(~self.is_sharp & self.matters.any(1))

    @property
    def least_p(self) -> float:
        """The smallest corrected p that these inputs can give one effect among these tests."""
        tests = self.tested.p.numel()
        return significance.least_p(
            self.distinct, tests, correction=self.rule.correction, draws=self.rule.draws
        )

    @property
    def can_tell(self) -> bool:
        """Could any effect, however large, be significant with these inputs?"""
        return self.least_p <= self.rule.alpha

    @property
    def caution(self) -> str:
        """The weaknesses of the tests, and what to do about them; empty without any."""
        parts = []
        if self.distinct < len(self.before):
            parts.append(
                f"of {len(self.before)} inputs {self.distinct} are different; in the tests "
                "copies count once"
            )
        if not self.can_tell:
            tests, rule = self.tested.p.numel(), self.rule
            inputs, draws = significance.enough(rule.alpha, tests, correction=rule.correction)
            words = []
            if self.distinct < inputs:
                words.append(f"at least {inputs}")
            if max(self.distinct, inputs) > significance.MAX_LISTED and rule.draws < draws:
                words.append(f"SignificanceRule(draws={draws}) or more")
            what = "an effect by itself" if rule.correction == "bh" else "anything"
            parts.append(
                f"{self.distinct} inputs cannot show {what} at alpha {rule.alpha:g} with {tests} "
                f"test{'s' * (tests > 1)} (the least p they can give is {self.least_p:.3g}); "
                f"give {' and '.join(words)}"
            )
        return "; ".join(parts)

    def rows(self) -> list[dict[str, object]]:
        """Return one mapping per head and control; matters=False needs `can_tell`."""
        lines, can_tell, matters = [], self.can_tell, self.matters
        names = ("effect", *Assessed._fields[1:])
        for i, place in enumerate(self.heads):
            for j, control in enumerate(self.controls):
                row: dict[str, object] = {"part": place.path, "head": place.head}
                row["control"] = control
                for name, values in zip(names, self.tested, strict=True):
                    row[name] = float(values[i, j])
                row |= {"matters": bool(matters[i, j]), "can_tell": can_tell}
                row |= {"largest_weight": float(self.largest[i]), "entropy": float(self.entropy[i])}
                lines.append(row)
        return lines

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    @property
    def page_words(self) -> tuple[str, str]:
        """The title of a page of this, and the caption of its map."""
        return "Does it matter where a head looks?", (
            "A cell is the mean change over the inputs when one thing about one head is changed. "
            "The table below marks what is significant."
        )

    def number_tables(self) -> list[NumberTable]:
        """Return the mean effects as a table to draw: head by control."""
        names = [str(head).removeprefix("head ") for head in self.heads]
        label = f"mean change of the {self.measured}"
        values = self.tested.mean.tolist()
        table = NumberTable("Controls", label, names, self.controls, "head", "control", values)
        return [table]

    def _card(self) -> Card:
        rows = self._cells(4)
        if (
            sum(max(map(len, column), default=0) + 2 for column in zip(*rows, strict=True))
            > _WIDEST
        ):
            rows = self._cells(2)
        number = count_words(len(self.before), "input")
        before = f"{self.measured}, {number}: {float(self.before.mean()):.4g}"
        lines = list(filter(None, [self.caution]))
        if self.can_tell and self._asks_where:
            idle = "; ".join(map(str, self.pretty_but_idle)) or "none"
            lines.append(f"sharp, but the pattern is not shown to matter: {idle}")
        if self.can_tell:
            plain = "; ".join(map(str, self.plain_but_needed)) or "none"
            lines.append(f"not sharp, but needed: {plain}")
        names = ("head", "largest weight", *self.controls)
        return Card(f"{before}; mean changes, * where significant", (), names, rows, lines)

    def _cells(self, digits: int) -> list[list[str]]:
        """Return a row for each head: its name, its largest weight, the effect of each control."""
        rows = []
        for i, place in enumerate(self.heads):
            cells = [str(place), f"{float(self.largest[i]):.2f}"]
            for mean, is_sure in zip(self.tested.mean[i].tolist(), self.matters[i], strict=True):
                cells.append(f"{mean:+.{digits}g}{'*' * bool(is_sure)}")
            rows.append(cells)
        return rows

    def __str__(self) -> str:
        return card_text(self._card())

    @property
    def _asks_where(self) -> bool:
        return any(name in PATTERN_CONTROLS for name in self.controls)

    def _where(self, chosen: Tensor) -> list[PatchTarget]:
        return [self.heads[index] for index in chosen.nonzero().flatten().tolist()]


def pattern_effects(
    model: nn.Module,
    inputs: Inputs,
    *,
    metric: MetricLike = "logit",
    target: AnswerTarget = None,
    parts: str | Sequence[str] = "*",
    controls: Iterable[Control] = CONTROLS,
    rule: SignificanceRule = USUAL_RULE,
    seed: int = 0,
    how: SweepOptions = USUAL,
) -> PatternEffects:
    """Test whether the pattern of each head matters, by seven controls over many inputs.

    Args:
        model: of a run, pretrained, or built of attnlab's parts; in evaluation mode.
        inputs: at least two, and better dozens: texts of as many tokens, for the model of a run or
            a pretrained one; a tensor of ids, (source, target), or a mapping. Two heads under seven
            controls are 14 tests, which take ten inputs to show anything at 0.05;
            `PatternEffects.caution` says what is short.
        metric: "logit", "probability", "loss", "accuracy", "kl" or "cosine"; a function of the
            logits; or a `Metric`, such as `Metric("logit_difference", " Mary", " John")`.
        target: the answer to measure: " Mary", an id, a list with one for each input, or ids (row,
            length); None for the model's answer at the last position.
        parts: paths of the attentions, with `*` for anything.
        controls: which of `CONTROLS`.
        rule: when effects are significant and patterns sharp.
        seed: of the shuffles, donors and signs.
        how: memory, threads and progress; random numbers depend on the portions that the budget
            makes.

    Returns:
        the effect of each control on each head, a `PatternEffects`: with intervals, what is
        significant, and `caution` where inputs are too few.

    Raises:
        WrongUsage: fewer than two inputs, an unknown control, an invalid alpha, or an error of
            `ablate`.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> inputs = torch.randint(0, 4, (8, 4), generator=torch.Generator().manual_seed(0))
    >>> sorted(pattern_effects(model, inputs, controls=["zeroed", "uniform"]).controls)
    ['uniform', 'zeroed']
    """
    how = SweepOptions.of(how, "controls")
    _check_rule(rule)
    chosen, call = tuple(listed(controls)), Call.of(inputs, model)
    for control in chosen:
        require_known("control", control, CONTROLS)
    if not chosen:
        raise WrongUsage(f"name at least one control; there are {', '.join(CONTROLS)}.")
    copies = call.copies()
    distinct = int(copies.max()) + 1
    if distinct < 2:
        got = f"{call.num_rows} copies of one" if call.num_rows > 1 else "one"
        raise WrongUsage(f"pattern_effects needs many different inputs; got {got}.")
    paths = parts_with(model, "heads", parts)
    sites = [site_of(path, "call") for path in paths]
    means, largest, entropy = _look(model, call, sites, how.budget, keeps_means="mean" in chosen)
    portions = itertools.count(1)

    def cases(base: Baseline) -> list[SweepCase]:
        portion, parts = next(portions), []
        for path in paths:
            for head in range(base.values[site_of(path, "heads")].shape[1]):
                place = PatchTarget(path, head)
                for control in chosen:
                    generator = seeds.generator(seed, "effects", control, portion, str(place))
                    write = _writer(base, place, control, means.get(path), generator)
                    parts.append(SweepCase(place.site, write, place))
        return parts

    chosen_metric = Metric.of(metric, target, model, inputs)
    name, places, before, after, words = measure(model, call, cases, chosen_metric, sites, how)
    effects = after - before
    sums = effects.new_zeros(len(effects), distinct).index_add_(1, copies, effects)
    results = significance.assess(
        sums / copies.bincount(), correction=rule.correction, draws=rule.draws, seed=seed
    )
    heads = places[:: len(chosen)]
    tested = Assessed(*(result.view(len(heads), -1) for result in results))
    effects = effects.view(len(heads), len(chosen), -1)
    fields = (heads, chosen, name, words, before, effects, tested, largest, entropy)
    return PatternEffects(*fields, rule, distinct)


def _check_rule(rule: SignificanceRule) -> None:
    is_rule = isinstance(rule, SignificanceRule) and isinstance(rule.least, int | float)
    if not (is_rule and isinstance(rule.sharp, int | float)):
        raise WrongUsage(
            "rule= is a SignificanceRule, such as SignificanceRule(alpha=0.01, sharp=0.5); "
            f"got {rule!r}."
        )
    if not (isinstance(rule.alpha, float) and 0.0 < rule.alpha < 1.0):
        raise WrongUsage(f"alpha must be between 0 and 1, such as 0.05; got {rule.alpha!r}.")


def _look(
    model: nn.Module, call: Call, sites: Sequence[str], budget: int, *, keeps_means: bool
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Average the patterns of the heads over all inputs, one head at a time to save memory.

    Returns the mean patterns by path, and the heads' mean largest weights and entropies.
    """
    means: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}  # (largest, entropy, rows), each (head,)
    for path, attention in attention_calls(model, call, budget, sites):
        sharpness, totals = [], []
        for head in range(attention.query.shape[1]):
            pattern = pattern_of(attention, head)
            sharpness.append(_sharpness(pattern))
            if keeps_means:  # NaN where a padded query attends
                weights = pattern.real_weights.nan_to_num(0.0)
                totals.append(weights.sum((0, 1), dtype=torch.float64) / call.num_rows)
        sums[path] = sums.get(path, 0.0) + torch.cat(sharpness, 1)
        if keeps_means:
            means[path] = means.get(path, 0.0) + torch.stack(totals)
    largest, entropy, rows = torch.cat([sums[part_of(site)] for site in sites], 1).cpu()
    return means, largest / rows.clamp(min=1.0), entropy / rows.clamp(min=1.0)


def _sharpness(pattern: HeadPatterns) -> Tensor:
    """Sum the rows' largest weights and relative entropies, and count the rows: (3, head).

    A row with one key has no choice, and a position that no query may attend to is padding; both
    are left out.
    """
    choices = pattern.allowed.sum(-1)
    counts = (choices > 1) & pattern.real
    entropy = torch.special.entr(pattern.weights).sum(-1, dtype=torch.float64)
    entropy = entropy / choices.clamp(min=2).double().log()
    measures = torch.stack([pattern.weights.amax(-1).double(), entropy, counts.double()])
    return measures.masked_fill(~counts, 0.0).sum((1, 3))


def _writer(
    base: Baseline,
    place: PatchTarget,
    control: Control,
    means: Tensor | None,
    generator: torch.Generator,
) -> Callable[[Tensor], None]:
    """Return a function that writes a head's output under a control.

    means: the part's mean patterns, (head, query, key).
    """

    def write(heads: Tensor) -> None:
        if control == "zeroed":
            heads[:, place.head] = 0.0
            return
        pattern = pattern_of(base.calls[place.path], place.head)
        weights, allowed = pattern.weights, pattern.allowed
        if control == "value_zeroed":
            weights = weights.scatter(-1, weights.argmax(-1, keepdim=True), 0.0)
        elif control == "uniform":
            weights = HeadPatterns.renormalized(allowed.to(weights.dtype), allowed)
        elif control == "first":
            weights = (allowed & (allowed.cumsum(-1) == 1)).to(weights.dtype)
        elif control == "mean":
            weights = HeadPatterns.renormalized(
                not_none(means)[place.head].to(weights).expand_as(weights), allowed
            )
        elif control == "frozen":
            donors = other_rows(len(weights), generator).to(weights.device)
            weights = HeadPatterns.renormalized(pattern.real_weights[donors], allowed)
        else:
            weights = _shuffled(weights, allowed, generator)
        gathered = weighted_values(weights, pattern.value)
        heads[:, place.head] = gathered.squeeze(1).to(heads.dtype)

    return write


def _shuffled(weights: Tensor, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Shuffle each row's weights among its allowed keys."""
    chance = torch.rand(weights.shape, generator=generator).to(weights.device)
    random = chance.masked_fill(~allowed, 2.0).argsort(-1)
    natural = (~allowed).to(torch.uint8).argsort(dim=-1, stable=True)
    return torch.zeros_like(weights).scatter(-1, random, weights.gather(-1, natural))
