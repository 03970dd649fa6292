"""The folders of HeadVis: a census written as one, for its page and for Neuronpedia, and one read.

    write_headvis(census, model, "tree")
    attnlab.open("tree")  # a `HeadVis`

config.json         the model, the texts, the heads, and a description of each metric
scatter_data.json   a row for each head: layer, head, and its metrics
heads/L0H3.json     examples by interval of their largest weight (1 the smallest), distances, tokens

An example keeps the largest weights of each query, `attention_values` at `attention_indices`: query
times length plus key. Form and metrics: github.com/anthropics/headvis (2026), and the pipeline and
loaders of Neuronpedia, utils/neuronpedia-utils/neuronpedia_utils/headvis.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core import store
from attnlab.core.store import JsonObject
from attnlab.display import Card, displayed, frame
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.look.census.result import Census, Role
from attnlab.look.collector import run_collector
from attnlab.look.corpus.corpus import batch_inputs, batches
from attnlab.look.corpus.measures import HeadReader, WeightRows
from attnlab.look.corpus.result import Example
from attnlab.look.heads import chosen_heads
from attnlab.look.inputs import foreign_of
from attnlab.look.long_text.inputs import reading_attentions, takes_padding
from attnlab.look.long_text.long_text import fingerprint

SCATTER = "scatter_data.json"
_TOP, _LEAST, _DIGITS = 8, 0.005, 4  # keys kept of a query, their smallest weight, its digits
_TENTHS, _DRAWN, _TOKENS = 10, 3, 50  # intervals, examples of each, tokens listed
_BATCH = 4096  # tokens read at a time
_NAME = re.compile(r"(\d+)\.(\d+)")
_METRICS = {
    "self_attention_score": ("own", "the mean weight of a query on itself"),
    "prev_token_score": ("previous", "the mean weight on the token before"),
    "pattern_entropy": ("entropy", "the mean entropy of a row of weights, in nats"),
    "qk_distance": ("distance", "the mean distance of the keys, in tokens"),
    "qk_distance_variance": ("distance_variance", "the variance of that distance, by weight"),
    "induction_score": ("induction", "the mean weight on what followed the same token"),
    "duplicate": ("duplicate", "the mean weight on earlier tokens that are the same"),
    "first": ("first", "the mean weight on the first token, of all queries after it"),
    "largest": ("largest", "the mean largest weight of a row"),
    "spread": ("spread", "the mean standard deviation of the distance within a row"),
    "induction_on_repeats": ("induction_on_repeats", "induction where random tokens come twice"),
    "zeroed": ("zeroed", "the effect of setting the head's output to zero"),
    "uniform": ("uniform", "the effect of equal weights on all keys"),
}
"""The metrics that are written: HeadVis' name, and the column of `Census.table`."""
_LISTS: dict[Role, str] = {"query": "top_query_tokens", "key": "top_key_tokens"}


@displayed
class HeadVisExample(NamedTuple):
    """A text on which a head was seen: interval, 1 where its largest weight is among the smallest ·
    value: the largest weight, without the first token · tokens · weights: (query, key), NaN where
    the weight was not kept."""

    head: str
    interval: int
    value: float
    tokens: tuple[str, ...]
    weights: Tensor


@displayed
class HeadVis:
    """A folder of HeadVis, by attnlab, HeadVis itself or Neuronpedia.

    model, corpus: their names · heads: their names, LAYER.HEAD · metrics: their descriptions by
    name · settings: how it was made, as far as the folder says so.
    """

    def __init__(self, folder: Path, config: JsonObject, rows: Sequence[JsonObject]) -> None:
        self.model, self.corpus = str(config["model_name"]), str(config.get("dataset_name", ""))
        self.metrics: dict[str, str] = {
            name: str(config.get("metric_descriptions", {}).get(name, name))
            for name in config["metrics"]
        }
        self.settings: JsonObject = dict(config.get("pipeline_config", {}))
        self._folder = folder
        self._rows = {f"{int(row['layer'])}.{int(row['head'])}": row for row in rows}
        self.heads = tuple(self._rows)

    def table(self) -> list[JsonObject]:
        """Return a row for each head: its name and its metrics, None where one is not defined."""
        return [
            {"head": head, **{name: row.get(name) for name in self.metrics}}
            for head, row in self._rows.items()
        ]

    def frame(self) -> Any:
        """Return `table` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.table())

    def examples(self, head: str) -> list[HeadVisExample]:
        """Return the texts that were kept for a head, as in its file.

        Raises:
            WrongUsage: there is no such head.
            CouldNotRun: its file is missing or damaged.
        """
        examples = []
        with store.refusing_damage(str(self._file(head))):
            for kept in self._read(head)["sequences"]:
                tokens = tuple(map(str, kept["tokens"]))
                size = len(tokens)
                weights = torch.full((size * size,), torch.nan)
                places = torch.tensor(kept["attention_indices"], dtype=torch.int64)
                if bool((places < 0).any()):
                    raise ValueError("an index of a weight is negative")
                weights[places] = torch.tensor(kept["attention_values"], dtype=torch.float32)
                value = float(kept["max_activation"] or 0.0)
                at = int(kept["interval"]), value, tokens, weights.view(size, size)
                examples.append(HeadVisExample(head, *at))
        return examples

    def tokens(self, head: str, role: Role = "key") -> list[tuple[str, float]]:
        """Return the tokens with the largest weight as "key" or "query", and that weight."""
        if role not in _LISTS:
            raise WrongUsage(f"role is 'key' or 'query'; got {role!r}.")
        with store.refusing_damage(str(self._file(head))):
            rows = self._read(head).get(_LISTS[role], [])
            return [(str(row["token"]), float(row["weight"])) for row in rows]

    def _file(self, head: str) -> Path:
        if head not in self._rows:
            raise WrongUsage(f"{head!r} is not in this folder; {did_you_mean(head, self.heads)}")
        return self._folder / "heads" / _file_name(head)

    def _read(self, head: str) -> JsonObject:
        content: JsonObject = store.read_json(self._file(head))
        return content

    def _card(self) -> Card:
        names = list(self.metrics)[:6]
        rows = [[row["head"], *(row[name] for name in names)] for row in self.table()]
        facts = [("model", self.model), ("texts", self.corpus)]
        return Card(f"HeadVis: {len(self.heads):,} heads", facts, ["head", *names], rows)


def open_headvis(folder: Path | str) -> HeadVis:
    """Open a folder of HeadVis; files of heads are read when they are asked for.

    Args:
        folder: with config.json, scatter_data.json and heads.

    Returns:
        the `HeadVis`.

    Raises:
        CouldNotRun: a file is missing or damaged.
    """
    path = Path(folder)
    with store.refusing_damage(f"the HeadVis folder {folder}"):
        return HeadVis(path, store.read_json(path / "config.json"), store.read_json(path / SCATTER))


def write_headvis(census: Census, model: nn.Module, folder: Path | str) -> None:
    """Write a census as a folder of HeadVis, which its page and Neuronpedia's loaders read.

    Metrics that both define alike have HeadVis' names; the census's others, effects included, stand
    beside them. There is a distance, and its variance, only where no head looks ahead.

    Args:
        census: the result of `census`, whose examples are read once more.
        model: the model that it counted.
        folder: the folder to create.

    Raises:
        WrongUsage: another model, or heads without a number of their layer.
        CouldNotRun: the folder is there already or cannot be written.
    """
    for head in census.heads:
        if not _NAME.fullmatch(head):
            raise WrongUsage(f"HeadVis names a head by two numbers, such as 3.5; got {head!r}.")
    if fingerprint(model) != census.fingerprint:
        raise WrongUsage(f"this is not the model of the census, {census.model}.")
    folder = Path(folder)
    if folder.exists():
        raise CouldNotRun(f"{folder} is there already; name another folder.")
    drawn = {head: _drawn(census, head) for head in census.heads}
    kept = _kept_weights(census, model, drawn)
    table = {row["head"]: row for row in census.table()}
    metrics = _metrics_of(census, next(iter(table.values())))
    store.make_folder(folder / "heads")
    store.make_folder(folder / "attributions")
    rows = []
    for head, row in table.items():
        layer, number = map(int, head.split("."))
        values = {name: _rounded(row[_METRICS[name][0]]) for name in metrics}
        rows.append({"layer": layer, "head": number, **values})
        sequences = []
        for interval, example in drawn[head]:
            indices, weights = kept[head, example.text]
            tokens = _token_names(model, census.ids_of(example.text), example.tokens)
            sequences.append(
                {
                    "sequence_id": example.text,
                    "interval": interval,
                    "tokens": tokens,
                    "attention_indices": indices,
                    "attention_values": weights,
                    "seq_len": len(tokens),
                    "max_activation": _rounded(example.value),
                }
            )
        content = {"sequences": sequences, **_summaries(census, head, len(sequences))}
        store.write_json(folder / "heads" / _file_name(head), content, indent=None)
    store.write_json(folder / "attributions" / "manifest.json", {})
    store.write_json(folder / "server_config.json", {})
    store.write_json(folder / "config.json", _config(census, model, rows, metrics))
    store.write_json(folder / SCATTER, rows, indent=None)


def _drawn(census: Census, head: str) -> list[tuple[int, Example]]:
    """Return a head's examples with their intervals: the strongest, and some of each tenth."""
    drawn = {example.text: (_TENTHS, example) for example in census.examples(head)}
    source = seeds.generator(0, "headvis", head)
    for place, tenth in enumerate(census.deciles(head)):
        for index in torch.randperm(len(tenth), generator=source)[:_DRAWN].tolist():
            example = tenth[index]
            drawn.setdefault(example.text, (_TENTHS - place, example))
    return list(drawn.values())


class _LargestWeights(HeadReader):
    """Keeps the largest weights of each query and their keys: (text, head, query, key)."""

    def __init__(self, *batch: Any) -> None:
        super().__init__(*batch)
        kept = min(_TOP, self.shape[2])
        self.values = torch.zeros(*self.shape, kept)
        self.keys = torch.zeros(*self.shape, kept, dtype=torch.int64)

    def read_rows(self, heads: slice, rows: WeightRows) -> None:
        """Keep the largest weights of some rows."""
        keys = rows.weights.topk(self.keys.shape[-1]).indices.sort().values
        self.keys[:, heads, rows.span] = keys.cpu()
        self.values[:, heads, rows.span] = rows.weights.gather(-1, keys).float().cpu()


def _kept_weights(
    census: Census, model: nn.Module, drawn: Mapping[str, Sequence[tuple[int, Example]]]
) -> dict[tuple[str, int], tuple[list[int], list[float]]]:
    """Read the examples of all heads once; return flat indices and weights by head and text."""
    needed = {(head, example.text) for head, some in drawn.items() for _, example in some}
    texts = [(text, census.ids_of(text)) for text in sorted({text for _, text in needed})]
    heads = chosen_heads(model, reading_attentions(model), list(census.heads))
    kept = {}
    for batch in batches(texts, _BATCH, padded=takes_padding(model)):
        arguments, options = batch_inputs(model, batch)
        device = arguments[0].device
        hook = _LargestWeights(heads, arguments[0], batch.real.to(device), str)
        run_collector(model, hook, arguments, options)
        for row, (text, length) in enumerate(zip(batch.numbers, batch.lengths, strict=True)):
            flat = torch.arange(length).unsqueeze(-1) * length + hook.keys[row, :, :length]
            for place, head in enumerate(census.heads):
                if (head, text) in needed:
                    values = hook.values[row, place, :length]
                    is_kept = values >= _LEAST
                    numbers = [round(value, _DIGITS) for value in values[is_kept].tolist()]
                    kept[head, text] = flat[place][is_kept].tolist(), numbers
    return kept


def _metrics_of(census: Census, row: JsonObject) -> list[str]:
    """List the metrics that a census has; a distance is one in both ways alone if no head looks
    ahead."""
    metrics = [name for name, (column, _) in _METRICS.items() if column in row]
    for head in census.heads:
        if any(words.endswith("ahead") for words, _ in census.distances(head)):
            return [name for name in metrics if not name.startswith("qk_distance")]
    return metrics


def _summaries(census: Census, head: str, number: int) -> JsonObject:
    """Return distances, tokens, and how many texts have which largest weight."""
    shares = [0.0] * 14
    for words, share in census.distances(head):
        size = 0 if words == "itself" else int(words.split()[0].replace(",", "")).bit_length()
        shares[size] += share
    counts = census.strongest(head)
    edges = [_rounded(bin_ / len(counts)) for bin_ in range(len(counts) + 1)]
    content: JsonObject = {
        "qk_distance_histogram": {
            "bin_edges": [0, *(2**power for power in range(14))],
            "bin_values": list(map(_rounded, shares)),
        },
        "histogram": {"bin_edges": edges, "bin_values": counts},
        "statistics": {"n_samples": number},
    }
    for role, name in _LISTS.items():
        rows = census.tokens(head, role, _TOKENS)
        content[name] = [{"token": row["token"], "weight": _rounded(row["total"])} for row in rows]
    return content


def _config(
    census: Census, model: nn.Module, rows: Sequence[JsonObject], metrics: Sequence[str]
) -> JsonObject:
    """Return what a page of HeadVis reads first, and what Neuronpedia's loaders ask for."""
    config = getattr(foreign_of(model), "config", None)
    named = {"model_name": census.model, "dataset_name": census.corpus}
    return {
        **named,
        "heads": [[row["layer"], row["head"]] for row in rows],
        "n_layers": 1 + max(row["layer"] for row in rows),
        "n_heads": 1 + max(row["head"] for row in rows),
        "n_intervals": _TENTHS,
        "metrics": list(metrics),
        "metric_descriptions": {name: _METRICS[name][1] for name in metrics},
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [
            {"key": "qk_distance_histogram", "label": "Share of the weight by distance"},
            {"key": "histogram", "label": "Texts by largest weight"},
        ],
        "custom_tables": [
            {"key": "top_query_tokens", "label": "Query tokens, by largest weight"},
            {"key": "top_key_tokens", "label": "Key tokens, by weight received"},
        ],
        "statistics_display": {"n_samples": {"label": "Texts kept", "format": "default"}},
        "pipeline_config": {
            **named,
            "n_sequences": census.counts["texts read"],
            "seq_len": census.longest,
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "attn_implementation": str(getattr(config, "_attn_implementation", "attnlab")),
            "induction_attention_threshold": 0.0,
            "sparse_topk_per_row": _TOP,
            "sparse_threshold": _LEAST,
        },
    }


def _token_names(model: nn.Module, ids: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the text of each token as its tokenizer writes it, or the names without one."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return list(names)
    return [str(tokenizer.decode([token])) for token in ids]


def _file_name(head: str) -> str:
    layer, _, number = head.partition(".")
    return f"L{layer}H{number}.json"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
