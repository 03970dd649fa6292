"""What looking costs: hook points without hooks, and all weights of a GPT-2-small shape recorded.

    python benchmarks/recording.py [--parts hooks weights memory] [--lengths 128 512 2048]
    [--rounds 15]

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
from attnlab.sites import SitedModule
from results import Table, measured
from timing import interleaved

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


def compare_hook_points(name: str, rounds: int, table: Table) -> None:
    """Our decoder beside its bare twin."""
    config, batch = SIZES[name]
    ours, bare = (_seeded(build, config) for build in (Decoder, bare_decoder()))
    source = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(
        0, config.vocab_size, (2, batch, config.max_length), generator=source
    )
    with torch.no_grad():
        assert torch.equal(ours(tokens), bare(tokens)), "the bare twin computes something else"
    calls, cost = sum(count_calls(ours, tokens).values()), seconds_of_a_call(ours)
    for task, make in (("forward", _forward), ("training", _training)):
        contestants = {
            "bare": make(bare, tokens, targets),
            "attnlab": make(ours, tokens, targets),
            # The same once more: what two names of one thing differ by is what this clock can tell.
            "bare again": make(bare, tokens, targets),
        }
        times = interleaved(contestants, rounds=rounds, least_seconds=0.05)
        milliseconds = {
            each: [1e3 * second for second in found.processor] for each, found in times.items()
        }
        share = calls * cost / sorted(times["bare"].processor)[rounds // 2]
        note = f"{calls} calls of {1e9 * cost:.0f} ns: {share:.2%}"
        table.add(f"{name}, {task}", milliseconds, unit="ms", note=note)


def compare_weights(length: int, rounds: int, table: Table) -> None:
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

    contestants = {"plain pass": plain, "attnlab": recorded, "plain again": plain}
    times = interleaved(contestants, rounds=rounds)
    table.add(f"{length:,} tokens", {name: found.processor for name, found in times.items()})


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


def compare_memory(length: int, rounds: int, table: Table) -> None:
    """Plain and recorded, each several times in fresh processes."""
    found: dict[str, list[float]] = {"plain pass": [], "attnlab": []}
    for _ in range(rounds):
        for name, sizes in found.items():
            how = "plain" if name == "plain pass" else "recorded"
            command = [sys.executable, __file__, "--measure", f"{length},{how}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            sizes.append(int(done.stdout) / 2**20)
    table.add(f"{length:,} tokens", found, unit="MiB")


def main() -> None:
    """Read the arguments, measure, write the results."""
    parser = argparse.ArgumentParser(description="What looking costs.")
    parts = ["hooks", "weights", "memory"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(ROUNDS))
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by size)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        length, how = options.measure.split(",")
        print(measure_memory(int(length), how))
        return
    ours, rounds = ["attnlab"], options.rounds
    if "hooks" in options.parts:
        what = "hook points without hooks: time over the same decoder with none"
        with measured(
            "recording", "hooks", what, ours=ours, reference="bare", peers=["bare"],
            rounds=rounds or 30,
        ) as table:  # fmt: skip
            for name in SIZES:
                compare_hook_points(name, rounds or 30, table)
    if "weights" in options.parts:
        what = "all weights of our decoder of GPT-2's shape recorded: time over the plain pass"
        least = min(rounds or ROUNDS[length] for length in options.lengths)
        with measured(
            "recording", "weights", what, ours=ours, reference="plain pass", peers=["plain pass"],
            rounds=least,
        ) as table:  # fmt: skip
            for length in options.lengths:
                compare_weights(length, rounds or ROUNDS[length], table)
    if "memory" in options.parts:
        what = "the most memory above the loaded model, all weights recorded"
        with measured("recording", "memory", what, ours=ours, rounds=3) as table:
            compare_memory(2048, 3, table)


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
