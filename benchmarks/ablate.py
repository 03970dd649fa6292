"""Ablations: all heads of a GPT-2-small-shaped decoder, one by one, against as many forward
passes.

    python benchmarks/ablate.py [--quick] [--rounds 5] [--vocabulary 64 50257]

12 layers, 12 heads, d 768, one input of 128 tokens. `logit`: what becomes of the logit of the
answer, at the last position; `loss`: of the loss at every position. The forward passes are plain
ones, on the fused kernel, without any edit; 12 of them are timed before and after each sweep, and
counted 12 times. Results of a sweep are held against edits one by one. One thread, processor time,
which other programs disturb least. The peers' ablations are in `pretrained.py`.
"""

import argparse
from typing import Any

import torch
from torch import Tensor

from attnlab.edits.effects import Ablation, ablate, next_tokens
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.seeds import generator, isolated
from attnlab.sites import Hook, installed
from results import Table, measured
from timing import seconds

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
    random = generator(0, "benchmarks", "knock out tokens")
    return model.eval(), torch.randint(vocabulary, (1, _LENGTH), generator=random)


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


def contest(vocabulary: int, layers: int, rounds: int, table: Table) -> None:
    """Time the sweeps and the forward passes, round by round; twelve passes stand before and after
    each sweep."""
    model, tokens = build(vocabulary, layers)
    metrics = {
        "logit": {"metric": "logit"},
        "loss": {"metric": "loss", "target": next_tokens(tokens)},
    }
    twelve = torch.no_grad()(lambda: [model(tokens) for _ in range(12)])
    found = {name: ablate(model, tokens, **options) for name, options in metrics.items()}
    times: dict[str, list[float]] = {name: [] for name in metrics}
    passes: dict[str, list[float]] = {name: [] for name in metrics}
    before = seconds(twelve)
    for number in range(rounds):
        for name in list(metrics)[:: 1 if number % 2 == 0 else -1]:
            options = metrics[name]
            times[name].append(seconds(lambda options=options: ablate(model, tokens, **options)))
            after = seconds(twelve)
            passes[name].append((before + after) / 2 * layers)
            before = after
    for name, options in metrics.items():
        error = largest_error(model, tokens, options, found[name])
        table.add(
            f"{name}, {vocabulary:,} words",
            {"passes": passes[name], "attnlab": times[name]},
            note=f"off by {error:.0e}",
        )


def main() -> None:
    """Read the arguments, measure, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every contest")
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[64, 50_257])
    parser.add_argument(
        "--quick", action="store_true", help="4 layers, the small vocabulary; nothing is written"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    layers, vocabularies = (4, [64]) if options.quick else (12, options.vocabulary)
    with measured(
        "ablate",
        "heads",
        f"{12 * layers} heads taken out one by one, {_LENGTH} tokens: times as fast as "
        f"{12 * layers} forward passes",
        ours=["attnlab"],
        reference="passes",
        better="higher",
        rounds=options.rounds,
        keep=not options.quick,
    ) as table:
        for vocabulary in vocabularies:
            contest(vocabulary, layers, options.rounds, table)


if __name__ == "__main__":
    main()
