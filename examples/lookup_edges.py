"""Which edge carries the answer? Cross-attention edges of `lookup`, cut one by one.

    python examples/lookup_edges.py [--seeds 10] [--fact-seeds 8] [--out runs/lookup-edges]

Two kinds of models. The fixed table: from `NAME COLOR RED ITEM BLUE` the decoder, at `[SOS]`, says
BLUE; each of its edges to the five words is cut, in all heads at once and in each alone. New facts:
from `k3 v7 k9 v1 …` and a question, k9, it says v1; the edges from the question to the asked value
and key, and to the others, are cut, and in the encoder the edge from the asked key to its value.
Every effect is the loss of the answer, more or less, averaged over a model's inputs; the test is
over the models, which are independent.

Writes `edges.csv` and a figure: how much weight an edge has, and what cutting it does. What it
finds: models of new facts do not look at the value. They look at the key, into which the encoder
has written the value.
"""

import argparse
import csv
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab import train_population
from attnlab.draw.colors import HUES
from attnlab.draw.pictures.look import ACCENT, MUTED, dress, new_figure
from attnlab.edits.effects import ablate, assess
from attnlab.edits.effects.metrics import IGNORED
from attnlab.look.recording import record
from attnlab.models import EncoderDecoder
from attnlab.seeds import generator
from attnlab.tasks import lookup

PART, ENCODER = "decoder.layers.0.cross_attention", "encoder.layers.0.attention"
FIXED = ("NAME", "COLOR", "key", "ITEM", "value")
NEW = ("asked value", "asked key", "other values", "other keys", "encoder: key to value")


class Found(NamedTuple):
    """Effects and weights, (head or all, kind of edge, model); head 0 stands for all heads at
    once."""

    name: str
    kinds: tuple[str, ...]
    effects: Tensor
    weights: Tensor


def cut(
    model: EncoderDecoder, source: Tensor, given: Tensor, labels: Tensor, kinds: Tensor
) -> tuple[Tensor, Tensor]:
    """Cut every edge of the first row of cross-attention: effects and weights, (1 + head, kind).

    kinds (input, key): which kind of edge a key is, a number.
    """
    inputs, edges = (source, given), [(0, key) for key in range(source.shape[1])]
    told = {"metric": "loss", "target": labels, "parts": PART, "edges": edges}
    together = ablate(model, inputs, "edges", **told).effects.unsqueeze(1)  # (key, 1, input)
    alone = ablate(model, inputs, "head edges", **told).effects.unflatten(0, (len(edges), -1))
    effects = torch.cat((together, alone), 1).permute(1, 2, 0)  # (1 + head, input, key)
    with torch.no_grad(), record(model, f"{PART}.weights") as recording:
        model(*inputs)
    weights = recording[f"{PART}.weights"][:, :, 0].double().transpose(0, 1)  # (head, input, key)
    weights = torch.cat((weights.mean(0, keepdim=True), weights))
    chosen = torch.nn.functional.one_hot(kinds).double()  # (input, key, kind)
    # Of several edges of a kind, the mean: each was cut alone.
    counts = chosen.sum((0, 1))
    return tuple(torch.einsum("hik,ikt->ht", each, chosen) / counts for each in (effects, weights))  # type: ignore


def cut_in_encoder(
    model: EncoderDecoder, source: Tensor, given: Tensor, labels: Tensor, which: Tensor
) -> tuple[Tensor, Tensor]:
    """Cut, in the encoder, the edge from the asked key to its value: effects and weights, (1 +
    head, 1).

    which (input,): the number of the asked fact.
    """
    inputs, edges = (source, given), [(key, key + 1) for key in range(0, source.shape[1], 2)]
    told = {"metric": "loss", "target": labels, "parts": ENCODER, "edges": edges}
    together = ablate(model, inputs, "edges", **told).effects.unsqueeze(1)  # (fact, 1, input)
    alone = ablate(model, inputs, "head edges", **told).effects.unflatten(0, (len(edges), -1))
    with torch.no_grad(), record(model, f"{ENCODER}.weights") as recording:
        model(*inputs)
    weights = recording[f"{ENCODER}.weights"].double()[
        :, :, range(0, source.shape[1], 2), range(1, source.shape[1], 2)
    ]
    weights = torch.cat((weights.mean(1, keepdim=True), weights), 1)  # (input, 1 + head, fact)
    rows = torch.arange(len(source))
    return torch.cat((together, alone), 1)[which, :, rows].mean(0)[:, None], weights[
        rows, :, which
    ].mean(0)[:, None]


def fixed_table(num_seeds: int) -> Found:
    """Train models on the fixed table, and cut the edges of its three facts."""
    population = train_population("lookup", range(num_seeds), part="fixed", stop_when_solved=True)
    sources = lookup.all_sources()[
        ::24
    ]  # one order of each fact: to these models a source is a set
    answers = lookup.right_answer(sources)
    labels = torch.stack((answers, torch.full_like(answers, IGNORED)), 1)
    kinds = torch.arange(5).expand(len(sources), 5)
    found = [
        cut(population.model(seed), sources, lookup.target_input(answers), labels, kinds)
        for seed in population.seeds
    ]
    return Found(
        "the fixed table", FIXED, *(torch.stack(each, -1) for each in zip(*found, strict=True))
    )


def new_facts(num_seeds: int, num_facts: int, num_inputs: int = 100) -> Found:
    """Train models on facts drawn afresh, and cut the edges from the question on facts they never
    saw."""
    population = train_population(
        "lookup",
        range(num_seeds),
        part="recall",
        variant="ordered",
        recall_facts=num_facts,
        stop_when_solved=True,
    )
    task = population.config.recall_task("ordered")
    found = []
    for seed in population.seeds:
        facts = task.sample(num_inputs, generator(seed, "lookup edges"))
        asked = torch.zeros(num_inputs, num_facts, dtype=torch.bool).scatter_(1, facts.which, True)
        kinds = torch.stack((torch.where(asked, 1, 3), torch.where(asked, 0, 2)), -1).flatten(
            1
        )  # k v k v …
        asking = (
            population.model(seed),
            task.source(facts),
            task.questions(facts),
            task.answers(facts),
        )
        both = cut(*asking, kinds), cut_in_encoder(*asking, facts.which[:, 0])
        found.append([torch.cat(each, 1) for each in zip(*both, strict=True)])
    return Found(
        f"{num_facts} new facts", NEW, *(torch.stack(each, -1) for each in zip(*found, strict=True))
    )


def table(found: list[Found]) -> list[dict[str, Any]]:
    """One row for each kind of edge, of all heads at once and of each alone."""
    rows = []
    for each in found:
        # All heads at once are one family of tests, the single heads another.
        families = assess(each.effects[0]), assess(each.effects[1:].flatten(0, 1))
        sure = [torch.cat(both) for both in zip(*families, strict=True)]
        mean, low, high, _, p_corrected = sure
        for index in range(each.effects.shape[0] * each.effects.shape[1]):
            head, kind = divmod(index, len(each.kinds))
            rows.append(
                {
                    "task": each.name,
                    "heads": "all" if head == 0 else str(head - 1),
                    "edge to": each.kinds[kind],
                    "weight": float(each.weights[head, kind].mean()),
                    "effect": float(mean[index]),
                    "low": float(low[index]),
                    "high": float(high[index]),
                    "p_corrected": float(p_corrected[index]),
                    "models": each.effects.shape[-1],
                }
            )
    return rows


def draw(found: list[Found], path: Path) -> None:
    """Draw weights and effects of all heads at once, every model a dot."""
    figure = new_figure(9.0, 3.4 * len(found))
    panels = figure.subplots(len(found), 2, squeeze=False)
    for each, (left, right) in zip(found, panels, strict=True):
        for axes, values, colour, words in (
            (left, each.weights[0], HUES[1], "mean weight of the edge"),
            (right, each.effects[0], ACCENT, "loss of the answer without it, more (nats)"),
        ):
            places = range(len(each.kinds))
            axes.barh(places, values.mean(-1).tolist(), color=colour, alpha=0.35)
            for place, row in zip(places, values.tolist(), strict=True):
                axes.scatter(row, [place] * len(row), s=12, color=colour)
            axes.set_yticks(places, each.kinds)
            axes.invert_yaxis()
            axes.axvline(0, color=MUTED, linewidth=0.8)
            dress(axes, f"{each.name}: {values.shape[-1]} models", words, "")
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=150)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Read the arguments, cut, write."""
    parser = argparse.ArgumentParser(
        description="Which cross-attention edge of a lookup carries the answer?"
    )
    parser.add_argument("--seeds", type=int, default=10, help="models of the fixed table")
    parser.add_argument("--fact-seeds", type=int, default=8, help="models of new facts; 0 for none")
    parser.add_argument("--facts", type=int, default=4, help="new facts of a sample")
    parser.add_argument("--out", type=Path, default=Path("runs/lookup-edges"))
    options = parser.parse_args(arguments)
    found = [fixed_table(options.seeds)]
    if options.fact_seeds:
        found.append(new_facts(options.fact_seeds, options.facts))
    rows = table(found)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "edges.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(found, options.out / "edges.png")
    print(f"{'':18}{'heads':8}{'edge to':23}{'weight':>8}{'effect':>9}  interval          p (Holm)")
    for row in rows:
        interval = f"{row['low']:+.3f} to {row['high']:+.3f}"
        print(
            f"{row['task']:18}{row['heads']:8}{row['edge to']:23}{row['weight']:8.3f}"
            f"{row['effect']:+9.3f}  {interval:18}{row['p_corrected']:.2g}"
        )
    print(f"written: {options.out}/edges.csv, edges.png, edges.svg")
    return rows


if __name__ == "__main__":
    main()
