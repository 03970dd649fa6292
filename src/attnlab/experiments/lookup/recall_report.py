"""The report's sections about in-context look-up."""

import math

from attnlab.core.stats import mean_interval
from attnlab.draw.numbers import plural
from attnlab.draw.sections import Bars, BarSeries, Level, Lines, Section, Series, Table
from attnlab.experiments.lookup.config import LookupConfig
from attnlab.experiments.lookup.format import power_text, rounded_share, share_text
from attnlab.experiments.lookup.recall import Recalled
from attnlab.experiments.sections import metric_series

_WRITTEN = {
    "loose": "k1 v1 k2 v2 …, no positions",
    "bound": "k1+v1 k2+v2 …, no positions",
    "ordered": "k1 v1 k2 v2 …, positions",
}


def recall_words(config: LookupConfig, recalled: list[Recalled]) -> list[str]:
    """Summarize the results in words."""
    number = config.recall_facts
    sets = math.comb(config.recall_keys, number) * math.perm(config.recall_values, number)
    first = "So the second part draws the facts" if config.has_fixed else "The facts are drawn"
    held_out = int(recalled[0].asked_held_out.sum())
    opening = (
        f"{first} afresh: {number} {plural(number, 'key')} with {number} "
        f"{plural(number, 'value')}, paired at random, a key as the question. There are "
        f"{power_text(sets)} such sets of facts; a model saw at most "
        f"{max(each.samples for each in recalled):,} of them, and {held_out} of the "
        f"{config.recall_keys * config.recall_values:,} pairs of a key and a value, asked "
        "afterwards, never occurred in its training. The answer cannot be in the weights: it has "
        "to be read."
    )
    return [opening, " ".join(_said(config, each) for each in recalled)]


def _said(config: LookupConfig, found: Recalled) -> str:
    new, held = (share_text(mean_interval(each).value) for each in (found.new, found.held_out))
    number = config.recall_facts
    if found.variant == "bound":
        return (
            f"With key and value bound into one token (their vectors are added), {new} are right, "
            f"and {held} of pairs that never occurred in training, still without positions."
        )
    if found.variant == "ordered":
        return (
            f"The loose words, but with positions: {new}, and {held} of pairs never seen. The "
            "encoder binds each value to the key beside it."
        )
    if number == 1:
        return (
            "Written as loose words, a single fact needs no binding, since it has only one value: "
            f"{new} are right."
        )
    return (
        "Written as loose words, the facts cannot be read: the words are the same whichever key "
        "has which value, so no model can be right more often than 1/k = "
        f"{share_text(1 / number)}; measured, {new} are right. The models did learn all they can: "
        f"{share_text(mean_interval(found.named).value)} of their answers are one of the values "
        "shown."
    )


def recall_facts(config: LookupConfig, recalled: list[Recalled]) -> list[tuple[str, str]]:
    """Return the facts of the report's head."""
    steps = ", ".join(f"{each.variant} {each.steps:,}" for each in recalled)
    number = len(recalled[0].models)
    return [
        (
            "new facts",
            f"{config.recall_facts} of {config.recall_keys} keys and {config.recall_values} values",
        ),
        ("steps on new facts", f"{steps} at most; {number} {plural(number, 'seed')} each"),
    ]


def recall_sections(config: LookupConfig, recalled: list[Recalled]) -> list[Section]:
    """Return the sections about in-context look-up."""
    return [
        _accuracy_bars(config, recalled),
        _accuracy_table(recalled),
        *_by_facts(config, recalled),
        _course(recalled),
    ]


def _accuracy_bars(config: LookupConfig, recalled: list[Recalled]) -> Bars:
    series = []
    for name, figures in (
        ("new facts", [each.new for each in recalled]),
        ("pairs never seen in training", [each.held_out for each in recalled]),
    ):
        series.append(BarSeries.of_intervals(name, map(_within, figures)))
    chance = 1 / config.recall_facts
    return Bars(
        figure="recall",
        title="Facts that are new each time",
        caption=f"Accuracy on {config.recall_judged:,} new samples for each of "
        f"{len(recalled[0].new)} {plural(len(recalled[0].new), 'seed')}, with 95 % intervals "
        "over the seeds. Loose words may fall below chance on pairs that never occurred in "
        "training: the models learn to exclude them.",
        y_label="accuracy",
        groups=[each.variant for each in recalled],
        series=series,
        levels=[Level(name=f"chance 1/{config.recall_facts} = {chance:.3f}", y=chance)],
    )


def _accuracy_table(recalled: list[Recalled]) -> Table:
    return Table(
        title="Every seed",
        caption="Accuracy of each model on facts drawn from all pairs, and on pairs never seen "
        "in training.",
        columns=["variant", "source", "seed", "new facts", "pairs never seen", "best step"],
        rows=[
            [each.variant, _WRITTEN[each.variant], index, new, held, trained.best_step]
            for each in recalled
            for index, (new, held, trained) in enumerate(
                zip(each.new, each.held_out, each.trained, strict=True)
            )
        ],
    )


def _by_facts(config: LookupConfig, recalled: list[Recalled]) -> list[Section]:
    series: list[Series] = []
    numbers: list[int] = []
    for each in recalled:
        if each.variant != "ordered":
            numbers = list(each.by_facts)
            shares = map(_within, each.by_facts.values())
            series.append(Series.of_intervals(each.variant, numbers, shares))
    if not series:
        return []
    series.append(Series(name="chance 1/k", x=numbers, y=[1 / number for number in numbers]))
    return [
        Lines(
            figure="capacity",
            title="More facts than in training",
            caption=f"The same models, trained on up to {config.recall_facts} facts, asked about "
            f"1 to {max(numbers)}: accuracy on new facts, with 95 % intervals over the seeds.",
            x_label="facts in a sample",
            y_label="accuracy",
            series=series,
            x_log=True,
        )
    ]


def _course(recalled: list[Recalled]) -> Lines:
    return Lines(
        figure="learning",
        title="Learning to read",
        caption="Accuracy on new facts during training; this run's model of each variant.",
        x_label="step",
        y_label="accuracy",
        series=[
            metric_series(each.variant, each.trained[0].metrics, "accuracy") for each in recalled
        ],
    )


def _within(figures: list[float]) -> tuple[float, float, float]:
    """Return the mean of shares and its interval, clipped to 0 and 1; one value is its interval."""
    mean, low, high = mean_interval(figures)
    value = rounded_share(mean)
    if math.isnan(low):
        return value, value, value
    return value, max(low, 0.0), min(high, 1.0)
