"""The corpus search: tokens a second with every head measured at every token, beside the plain
forward.

    python benchmarks/corpus.py MODEL TEXTS.csv [--limit 200] [--max-length 256] [--measure
    previous] [--rounds 3]

Both read the same batches; one thread, processor time, rounds that take turns.
"""

import argparse
import statistics
import time
from itertools import islice

import torch

from attnlab.experiments.model_loader import load_pretrained
from attnlab.look.corpus import Corpus, search_corpus
from attnlab.look.corpus.corpus import batch_inputs, batches, encoder_of
from attnlab.look.corpus.text_rows import rows_of


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--measure", default="previous")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_pretrained(options.model)
    encode = encoder_of(model, None, options.max_length)
    texts = [
        (row.number, encode(row.text))
        for row in islice(rows_of(options.texts), options.limit)
        if row.text
    ]
    tokens = sum(len(ids) for _, ids in texts)

    def plain() -> None:
        with torch.no_grad():
            for batch in batches(texts, 4096):
                inputs, named = batch_inputs(model, batch)
                model(*inputs, **named)

    def search() -> None:
        texts = Corpus(options.texts, limit=options.limit, max_length=options.max_length)
        found = search_corpus(model, texts, options.measure)
        best = found.table()[0]
        interval = f"{best['low']:.3f} to {best['high']:.3f}"
        print(f"  {len(found.heads)} heads; most: {best['head']} {best['mean']:.3f} ({interval})")

    times: dict[str, list[float]] = {"plain": [], "search": []}
    for number in range(options.rounds):
        for run in (plain, search) if number % 2 else (search, plain):
            began = time.process_time()
            run()
            times[run.__name__].append(time.process_time() - began)
    for name, found in times.items():
        least, most = (tokens / each for each in (max(found), min(found)))
        usual = tokens / statistics.median(found)
        print(f"{name:7} {tokens:,} tokens: {usual:,.0f} a second ({least:,.0f} to {most:,.0f})")


if __name__ == "__main__":
    main()
