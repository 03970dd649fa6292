"""Summaries without the matrix: their time beside that of fused attention, and how much memory they
take.

    python benchmarks/summaries.py [--parts head model memory] [--rounds 9] [--tiles 512] [--long]
    [--quick]

`head`: one head of width 64, against `F.scaled_dot_product_attention`'s output alone. `model`: a
forward pass of a decoder of 12 layers of 12 heads, d_model 768, with all 144 heads summarized,
against the plain forward, whose bits the output must have, and against the plain forward with
torch's attention kernel in place of ours. `memory`: the peak above what was there, each in a
process of its own. `--long`: also 65,536 tokens of a head and 8,192 of the model (minutes). One
thread, processor time; how times are taken and compared: `timing.py`.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from attnlab.look.summaries import Summarize, Summary, summarize
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.parts.fused import use_attention_path
from attnlab.sites import AttentionCall, Hook, installed
from results import Table, measured
from timing import interleaved

OURS = ["attnlab"]


class Summaries(Hook):
    """Summarises every attention that it is told of."""

    changes = False

    def __init__(self, tiles: int) -> None:
        self.reduce = Summarize(tiles=tiles)
        self.found: dict[str, Summary] = {}

    def watch(self, part: str, call: AttentionCall) -> None:
        """Keep the summary of an attention."""
        self.found[part] = self.reduce(call)


def compare(
    table: Table, what: str, contestants: dict[str, Callable[[], object]], rounds: int
) -> None:
    """Time the contestants, and add a row of their processor time."""
    times = interleaved(contestants, rounds=rounds, least_seconds=0.0)
    table.add(what, {name: found.processor for name, found in times.items()})


def heads(lengths: list[int], rounds: int, tiles: int, table: Table) -> None:
    """Compare one head's summary with the fused kernel's output."""
    for length in lengths:
        query, key, value = torch.randn(3, 1, 1, length, 64).unbind()
        few = rounds if length < 40_000 else max(1, rounds // 3)
        for kind in ("full", "causal"):
            contestants = _of_one_head(query, key, value, kind == "causal", tiles)
            compare(table, f"{length:,} tokens, {kind}", contestants, few)


def _of_one_head(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, tiles: int
) -> dict[str, Callable[[], object]]:
    return {
        "fused output": lambda: F.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal
        ),
        "attnlab": lambda: summarize(query, key, "causal" if is_causal else None, tiles=tiles),
    }


def models(lengths: list[int], rounds: int, tiles: int, table: Table) -> None:
    """Compare a forward pass with all heads summarized with the plain one."""
    for length in lengths:
        model, tokens = _decoder(length), torch.randint(64, (1, length))

        def plain(model: Decoder = model, tokens: torch.Tensor = tokens) -> torch.Tensor:
            with torch.no_grad():
                return model(tokens)

        def ours(model: Decoder = model, plain: Callable[[], torch.Tensor] = plain) -> torch.Tensor:
            with installed(model, Summaries(tiles)):
                return plain()

        def torchs(plain: Callable[[], torch.Tensor] = plain) -> torch.Tensor:
            with use_attention_path("default"):
                return plain()

        if not torch.equal(plain(), ours()):
            raise SystemExit("summaries changed the output")
        few = rounds if length < 4000 else max(1, rounds // 3)
        contestants = {"plain pass": plain, "plain, torch's kernel": torchs, "attnlab": ours}
        compare(table, f"{length:,} tokens", contestants, few)


def memory(jobs: list[tuple[str, int]], tiles: int, table: Table) -> None:
    """Measure the peak of a summary above what was there before it."""
    for what, length in jobs:
        command = [sys.executable, __file__, "--peak", what, str(length), "--tiles", str(tiles)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        name = "one head" if what == "head" else "144 heads"
        table.add(f"{name}, {length:,} tokens", {"attnlab": [float(done.stdout)]}, unit="MiB")


def peak(what: str, length: int, tiles: int) -> float:
    """Return the extra peak, in MiB; of a model, above the plain forward's own."""
    summarize(torch.randn(2, 4), torch.randn(2, 4))
    if what == "head":
        query, key = torch.randn(2, length, 64).unbind()
        start = _resident("VmRSS")
        summarize(query, key, "causal", tiles=tiles)
        return _resident("VmHWM") - start
    model, tokens = _decoder(length), torch.randint(64, (1, length))
    with torch.no_grad():
        model(tokens)
        plain = _resident("VmHWM")
        with installed(model, Summaries(tiles)):
            model(tokens)
    return _resident("VmHWM") - plain


def _decoder(length: int) -> Decoder:
    config = DecoderConfig(
        vocab_size=64,
        max_length=length,
        d_model=768,
        num_heads=12,
        num_layers=12,
        d_ff=3072,
        activation="gelu",
        positions="learned",
    )
    return Decoder(config).eval()


def _resident(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description="Summaries beside fused attention.")
    parser.add_argument("--parts", nargs="+", default=["head", "model", "memory"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--long", action="store_true", help="also the long lengths (minutes)")
    parser.add_argument("--quick", action="store_true", help="3 rounds; nothing is written")
    parser.add_argument(
        "--tiles",
        type=int,
        default=512,
        help="cells of the maps of one head; for a model half of it",
    )
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tiles, is_long = options.tiles, options.long
    if options.peak:
        what, length = options.peak
        print(peak(what, int(length), tiles if what == "head" else tiles // 2))
        return
    rounds, keep = (3, False) if options.quick else (options.rounds, True)
    if "head" in options.parts:
        what = "the summary of one head, width 64: time over that of fused attention's output"
        with measured(
            "summaries", "head", what, ours=OURS, reference="fused output", rounds=rounds, keep=keep
        ) as table:
            heads([4096, 16_384] + [65_536] * is_long, rounds, tiles, table)
    if "model" in options.parts:
        what = "a forward pass with all 144 heads summarized: time over the plain pass"
        with measured(
            "summaries",
            "model",
            what,
            ours=OURS,
            reference="plain pass",
            peers=["plain pass"],
            rounds=rounds,
            keep=keep,
        ) as table:
            models([2048] + [8192] * is_long, rounds, tiles // 2, table)
    if "memory" in options.parts:
        jobs = [("head", 16_384), ("model", 2048)]
        jobs += [("head", 65_536), ("model", 8192)] if is_long else []
        what = "memory of a summary above the plain pass"
        with measured("summaries", "memory", what, ours=OURS, keep=keep) as table:
            memory(jobs, tiles, table)


if __name__ == "__main__":
    main()
