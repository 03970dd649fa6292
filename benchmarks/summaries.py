"""Summaries without the matrix: their time beside that of fused attention, and how much memory they
take.

    python benchmarks/summaries.py [--quick] [--parts head,model,memory] [--tiles 512] [--json FILE]

`head`: one head of width 64, against `F.scaled_dot_product_attention`'s output alone. `model`: a
forward pass of a decoder of 12 layers of 12 heads, d_model 768, with all 144 heads summarized,
against the plain forward, whose bits the output must have, and against the plain forward with
torch's attention kernel in place of ours. `memory`: the peak above what was there, each in a
process of its own. One thread; how times are taken and compared: `timing.py`. Ratios are of
processor time; wall time stands beside it.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from attnlab.look.summaries import Summarize, Summary, summarize
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.parts.fused import attention_path_in_use, attention_path_probe, use_attention_path
from attnlab.sites import AttentionCall, Hook, installed
from timing import interleaved, ratio

_BOUNDS = {"full": 1.1, "causal": 1.2, 2048: 1.05, 8192: 1.25}


class Summaries(Hook):
    """Summarises every attention that it is told of."""

    changes = False

    def __init__(self, tiles: int) -> None:
        self.reduce = Summarize(tiles=tiles)
        self.found: dict[str, Summary] = {}

    def watch(self, part: str, call: AttentionCall) -> None:
        """Keep the summary of an attention."""
        self.found[part] = self.reduce(call)


def compared(
    contestants: dict[str, Callable[[], object]], rounds: int, bound: float, name: str
) -> dict[str, Any]:
    """Time summaries, "ours", against what they are measured by, "plain" first, and print a
    line."""
    times = interleaved(contestants, rounds=rounds, least_seconds=0.0)
    found: dict[str, Any] = {"name": name} | {
        which: min(times[which].processor) for which in contestants
    }
    line = "  ".join(f"{which} {found[which]:8.3f} s" for which in contestants)
    for which in contestants:
        if which != "ours":
            processor = ratio(times["ours"].processor, times[which].processor)
            wall = ratio(times["ours"].wall, times[which].wall)
            found[f"of {which}"] = {"processor": processor._asdict(), "wall": wall._asdict()}
            line += f"  of {which} {processor} wall {wall.median:.3f}"
    print(f"{name:28} {line}  (bound {bound:g} of plain)", flush=True)
    return found


def heads(lengths: list[int], rounds: int, tiles: int) -> list[dict[str, Any]]:
    """Compare one head's summary with the fused kernel's output."""
    found = []
    for length in lengths:
        query, key, value = torch.randn(3, 1, 1, length, 64).unbind()
        few = rounds if length < 40_000 else max(1, rounds // 3)
        for kind in ("full", "causal"):
            contestants = _of_one_head(query, key, value, kind == "causal", tiles)
            found.append(
                compared(contestants, few, _BOUNDS[kind], f"one head, {length} tokens, {kind}")
            )
    return found


def _of_one_head(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, tiles: int
) -> dict[str, Callable[[], object]]:
    return {
        "plain": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=is_causal),
        "ours": lambda: summarize(query, key, "causal" if is_causal else None, tiles=tiles),
    }


def models(lengths: list[int], rounds: int, tiles: int) -> list[dict[str, Any]]:
    """Compare a forward pass with all heads summarized with the plain one."""
    found = []
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
        contestants = {"plain": plain, "torch": torchs, "ours": ours}
        found.append(compared(contestants, few, _BOUNDS[length], f"144 heads, {length} tokens"))
    return found


def memory(quick: bool, tiles: int) -> list[dict[str, Any]]:
    """Measure the peak of a summary above what was there before it, in MiB."""
    jobs = [("head", 16_384, 50), ("model", 2048, 500)]
    jobs += [] if quick else [("head", 65_536, 150), ("model", 8192, 500)]
    found = []
    for what, length, bound in jobs:
        command = [sys.executable, __file__, "--peak", what, str(length), "--tiles", str(tiles)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        extra = float(done.stdout)
        print(f"{what}, {length} tokens: {extra:.1f} MiB extra (bound {bound})", flush=True)
        found.append({"name": f"{what}, {length} tokens", "mib": extra, "bound": bound})
    return found


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
    parser.add_argument("--quick", action="store_true", help="short lengths, few rounds")
    parser.add_argument("--parts", default="head,model,memory")
    parser.add_argument(
        "--tiles",
        type=int,
        default=512,
        help="cells of the maps of one head; for a model half of it",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.peak:
        what, length = given.peak
        print(peak(what, int(length), given.tiles if what == "head" else given.tiles // 2))
        return
    path, found_by = attention_path_in_use(), attention_path_probe()
    print(
        f"{platform.machine()}, torch {torch.__version__}, 1 thread, attention path {path} "
        f"({found_by.ratio})"
    )
    parts, rounds, found = given.parts.split(","), 3 if given.quick else 9, []
    if "head" in parts:
        found += heads([4096, 16_384] + [65_536] * (not given.quick), rounds, given.tiles)
    if "model" in parts:
        found += models([2048] + [8192] * (not given.quick), rounds, given.tiles // 2)
    if "memory" in parts:
        found += memory(given.quick, given.tiles)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
