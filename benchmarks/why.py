"""Why a head looks at a key, beside a plain pass of the same input: processor time on one thread,
and the time that a person waits, on all cores.

    python benchmarks/why.py [MODEL] [--rounds 9] [--try]

MODEL is a folder, by default runs/models/minilm, which `python examples/small_models.py minilm`
fetches. A cell is one score taken apart: of each head of the deepest layer in turn, for the first
and the last token; a measurement goes once over all heads of the layer.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

import attnlab
from attnlab.look.heads import attentions, layer_name, number_of_heads
from results import measured
from timing import interleaved

MINILM = Path(__file__).parents[1] / "runs" / "models" / "minilm"
SENTENCE = "The cat sat on the mat because it was tired of the rain."
TEXTS = {"16 tokens": SENTENCE, "128 tokens": " ".join([SENTENCE] * 9)}


def contestants(model: nn.Module, text: str) -> dict[str, Callable[[], object]]:
    """Return one call for the plain pass, and one for each thing that is asked of every head of the
    deepest layer."""
    inputs = model.inputs(text)
    part = attentions(model)[-1]
    heads = [f"{layer_name(part)}.{number}" for number in range(number_of_heads(model, part))]

    def plain() -> None:
        with torch.no_grad():
            for _ in heads:
                model(**inputs)

    def cells(ask: Callable[..., object], **options: object) -> None:
        for head in heads:
            ask(model, inputs, head=head, **options)

    return {
        "plain pass": plain,
        "why": partial(cells, attnlab.why, key=0),
        "why, against another key": partial(cells, attnlab.why, key=0, against=1),
    }


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description="The terms of a score, beside a plain pass.")
    parser.add_argument("model", nargs="?", type=Path, default=MINILM)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--try", dest="is_trial", action="store_true", help="write no result")
    options = parser.parse_args()
    model = attnlab.load(options.model)
    part = attentions(model)[-1]
    with measured(
        "why",
        "cells",
        "one score of MiniLM's deepest layer (6 of 6) taken apart",
        packages=["transformers"],
        keep=not options.is_trial,
        ours=["why", "why, against another key", "plain pass"],
        rounds=options.rounds,
    ) as table:
        number, threads = number_of_heads(model, part), torch.get_num_threads()
        for name, text in TEXTS.items():
            torch.set_num_threads(1)
            alone = interleaved(contestants(model, text), rounds=options.rounds)
            torch.set_num_threads(threads)
            waiting = interleaved(contestants(model, text), rounds=options.rounds)
            for words, times in (
                ("one thread, processor time", {key: one.processor for key, one in alone.items()}),
                (f"{threads} threads, waiting", {key: one.wall for key, one in waiting.items()}),
            ):
                milliseconds = {
                    contestant: [1e3 * seconds / number for seconds in found]
                    for contestant, found in times.items()
                }
                table.add(f"{name}, {words}", milliseconds, unit="ms")


if __name__ == "__main__":
    main()
