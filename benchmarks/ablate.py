"""Ablations: all heads of a GPT-2-small-shaped decoder, one by one, against as many forward
passes.

    python benchmarks/ablate.py [--quick] [--rounds N] [--threads N] [--vocabulary N ...] [--json
    FILE]

12 layers, 12 heads, d 768, one input of 128 tokens. `logit`: what becomes of the logit of the
answer, at the last position; `loss`: of the loss at every position. The forward passes are plain
ones, on the fused kernel, without any edit; 12 of them are timed before and after each sweep, and
counted 12 times. Results of a sweep are held against edits one by one. Processor time stands beside
wall time: with one thread, other programs do not disturb it.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.edits.effects import Ablation, ablate, next_tokens
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.seeds import generator, isolated
from attnlab.sites import Hook, installed
from timing import ratio

_LENGTH = 128


class Silent(Hook):
    """One head, taken out in the simplest way."""

    def __init__(self, site: str, head: int) -> None:
        self.site, self.head = site, head

    def wants(self, site: str) -> bool:
        """Only this site."""
        return site == self.site

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Zeros for the head."""
        value = value.clone()
        value[:, self.head] = 0.0
        return value


def build(vocabulary: int, layers: int) -> tuple[Decoder, Tensor]:
    """Make the model and its input."""
    with isolated(0, "benchmarks", "knock out"):
        model = Decoder(
            DecoderConfig(
                vocab_size=vocabulary,
                max_length=_LENGTH,
                d_model=768,
                num_heads=12,
                num_layers=layers,
                activation="gelu",
                positions="learned",
            )
        )
    draw = generator(0, "benchmarks", "knock out tokens")
    return model.eval(), torch.randint(vocabulary, (1, _LENGTH), generator=draw)


@torch.no_grad()
def largest_error(model: Decoder, tokens: Tensor, told: dict[str, Any], found: Ablation) -> float:
    """Compare some heads of the sweep with edits, one by one: the largest difference, over the
    largest value."""
    plain = model(tokens)
    own = prepare_metric(Metric(told["metric"], told.get("target")), plain)
    errors = []
    for index in range(0, len(found.places), 17):
        place = found.places[index]
        with installed(model, Silent(f"{place.path}.heads", place.head or 0)):
            errors.append(float((own(model(tokens), plain)[0] - found.after[index]).abs().max()))
    return max(errors) / float(found.after.abs().max())


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor time of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def contest(vocabulary: int, layers: int, rounds: int) -> list[dict[str, Any]]:
    """Time the sweeps and the forward passes, round by round; twelve passes stand before and after
    each sweep."""
    model, tokens = build(vocabulary, layers)
    metrics = {
        "logit": {"metric": "logit"},
        "loss": {"metric": "loss", "target": next_tokens(tokens)},
    }
    twelve = torch.no_grad()(lambda: [model(tokens) for _ in range(12)])
    found = {
        name: ablate(model, tokens, parts="layers.11.attention" if layers == 12 else "*", **told)
        for name, told in metrics.items()
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in metrics}
    passes: dict[str, list[tuple[float, float]]] = {name: [] for name in metrics}
    before = seconds(twelve)
    for number in range(rounds):
        for name in list(metrics)[:: 1 if number % 2 == 0 else -1]:
            told = metrics[name]
            times[name].append(
                seconds(
                    lambda name=name, told=told: found.update({name: ablate(model, tokens, **told)})
                )
            )
            after = seconds(twelve)
            passes[name].append(
                tuple((one + two) / 2 * layers for one, two in zip(before, after, strict=True))
            )  # type: ignore
            before = after
    rows = []
    for name, told in metrics.items():
        faster = {
            kind: ratio(
                [each[index] for each in passes[name]], [each[index] for each in times[name]]
            )
            for index, kind in enumerate(("wall", "processor"))
        }
        error = largest_error(model, tokens, told, found[name])
        row = {
            "vocabulary": vocabulary,
            "metric": name,
            "times": times[name],
            "forwards": passes[name],
            "error": error,
        }
        rows.append(row | {kind: each._asdict() for kind, each in faster.items()})
        print(
            f"  vocabulary {vocabulary:6,}  {name:5}  {12 * layers} heads: {faster['processor']} "
            f"times faster by processor time, {faster['wall']} by wall; off by {error:.0e}",
            flush=True,
        )
    return rows


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description="All heads knocked out one by one, against forward passes."
    )
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads, for both sides")
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[64, 50_257])
    parser.add_argument(
        "--quick", action="store_true", help="4 layers, one round, the small vocabulary"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rounds = options.rounds or (1 if options.quick else 3)
    layers = 4 if options.quick else 12
    print(f"{layers} layers of 12 heads, d 768, {_LENGTH} tokens, {options.threads} thread(s)")
    figures = [
        row
        for vocabulary in ([64] if options.quick else options.vocabulary)
        for row in contest(vocabulary, layers, rounds)
    ]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
