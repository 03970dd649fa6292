"""The result of a census: what each head does, in numbers with intervals, examples, tokens and
distances; and its folder."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from attnlab.core import store
from attnlab.core.row_files import write_rows
from attnlab.core.store import JsonObject
from attnlab.display import Card, NumberTable, count_words, displayed, frame, short
from attnlab.errors import WrongUsage, did_you_mean, require_known
from attnlab.look.census.bins import SHARE, bins_of, distance_words
from attnlab.look.census.meter import COUNTED
from attnlab.look.census.sketch import Sketch
from attnlab.look.corpus.result import EXAMPLE_COLUMNS, Example, Examples, example_row

Role = Literal["key", "query"]
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
_DECILES, _LISTED = 10, 50
_NO_EFFECTS: Mapping[str, Any] = {}
KINDS = {
    "previous": "looks at the token before",
    "induction": "looks at what followed the same token",
    "duplicate": "looks at the same token",
    "own": "looks at the token itself",
    "first": "rests on the first token",
}
"""What a head that has most of its weight there does, in words, the most telling first."""
NO_KIND = "none of these"
METRICS = {
    "loss": "the mean change of the loss, in nats,",
    "kl": "the divergence of the answer from what it was, in nats,",
    "cosine": "1 less the cosine of the last vectors to what they were, averaged over tokens,",
}
"""Effects in words, by their metric."""
MOST = 0.5
"""The mean weight that makes a kind."""


@displayed
class Tenths(list[Examples]):
    """Examples of each tenth of the texts; printed, a table with their texts."""

    def _card(self) -> Card:
        rows, heads = [], dict.fromkeys(example.head for tenth in self for example in tenth)
        for number, tenth in enumerate(self, 1):
            rows += [[number, *example_row(example)] for example in tenth]
        title = f"head {', '.join(heads)}: examples of each tenth of the texts, the strongest first"
        return Card(title, (), ("tenth", *EXAMPLE_COLUMNS), rows)


@displayed
class Census:
    """What every head of a model does over a corpus.

    model, corpus: their names · fingerprint: a digest of the model · longest: the most tokens of a
    text · heads: their names, LAYER.HEAD · counts: of rows, texts and tokens · missing: blocks of
    256 rows of the corpus that were not read, by number; None while the end of the corpus is not
    known · effects: a row for each head and control, and repeats: by head, the weight on what
    followed the same token where random tokens come twice; both empty unless they were measured ·
    caution: what the effects cannot show, and what to do about it; empty if nothing.
    """

    def __init__(
        self, state: JsonObject, sketch: Sketch, measured: Mapping[str, Any] = _NO_EFFECTS
    ) -> None:
        self.model = str(state["model"])
        self.corpus = str(state["corpus"])
        self.fingerprint, self.longest = str(state["fingerprint"]), int(state["longest"])
        self.heads: tuple[str, ...] = tuple(state["heads"])
        self.counts: dict[str, int] = dict(state["counts"])
        self.effects: list[JsonObject] = list(measured.get("rows", ()))
        self.repeats: dict[str, float] = dict(measured.get("repeats", {}))
        self.caution = str(measured.get("caution", ""))
        self.missing: list[int] | None = None
        if state["in_all"] is not None:
            read = set(map(int, state["blocks"]))
            self.missing = sorted(set(range(state["in_all"])) - read)
        self._sketch = sketch
        self._texts: Mapping[str, Sequence[int]] = state["texts"]
        self._names: Mapping[str, str] = state["names"]

    def table(self) -> list[JsonObject]:
        """Return a row for each head: its kind in words, and of each measure the mean over tokens
        with its 95 % interval (bootstrap over texts), and the number of queries where it is
        defined; None where it is nowhere. `first` is defined at queries after the first token,
        `duplicate` and `induction` at tokens that occurred before. `distance_variance` is that of
        the distance over all weights. With effects, those of each control with intervals and
        corrected p.
        """
        means = self._sketch.sums / self._sketch.counts  # NaN where nothing was measured
        ends = torch.tensor([0.025, 0.975]).double()
        low, high = means[..., 1:].nanquantile(ends, dim=-1)
        rows = []
        for index, head in enumerate(self.heads):
            row: JsonObject = {"head": head, "kind": self._kind(means[:, index, 0])}
            for place, measure in enumerate(COUNTED):
                row[measure] = _number(means[place, index, 0])
                row[f"{measure}_count"] = int(self._sketch.counts[place, index, 0])
                row[f"{measure}_low"] = _number(low[place, index])
                row[f"{measure}_high"] = _number(high[place, index])
            row["distance_variance"] = self._distance_variance(index)
            if self.repeats:
                row["induction_on_repeats"] = self.repeats[head]
            row |= self._effects_of(head)
            rows.append(row)
        return rows

    def kinds(self) -> dict[str, int]:
        """Count the heads of each kind, in words, the most frequent first; heads of none last."""
        kinds = [row["kind"] or NO_KIND for row in self.table()]
        named = sorted(set(kinds) - {NO_KIND}, key=lambda kind: (-kinds.count(kind), kind))
        return {kind: kinds.count(kind) for kind in (*named, NO_KIND) if kind in kinds}

    def kinds_text(self) -> str:
        """Say how many heads there are of each kind, in one line."""
        kinds = [f"{count:,} × {words}" for words, count in self.kinds().items()]
        return f"{' · '.join(kinds)} (a kind: {MOST} or more of the weight, on average)"

    def ranked(self) -> list[JsonObject]:
        """Return `table` with the largest effects first, or without effects the heads that do one
        thing most."""

        def size(row: JsonObject) -> float:
            if self.effects:
                return abs(float(row["zeroed"]))
            return max(float(row[kind] or 0.0) for kind in KINDS if kind != "first")

        return sorted(self.table(), key=size, reverse=True)

    def frame(self) -> Any:
        """Return `table` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.table())

    def quantiles(self, measure: str) -> list[JsonObject]:
        """Return the quantiles of a measure over tokens, a row for each head; from a histogram, so
        they are as exact as its bins."""
        require_known("measure", measure, COUNTED)
        bins, place = bins_of(measure), COUNTED.index(measure)
        counts = self._sketch.histogram[place][:, : bins.number]
        shares = torch.tensor(list(_QUANTILES.values())).double()
        rows = []
        for head, values in zip(self.heads, bins.quantiles(counts, shares), strict=True):
            rows.append({"head": head, **dict(zip(_QUANTILES, map(_number, values), strict=True))})
        return rows

    def distances(self, head: str) -> list[tuple[str, float]]:
        """Return the share of a head's weight by distance in words, such as ("4 to 7 back",
        0.1)."""
        mass = self._sketch.by_distance[self._index(head)]
        shares = mass / mass.sum()
        named = zip(distance_words(), shares.tolist(), strict=True)
        return [(words, share) for words, share in named if share > 0]

    def tokens(
        self,
        head: str,
        role: Role = "key",
        top: int = 20,
        *,
        by: Literal["total", "mean"] = "total",
        least: int = 1,
    ) -> list[JsonObject]:
        """Return the tokens that a head looks at (`key`), or that look at something (`query`), the
        largest first: token, occurrences, total and mean weight.

        The weight of a key is what it gets from all queries; that of a query its largest on any key
        but the first.

        Args:
            head: its name.
            role: of the tokens.
            top: how many.
            by: what ranks them.
            least: leave out tokens that occur less often.
        """
        require_known("role", role, get_args(Role))
        require_known("order", by, ("total", "mean"))
        of_role = self._sketch.received if role == "key" else self._sketch.strongest
        totals, occurrences = of_role[self._index(head)], self._sketch.occurrences
        ranked = totals if by == "total" else totals / occurrences
        ranked = ranked.masked_fill(occurrences < least, float("-inf"))
        number = min(top, int((occurrences >= least).sum()))
        rows = []
        for place in ranked.argsort(descending=True, stable=True)[:number].tolist():
            token, count = int(self._sketch.tokens[place]), int(occurrences[place])
            total = float(totals[place])
            row = {"token": self._names[str(token)], "occurrences": count}
            rows.append({**row, "total": total, "mean": total / count})
        return rows

    def examples(self, head: str) -> Examples:
        """Return the texts where a head's largest weight, the first token left out, is largest."""
        return self._examples(head, self._sketch.top[self._index(head)])

    def deciles(self, head: str) -> Tenths:
        """Return examples of each tenth of the texts, the strongest tenth first, drawn by lot; a
        tenth without an example of its own is empty.

        Texts are ranked by the head's largest weight, the first token left out. Tenths are as exact
        as the 40 bins in which the texts were counted.
        """
        index = self._index(head)
        sampled = self._sketch.sampled[index]
        counts = self._sketch.strongest_texts[index]
        above = counts.flip(0).cumsum(0).flip(0) - counts / 2
        tenths = Tenths(Examples() for _ in range(_DECILES))
        examples = self._examples(head, sampled[sampled[:, 2] >= 0])
        for example in sorted(examples, key=lambda example: -example.value):
            bin_ = int(SHARE.of(torch.tensor(example.value).double()))
            share = float(above[bin_]) / max(float(counts.sum()), 1.0)
            tenths[min(int(share * _DECILES), _DECILES - 1)].append(example)
        return tenths

    def strongest(self, head: str) -> list[int]:
        """Count the texts by the head's largest weight, the first token left out, in 40 equal bins
        from 0 to 1."""
        counts: list[int] = self._sketch.strongest_texts[self._index(head)].tolist()
        return counts

    def ids_of(self, text: int) -> list[int]:
        """Return the ids of a text that is an example or in the sample."""
        return list(self._texts[str(text)])

    def sample(self, number: int) -> list[list[int]]:
        """Return the ids of texts that were drawn by lot, at most 64."""
        sampled = self._sketch.sample[:number, 1].tolist()
        return [list(self._texts[str(int(text))]) for text in sampled]

    def plain_tokens(self, tokenizer: Any = None) -> list[int]:
        """Return the ids of all tokens that were read, special ones left out."""
        special = set(getattr(tokenizer, "all_special_ids", ()))
        return [token for token in self._sketch.tokens.tolist() if token not in special]

    def number_tables(self) -> list[NumberTable]:
        """Return the mean of each measure as tables to draw: layer by head."""
        means = (self._sketch.sums / self._sketch.counts)[..., 0]
        return [self._by_layer(name, means[place]) for place, name in enumerate(COUNTED)]

    def effect_tables(self) -> list[NumberTable]:
        """Return the effects of each control as tables to draw: layer by head."""
        tables = []
        for control in dict.fromkeys(row["control"] for row in self.effects):
            of_heads = {row["head"]: row for row in self.effects if row["control"] == control}
            values = torch.tensor([of_heads[head]["effect"] for head in self.heads])
            tables.append(self._by_layer(control, values))
        return tables

    def _by_layer(self, title: str, values: Tensor) -> NumberTable:
        layers: dict[str, dict[str, float]] = {}
        for head, value in zip(self.heads, values.tolist(), strict=True):
            layer, _, number = head.rpartition(".")
            layers.setdefault(layer, {})[number] = value
        numbers = sorted({number for row in layers.values() for number in row}, key=int)
        cells = [[row.get(number, math.nan) for number in numbers] for row in layers.values()]
        return NumberTable(title, title, list(layers), numbers, "layer", "head", cells)

    def write_tables(self, folder: Path) -> None:
        """Write `heads`, `distances` and `tokens` as Parquet; as CSV where pyarrow is missing."""
        tables: dict[str, list[JsonObject]] = {"heads": self.table(), "distances": [], "tokens": []}
        for head in self.heads:
            for words, share in self.distances(head):
                tables["distances"].append({"head": head, "distance": words, "share": share})
            for role in get_args(Role):
                for row in self.tokens(head, role, _LISTED):
                    tables["tokens"].append({"head": head, "role": role, **row})
        for name, rows in tables.items():
            write_rows(folder / name, rows)

    def _distance_variance(self, index: int) -> float | None:
        queries = self._sketch.counts[COUNTED.index("distance"), index, 0]
        mean, square = self._sketch.moments[index] / queries
        return _number(square - mean.square())

    def _kind(self, means: Tensor) -> str:
        for measure, words in KINDS.items():
            if float(means[COUNTED.index(measure)]) >= MOST:
                return words
        return ""

    def _effects_of(self, head: str) -> JsonObject:
        columns: JsonObject = {}
        for row in self.effects:
            if row["head"] == head:
                name = row["control"]
                columns[name] = row["effect"]
                for column in ("low", "high", "p_corrected", "matters"):
                    columns[f"{name}_{column}"] = row[column]
        return columns

    def _index(self, head: str) -> int:
        if head not in self.heads:
            raise WrongUsage(f"{head!r} was not counted; {did_you_mean(head, self.heads)}")
        return self.heads.index(head)

    def _examples(self, head: str, places: Tensor) -> Examples:
        examples = Examples()
        for value, _, text, query, key in places.tolist():
            if text >= 0:
                ids = self._texts[str(int(text))]
                tokens = tuple(self._names[str(token)] for token in ids)
                examples.append(Example(head, value, int(text), int(query), int(key), tokens))
        return examples

    def _card(self) -> Card:
        facts: list[tuple[str, Any]] = [("model", self.model)]
        for words, count in self.kinds().items():
            facts.append((f"{count:,} heads" if count > 1 else "1 head", words))
        if self.missing:
            facts.append(("blocks not read", short(self.missing)))
        columns = ["head", "kind", "previous", "first", "duplicate", "induction"]
        if self.effects:
            columns = [*columns[:4], "on repeats", "effect [95 %]"]
        rows = []
        for row in self.ranked():
            cells = [row["head"], row["kind"], _words(row["previous"]), _words(row["first"])]
            if self.effects:
                mark = "*" * bool(row["zeroed_matters"])
                ends = f"[{row['zeroed_low']:+.3f}, {row['zeroed_high']:+.3f}]"
                cells += [_words(row["induction_on_repeats"]), f"{row['zeroed']:+.3f}{mark} {ends}"]
            else:
                cells += [_words(row["duplicate"]), _words(row["induction"])]
            rows.append(cells)
        texts = count_words(self.counts["texts read"], "text")
        title = f"{count_words(len(self.heads), 'head')} over {texts}"
        return Card(title, facts, columns, rows, self._notes())

    def _notes(self) -> list[str]:
        """Say what the effects of the card are, and what they cannot show."""
        notes = []
        if self.effects:
            metric = self.effects[0]["metric"]
            notes.append(f"largest effects first: {METRICS[metric]} where a head's output is zero")
            if metric == "loss":
                notes.append("* significant, with the share of false findings held at 5 %")
        return notes + [f"caution: {self.caution}"] * bool(self.caution)


CENSUS_FILE = "census.json"


def census_folder(path: Path) -> store.StateFolder:
    """Return the folder of a census."""
    return store.StateFolder(path, CENSUS_FILE, "attnlab census 2", "census")


def open_census(folder: Path | str) -> Census:
    """Open the folder of a census, finished or not.

    Args:
        folder: the `out` of a census.

    Returns:
        the `Census`; `missing` lists the blocks of texts that are not counted yet.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    state, tensors = census_folder(Path(folder)).load()
    effects = Path(folder) / "effects.json"
    with store.refusing_damage(f"the census in {folder}"):
        measured = store.read_json(effects) if effects.is_file() else {}
        return Census(state, Sketch(**tensors), measured)


def _number(value: Tensor) -> float | None:
    return None if math.isnan(value) else float(value)


def _words(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
