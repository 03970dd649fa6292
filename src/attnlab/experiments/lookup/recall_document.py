"""What a run shows of in-context look-up."""

import math
from typing import Any

from attnlab.experiments.intervals import mean_interval
from attnlab.experiments.lookup.config import LookupConfig
from attnlab.experiments.lookup.recall import Recalled

__all__ = ["recall_facts", "recall_sections", "recall_words"]

_WRITTEN = {
    "loose": "k1 v1 k2 v2 …, no positions",
    "bound": "k1+v1 k2+v2 …, no positions",
    "ordered": "k1 v1 k2 v2 …, positions",
}


def recall_words(config: LookupConfig, recalled: list[Recalled]) -> list[str]:
    """Say what was found."""
    number = config.recall_facts
    sets = math.comb(config.recall_keys, number) * math.perm(config.recall_values, number)
    opening = (
        f"So the second part draws the facts afresh: {number} keys with {number} values, paired at random, a key as "
        f"the question. There are {sets:.0e} such sets of facts; the models saw at most "
        f"{max(each.samples for each in recalled):,} each, and one in {config.recall_held_out} pairs of a key and a "
        "value they never saw together at all. No weight can know the answer: it has to be read."
    )
    said = {
        "loose": (
            "Written as loose words, the facts cannot be read: the words are the same whichever key has which value, "
            f"so every answer is right with 1/k = {1 / number:.1%}, and {{new:.1%}} is what was measured."
        ),
        "bound": (
            "With key and value bound into one token (their vectors are added), {new:.1%} are right, and {held:.1%} "
            "of pairs that never occurred in training; still no order is told."
        ),
        "ordered": (
            "The loose words again, but with positions: {new:.1%}, and {held:.1%} of pairs never seen. It is "
            "for the encoder to bind each value to the key beside it."
        ),
    }
    found = [
        said[each.variant].format(new=mean_interval(each.new).value, held=mean_interval(each.held_out).value)
        for each in recalled
    ]
    return [opening, " ".join(found)]


def recall_facts(config: LookupConfig, recalled: list[Recalled]) -> list[list[str]]:
    """Return what stands in the report's head."""
    steps = ", ".join(f"{each.variant} {each.steps:,}" for each in recalled)
    return [
        ["new facts", f"{config.recall_facts} of {config.recall_keys} keys and {config.recall_values} values"],
        ["steps on new facts", f"{steps}; {config.recall_seeds} seeds each"],
    ]


def recall_sections(config: LookupConfig, recalled: list[Recalled]) -> list[dict[str, Any]]:
    """Lay out what was measured."""
    return [
        _accuracy_bars(config, recalled),
        _accuracy_table(recalled),
        *_by_facts(config, recalled),
        _course(recalled),
    ]


def _accuracy_bars(config: LookupConfig, recalled: list[Recalled]) -> dict[str, Any]:
    series = []
    for name, figures in (
        ("new facts", [each.new for each in recalled]),
        ("pairs never seen in training", [each.held_out for each in recalled]),
    ):
        values, low, high = zip(*(_within(figure) for figure in figures), strict=True)
        series.append({"name": name, "values": list(values), "low": list(low), "high": list(high)})
    chance = 1 / config.recall_facts
    return {
        "kind": "bars",
        "figure": "recall",
        "title": "Facts that are new each time",
        "caption": (
            f"Answers that are right, of {config.recall_judged:,} new samples for each of {len(recalled[0].new)} "
            "seeds, with 95 % intervals over the seeds. Loose words may fall below chance where the pair asked "
            "never occurred in training: the models learn that much, and exclude it."
        ),
        "y_label": "share right",
        "groups": [each.variant for each in recalled],
        "series": series,
        "levels": [{"name": f"chance 1/{config.recall_facts} = {chance:.3f}", "y": chance}],
    }


def _accuracy_table(recalled: list[Recalled]) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": "Every seed",
        "caption": "Share right for each model, on facts drawn from all there are and on pairs never seen in training.",
        "columns": ["variant", "source", "seed", "new facts", "pairs never seen", "best step"],
        "rows": [
            [each.variant, _WRITTEN[each.variant], index, new, held, trained.best_step]
            for each in recalled
            for index, (new, held, trained) in enumerate(zip(each.new, each.held_out, each.trained, strict=True))
        ],
    }


def _by_facts(config: LookupConfig, recalled: list[Recalled]) -> list[dict[str, Any]]:
    series = list[dict[str, Any]]()
    for each in recalled:
        if each.variant != "ordered":
            values, low, high = zip(*(_within(figures) for figures in each.by_facts.values()), strict=True)
            x = list(each.by_facts)
            series.append({"name": each.variant, "x": x, "y": list(values), "low": list(low), "high": list(high)})
    if not series:
        return []
    numbers = list(series[0]["x"])
    series.append({"name": "chance 1/k", "x": numbers, "y": [1 / number for number in numbers]})
    return [
        {
            "kind": "lines",
            "figure": "capacity",
            "title": "More facts than in training",
            "caption": (
                f"The same models, trained on up to {config.recall_facts} facts, asked about 1 to {max(numbers)}: "
                "share right on new facts, with 95 % intervals over the seeds."
            ),
            "x_label": "facts in a sample",
            "y_label": "share right",
            "series": series,
            "x_log": True,
        }
    ]


def _course(recalled: list[Recalled]) -> dict[str, Any]:
    series = []
    for each in recalled:
        lines = [line for line in each.trained[0].metrics if "accuracy" in line]
        series.append(
            {"name": each.variant, "x": [line["step"] for line in lines], "y": [line["accuracy"] for line in lines]}
        )
    return {
        "kind": "lines",
        "figure": "learning",
        "title": "Learning to read",
        "caption": "Share right on new facts as training goes on; this run's model of each variant.",
        "x_label": "step",
        "y_label": "share right",
        "series": series,
    }


def _within(figures: list[float]) -> tuple[float, float, float]:
    """Return the mean of shares and its interval, kept within 0 and 1; of one value the interval is the value."""
    value, low, high = mean_interval(figures)
    return (value, value, value) if math.isnan(low) else (value, max(low, 0.0), min(high, 1.0))
