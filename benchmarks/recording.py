"""What looking costs: hook points without hooks, and all weights of a GPT-2-small shape recorded.

    python benchmarks/recording.py [--quick] [--rounds 15] [--part hooks,weights,memory]
    [--json FILE]

Hooks: our decoder beside the very same decoder with all calls to hook points taken out of its
source ("bare"), forward and training step; and how many such calls there are, and what one costs.
Weights: 12 layers, 12 heads, d_model 768, vocabulary 64, batch 1, one thread; the plain forward
pass with the fused kernel beside the one that records every `layers.*.attention.weights`. Memory:
the most that the process held above the loaded model, each in its own process.
"""

import argparse
import ast
import importlib
import inspect
import json
import platform
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.look import record
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.parts.linear import matrix_path_probe
from attnlab.sites import SitedModule
from timing import interleaved, ratio

WEIGHTS = "layers.*.attention.weights"
POINTS = ("visit", "wants", "watch", "announce", "supplied")
SITED = (
    "attnlab.parts.feed_forward",
    "attnlab.parts.heads",
    "attnlab.parts.blocks",
    "attnlab.models.config",
    "attnlab.models.embedding",
    "attnlab.models.stack",
    "attnlab.models.decoder",
)
SIZES = {
    "tiny": (
        DecoderConfig(
            vocab_size=4, max_length=7, d_model=6, num_heads=2, d_ff=6, positions="learned"
        ),
        27,
    ),
    "small": (
        DecoderConfig(vocab_size=64, max_length=16, d_model=64, num_heads=4, activation="gelu"),
        32,
    ),
    "middle": (
        DecoderConfig(
            vocab_size=64, max_length=256, d_model=256, num_heads=8, num_layers=4, activation="gelu"
        ),
        8,
    ),
}
GPT2 = DecoderConfig(
    vocab_size=64,
    max_length=2048,
    d_model=768,
    num_heads=12,
    num_layers=12,
    activation="gelu",
    positions="learned",
)
ROUNDS = {128: 21, 512: 15, 2048: 11}


class _Strip(ast.NodeTransformer):
    """Takes the calls to hook points out of a source: what would be shown goes on, nobody wants or
    supplies anything."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """A statement that is nothing but a call to a hook point goes."""
        return (
            ast.Pass() if _point(node.value) in ("watch", "announce") else self.generic_visit(node)
        )

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A value that is shown stands for itself."""
        self.generic_visit(node)
        point = _point(node)
        if point == "visit":
            return node.args[1]
        if point == "wants":
            return ast.Constant(False)
        return ast.Constant(None) if point == "supplied" else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Nobody stands anywhere."""
        return ast.Constant(False) if node.attr == "is_hooked" else self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Stripped modules use one another."""
        if node.module in SITED:
            node.module = f"bare_{node.module}"
        return node


def bare_decoder() -> type[nn.Module]:
    """Build the decoder's class anew, without its hook points."""
    for name in SITED:
        tree = _Strip().visit(ast.parse(inspect.getsource(importlib.import_module(name))))
        module = types.ModuleType(f"bare_{name}")
        sys.modules[module.__name__] = module
        exec(compile(ast.fix_missing_locations(tree), module.__name__, "exec"), vars(module))
    return vars(sys.modules["bare_attnlab.models.decoder"])["Decoder"]


def count_calls(model: nn.Module, tokens: Tensor) -> dict[str, int]:
    """Say how often each hook point is called in one forward pass."""
    counts = dict.fromkeys((*POINTS, "is_hooked"), 0)
    whole = {name: getattr(SitedModule, name) for name in POINTS}

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return whole[name](*arguments, **options)

        return call

    whole["is_hooked"] = vars(SitedModule)["is_hooked"].fget
    try:
        for name in POINTS:
            setattr(SitedModule, name, counting(name))
        SitedModule.is_hooked = property(counting("is_hooked"))
        model(tokens)
    finally:
        SitedModule.is_hooked = property(whole.pop("is_hooked"))
        for name in POINTS:
            setattr(SitedModule, name, whole[name])
    return counts


def seconds_of_a_call(part: SitedModule) -> float:
    """Time one call to a hook point without hooks: the least of several runs."""
    value, found = torch.zeros(1), []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(10_000):
            part.visit("output", value)
        found.append((time.perf_counter() - start) / 10_000)
    return min(found)


def compare_hook_points(name: str, rounds: int) -> list[dict[str, Any]]:
    """Our decoder beside its bare twin."""
    config, batch = SIZES[name]
    ours, bare = (_seeded(build, config) for build in (Decoder, bare_decoder()))
    source = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(
        0, config.vocab_size, (2, batch, config.max_length), generator=source
    )
    with torch.no_grad():
        assert torch.equal(ours(tokens), bare(tokens)), "the bare twin computes something else"
    counts, cost = count_calls(ours, tokens), seconds_of_a_call(ours)
    rows = []
    for task in ("forward", "training"):
        make = _forward if task == "forward" else _training
        calls = {
            "ours": make(ours, tokens, targets),
            "bare": make(bare, tokens, targets),
            # The same once more: what two names of one thing differ by is what this clock can tell.
            "bare again": make(bare, tokens, targets),
        }
        times = interleaved(calls, rounds=rounds, least_seconds=0.05)
        wall = ratio(times["ours"].wall, times["bare"].wall)
        processor = ratio(times["ours"].processor, times["bare"].processor)
        again = ratio(times["bare again"].processor, times["bare"].processor)
        bare_seconds = sorted(times["bare"].processor)[rounds // 2]
        share = sum(counts.values()) * cost / bare_seconds
        rows.append(
            {
                "size": name,
                "task": task,
                "calls": counts,
                "nanoseconds_a_call": 1e9 * cost,
                "counted_share": share,
            }
            | {
                "bare_milliseconds": 1e3 * bare_seconds,
                "wall": wall,
                "processor": processor,
                "again": again,
            }
        )
        print(
            f"{name:7} {task:9} {1e3 * bare_seconds:9.3f} ms   {wall!s:22}  {processor!s:22}  "
            f"{again!s:22}  {sum(counts.values())} calls of {1e9 * cost:.0f} ns = "
            f"{100 * share:.2f} %",
            flush=True,
        )
    return rows


def compare_weights(length: int, rounds: int) -> dict[str, Any]:
    """The plain forward pass beside the one that records all weights."""
    model = _seeded(Decoder, GPT2)
    tokens = torch.randint(0, 64, (1, length), generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def plain() -> object:
        return model(tokens)

    @torch.no_grad()
    def recorded() -> object:
        with record(model, WEIGHTS):
            return model(tokens)

    times = interleaved({"plain": plain, "recorded": recorded, "plain again": plain}, rounds=rounds)
    wall = ratio(times["recorded"].wall, times["plain"].wall)
    processor = ratio(times["recorded"].processor, times["plain"].processor)
    again = ratio(times["plain again"].processor, times["plain"].processor)
    seconds = sorted(times["plain"].wall)[rounds // 2]
    print(
        f"{length:5} tokens {1e3 * seconds:9.1f} ms   {wall!s:22}  {processor!s:22}  {again!s:22}",
        flush=True,
    )
    return {
        "tokens": length,
        "plain_seconds": seconds,
        "wall": wall,
        "processor": processor,
        "again": again,
    }


def measure_memory(length: int, how: str) -> int:
    """Return the most bytes that one pass held above the loaded model: to be called in a process of
    its own."""
    model = _seeded(Decoder, GPT2)
    warm = torch.zeros(1, 16, dtype=torch.int64)
    tokens = torch.randint(0, 64, (1, length), generator=torch.Generator().manual_seed(0))
    kept: list[object] = []

    @torch.no_grad()
    def run(tokens: Tensor) -> None:
        if how == "plain":
            kept.append(model(tokens))
            return
        with record(model, WEIGHTS) as recording:
            kept.append((model(tokens), recording))

    run(warm)
    return _most_held(lambda: run(tokens))


def compare_memory(length: int, rounds: int) -> dict[str, Any]:
    """Plain and recorded, each several times in fresh processes; the medians."""
    found: dict[str, list[int]] = {"plain": [], "recorded": []}
    for _ in range(rounds):
        for how, sizes in found.items():
            done = subprocess.run(
                [sys.executable, __file__, "--measure", f"{length},{how}"],
                capture_output=True,
                text=True,
                check=True,
            )
            sizes.append(int(done.stdout))
    middle = {how: sorted(sizes)[rounds // 2] / 2**20 for how, sizes in found.items()}
    extra = middle["recorded"] - middle["plain"]
    print(
        f"{length:5} tokens: plain {middle['plain']:.0f} MiB, recorded "
        f"{middle['recorded']:.0f} MiB: {extra:+.0f} MiB"
    )
    return {"tokens": length, **middle, "extra_mebibytes": extra}


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="What looking costs.")
    parser.add_argument(
        "--part", default="hooks,weights,memory", help="some of hooks,weights,memory"
    )
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by size)")
    parser.add_argument(
        "--quick", action="store_true", help="tiny and small, 128 and 512 tokens, few rounds"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        length, how = options.measure.split(",")
        print(measure_memory(int(length), how))
        return
    if unknown := set(options.part.split(",")) - {"hooks", "weights", "memory"}:
        parser.error(
            f"unknown parts: {', '.join(sorted(unknown))}; known are hooks, weights, memory."
        )
    print(
        f"{platform.machine()}, torch {torch.__version__}, matrix path: "
        f"{matrix_path_probe()}, one thread"
    )
    found: dict[str, Any] = {}
    columns = f"{'ratio, wall':22}  {'ratio, processor':22}  {'a thing beside itself':22}"
    if "hooks" in options.part:
        print(f"{'':17} {'bare':>9}      {columns}")
        sizes = ["tiny", "small"] if options.quick else list(SIZES)
        found["hooks"] = [
            row for name in sizes for row in compare_hook_points(name, options.rounds or 30)
        ]
    if "weights" in options.part:
        print(f"{'':12} {'plain':>9}      {columns}")
        lengths = [128, 512] if options.quick else list(ROUNDS)
        found["weights"] = [
            compare_weights(length, options.rounds or ROUNDS[length]) for length in lengths
        ]
    if "memory" in options.part:
        found["memory"] = [compare_memory(512 if options.quick else 2048, 3)]
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def _point(node: ast.AST) -> str | None:
    """Name the hook point that a call goes to: `self.visit(…)` or `part.visit(…)`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    ):
        return (
            node.func.attr
            if node.func.attr in POINTS and node.func.value.id in ("self", "part")
            else None
        )
    return None


def _seeded(build: Callable[[Any], nn.Module], config: Any) -> Any:
    torch.manual_seed(0)
    return build(config).eval()


def _forward(model: nn.Module, tokens: Tensor, _: Tensor) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return model(tokens)

    return call


def _training(model: nn.Module, tokens: Tensor, targets: Tensor) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def call() -> object:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return call


def _most_held(call: Callable[[], object]) -> int:
    """Watch the memory of this process while a call runs, every millisecond, and return the most
    above the start."""
    status = Path("/proc/self/statm")
    page = 4096
    start = int(status.read_text().split()[1])
    most, is_over = start, threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_over.wait(0.001):
            most = max(most, int(status.read_text().split()[1]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    is_over.set()
    watcher.join()
    return (max(most, int(status.read_text().split()[1])) - start) * page


if __name__ == "__main__":
    main()
