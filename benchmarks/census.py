"""The census: minutes, memory and bytes a head for 1,000 texts of up to 128 tokens.

    python benchmarks/census.py MODEL TEXTS.csv [--limit 1000] [--max-length 128] [--effects 32]

Counting and effects are timed apart; memory is the most that this process ever had.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from attnlab.experiments.census import add_effects
from attnlab.experiments.model_loader import load_pretrained
from attnlab.look.census import count_heads
from attnlab.look.corpus import Corpus


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--effects", type=int, default=32)
    options = parser.parse_args()
    model = load_pretrained(options.model)
    texts = Corpus(options.texts, limit=options.limit, max_length=options.max_length)
    with tempfile.TemporaryDirectory() as folder:
        began, processor = time.monotonic(), time.process_time()
        result = count_heads(model, texts, out=folder)
        counted = time.monotonic() - began
        add_effects(model, result, texts=options.effects, out=folder)
        result.write_tables(Path(folder))
        whole = time.monotonic() - began
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    heads, counts = len(result.heads), result.counts
    print(
        f"{heads} heads, {counts['texts read']:,} texts, {counts['tokens read']:,} tokens: counted "
        f"in {counted:.0f} s, with effects {whole:.0f} s ({time.process_time() - processor:.0f} s "
        f"of processor); {memory:.2f} GiB; {size / heads / 1000:.0f} kB a head"
    )


if __name__ == "__main__":
    main()
