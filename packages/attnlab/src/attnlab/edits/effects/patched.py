"""The result of patching: effects, their intervals, tables, and the words of a page.

Of several inputs an effect is a ratio of means; its 95 % interval over inputs is by the delta
method: what a patch changes less its effect times what the two runs differ by is 0 in the mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from attnlab.core.stats import Interval, mean_interval
from attnlab.display import Card, NumberTable, card_text, count_words, displayed, frame
from attnlab.edits.effects.estimates import Estimate
from attnlab.edits.effects.pairs import Refusal
from attnlab.edits.effects.place_tables import place_tables, place_words
from attnlab.edits.effects.sweep import PatchTarget

Direction = Literal["denoise", "noise"]

_LISTED = 10  # patches, and refused pairs
_DRAWN = 32  # heads by position, or channels
_PATCHED = {
    "denoise": "Clean values put into the corrupted run, each alone",
    "noise": "Corrupted values put into the clean run, each alone",
}
_ENDS = {"denoise": "0 as corrupted, 1 as clean", "noise": "0 as clean, 1 as corrupted"}
_ESTIMATED = {
    "gradient": "by gradients, not patched",
    "integrated": "by gradients between both runs, not patched",
}
_VALUES = {
    "residual_before": "the stream before a layer",
    "heads": "the output of a head",
    "attention.output": "the output of an attention",
    "feed_forward.output": "the output of a feed-forward part",
    "": "the value of a site",
}
_FAINT = 0.5  # of a typical change: closer than this, the two runs give no scale for it


class Recovery(NamedTuple):
    """The two ends of the normalized metric: clean and corrupted, (row,) each."""

    clean: Tensor
    corrupted: Tensor

    def share(self, values: Tensor) -> Tensor:
        """Return where values (…, row) lie between both ends: 0 corrupted, 1 clean."""
        low, high = self.corrupted.mean(), self.clean.mean()
        return (values.mean(-1) - low) / (high - low)


@displayed
@dataclass(frozen=True)
class Patched:
    """The effect of every patch alone.

    places: what is patched, in order · metric: its name · direction: "denoise" puts clean values
    into the corrupted run, "noise" the other way round · ends: the metric of both runs · after
    (place, row): the metric under each patch · tokens: the names of the positions of each stack,
    `{"": ("a", "b / c")}`, both tokens where clean and corrupted differ · answers: of each row the
    answer, and the token that is subtracted, or "" · chances: the answer's probability in both runs
    · refused: the pairs that were not patched · note: what the texts did not allow · estimate: by
    which the effects are estimated, None where they were measured · texts: the pairs, if they are
    texts, refused ones too · model: its name, if it has one · position: where it is measured, in
    words, if at one · chosen: 1 where the answer is the likeliest in that run.
    """

    places: tuple[Any, ...]
    metric: str
    direction: Direction
    ends: Recovery
    after: Tensor
    tokens: Mapping[str, Sequence[str]] = field(default_factory=dict)
    answers: Sequence[tuple[str, str]] = ()
    chances: Recovery | None = None
    refused: Sequence[Refusal] = ()
    note: str = ""
    estimate: Estimate | None = None
    texts: Sequence[tuple[str, str]] = ()
    model: str = ""
    position: str = ""
    chosen: Recovery | None = None

    @property
    def shares(self) -> Tensor:
        """The normalized metric of each patch, (place,): 0 as corrupted, 1 as clean."""
        return self.ends.share(self.after)

    @property
    def effects(self) -> Tensor:
        """How far each patch goes from its own run to the other one, (place,): 0 nowhere, 1 all the
        way."""
        return self.shares if self.direction == "denoise" else 1.0 - self.shares

    @property
    def intervals(self) -> list[Interval]:
        """The effects with their 95 % intervals over inputs, each for one patch alone; NaN ends of
        one input."""
        gaps = self.ends.clean - self.ends.corrupted
        changes = self.after - self.ends.corrupted
        if self.direction == "noise":
            changes = self.ends.clean - self.after
        effects = self.effects.unsqueeze(1)
        values = effects + (changes - effects * gaps) / gaps.mean()
        return [mean_interval(row) for row in values.tolist()]

    def table(self) -> Tensor:
        """Return the effects as (site, …), with an axis for heads, positions and channels where
        they are patched one by one; NaN if not patched."""
        return PatchTarget.table(self.places, self.effects)

    @property
    def difference(self) -> float:
        """The mean metric of the clean run less that of the corrupted one: a share of 1."""
        return float(self.ends.clean.mean() - self.ends.corrupted.mean())

    @property
    def typical_change(self) -> float:
        """The typical change of the mean metric by a patch: weighted by size, `Σ c² / Σ |c|`.

        So the many patches with almost no effect do not make it small.
        """
        start = self.ends.corrupted if self.direction == "denoise" else self.ends.clean
        changes = (self.after.mean(-1) - start.mean()).abs()
        return float((changes.square().sum() / changes.sum()).nan_to_num(0.0))

    @property
    def contrast(self) -> float:
        """`difference` in typical changes; infinite if no patch changes anything."""
        typical = self.typical_change
        return abs(self.difference) / typical if typical > 0.0 else math.inf

    @property
    def caution(self) -> str:
        """A warning if both texts of at least half the pairs give the same answer, or clean and
        corrupted differ by less than half a typical change; else ""."""
        same = 0
        if self.chosen is not None:
            same = int((self.chosen.clean * self.chosen.corrupted).sum())
        count = len(self.ends.clean)
        if same and same >= count / 2:
            words = f"in {same:,} of {count:,} pairs both give the same answer"
            if count == 1:
                words = f"both give the same answer, {self.answers[0][0]!r}"
            return (
                f"caution: {words}, so these effects tell little of what decides it. Choose a "
                "corrupted input to which the model gives another answer"
            )
        if self.contrast >= _FAINT:
            return ""
        return (
            f"caution: clean and corrupted barely differ, by {abs(self.difference):.3g}, while a "
            f"patch typically changes {self.metric} by {self.typical_change:.3g}; such shares mean "
            "little. Choose inputs or a metric that differ more"
        )

    @property
    def measured(self) -> str:
        """The metric in words, with the answer where all rows have the same."""
        if not self.answers:
            return self.metric.replace("_", " ")
        answer, wrong = "each answer", "a wrong one"
        if len(set(self.answers)) == 1:
            answer, wrong = map(repr, self.answers[0])
        if self.metric == "logit_difference":
            return f"logit of {answer} less that of {wrong}"
        return f"{self.metric} of {answer}"

    def largest(self, number: int = 10) -> list[tuple[Any, float]]:
        """List the patches with the largest effects of either sign, largest first."""
        ranked = self.effects.abs().argsort(descending=True, stable=True)[:number]
        return [(self.places[index], float(self.effects[index])) for index in ranked.tolist()]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each patch, largest effect first: place, words, effect, interval."""
        rows = []
        for place, interval in zip(self.places, self.intervals, strict=True):
            words = place_words(place, self.tokens)
            row = {"place": place, "words": words, "effect": interval.value + 0.0}
            if len(self.ends.clean) > 1:
                row |= {"low": interval.low, "high": interval.high}
            rows.append(row)
        return sorted(rows, key=lambda row: -abs(row["effect"]))

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame, a place in columns of its own.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        rows = []
        for row in self.rows():
            place = asdict(row["place"])
            rows.append({**place, **{name: row[name] for name in row if name != "place"}})
        return frame(rows)

    def to_mapping(self) -> dict[str, Any]:
        """Return all as plain values, for JSON."""
        return {
            "model": self.model,
            "texts": list(map(list, self.texts)),
            "metric": self.metric,
            "measured": self.measured,
            "position": self.position,
            "direction": self.direction,
            "estimate": self.estimate,
            "clean": self.ends.clean.tolist(),
            "corrupted": self.ends.corrupted.tolist(),
            "answers": [list(answer) for answer in self.answers],
            "refused": [{"pair": row + 1, "why": why} for row, why in self.refused],
            "note": self.note,
            "caution": self.caution,
            "patches": [{**row, "place": asdict(row["place"])} for row in self.rows()],
        }

    def number_tables(self) -> list[NumberTable]:
        """Return the effects as tables to draw: layer by position, by head, or of paths; of many
        heads by position, or channels, those with the largest effects."""
        label = f"Share of the {self.measured}: {_ENDS[self.direction]}"
        ranked = [place for place, _ in self.largest(len(self.places))]
        parts = dict.fromkeys(filter(None, map(_part_drawn, ranked)))
        drawn = list(range(len(self.places)))
        if len(parts) > _DRAWN:
            words = "heads" if ranked[0].channel is None else "channels"
            label += f". The {_DRAWN} of {len(parts):,} {words} with the largest effects"
            kept = list(parts)[:_DRAWN]
            drawn = [at for at in drawn if _part_drawn(self.places[at]) in kept]
        places = [self.places[at] for at in drawn]
        return place_tables(places, self.effects[drawn], label, self.tokens)

    @property
    def page_words(self) -> tuple[str, str]:
        """The title of the result's page, and what a cell of its picture is."""
        place = self.places[0]
        value = "what one part gives to a later one, by the stream alone"
        if isinstance(place, PatchTarget):
            value = next(words for end, words in _VALUES.items() if place.site.endswith(end))
            if place.channel is not None:
                value = f"one channel of {value}"
            value += " at all positions" if place.query is None else " at one position"
        caption = (
            f"A cell is one run of the model, in which the other run's value replaces {value}."
        )
        return "Which part carries the answer?", caption

    def _card(self) -> Card:
        count = len(self.ends.clean)
        facts = [("model", self.model)] * bool(self.model)
        if len(self.texts) == 1:
            facts += zip(("clean text", "corrupted text"), self.texts[0], strict=True)
        facts.append(("measured", ", ".join(filter(None, (self.measured, self.position)))))
        for name in ("clean", "corrupted"):
            words = f"{float(getattr(self.ends, name).mean()):.5g}"
            if self.chances is not None:
                words += f", probability {float(getattr(self.chances, name).mean()):.3g}"
            facts.append((name, words))
        words = f"{self.difference:.3g}; one patch alone typically changes it by"
        facts.append(("difference", f"{words} {self.typical_change:.3g}"))
        if self.estimate is not None:
            facts.append(("estimated", _ESTIMATED[self.estimate]))
        pairs = count_words(count, "pair")
        if self.refused:
            pairs += f" patched, {len(self.refused):,} refused"
        facts.append(("inputs", pairs))
        listed, words = self._listed_rows()
        facts.append(("listed", f"{words}, {len(listed)} of {len(self.places):,} patches"))
        columns, rows = ["where", "effect"], []
        if count > 1:
            columns.append("95 % interval")
        for row in listed:
            cells = [row["words"], f"{row['effect']:+.3f}"]
            if count > 1:
                cells.append(f"{row['low']:+.3f} to {row['high']:+.3f}")
            rows.append(cells)
        lines = list(filter(None, (self.note, self.caution)))
        lines += [f"refused: pair {row + 1}: {why}" for row, why in self.refused[:_LISTED]]
        if len(self.refused) > _LISTED:
            lines.append(f"{len(self.refused) - _LISTED} more pairs were refused")
        title = f"{_PATCHED[self.direction]}; {_ENDS[self.direction]}"
        return Card(title, facts, columns, rows, lines)

    def _listed_rows(self) -> tuple[list[dict[str, Any]], str]:
        """Return the rows that are printed, and which they are; of the stream, which changes little
        from layer to layer, the largest of each position."""
        rows = [row for row in self.rows() if row["effect"] != 0.0]
        places = [row["place"] for row in rows]
        if not all(isinstance(place, PatchTarget) and place.is_stream for place in places):
            return rows[:_LISTED], "largest first"
        by_position: dict[int, dict[str, Any]] = {}
        for row in rows:
            by_position.setdefault(row["place"].query, row)
        return list(by_position.values())[:_LISTED], "the largest of each position"

    def __str__(self) -> str:
        return card_text(self._card())


def _part_drawn(place: Any) -> tuple[str, int | None, int | None] | None:
    """Return what is left out of a table where there are many: a head by position, or a channel."""
    if not isinstance(place, PatchTarget):
        return None
    is_part = place.channel is not None or None not in (place.head, place.query)
    return (place.path, place.head, place.channel) if is_part else None
