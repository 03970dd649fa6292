"""Could torch.compile replace `simd`? The sorter written by hand with the models innermost, given
to torch.compile, beside the compiled layout `simd`: python benchmarks/spike_compile.py

Each contestant runs in a process of its own with empty caches. Its figure is what 15,000 steps
cost, the first with all compiling, in processor seconds of it and of the C++ compiler; one thread.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.experiments.sorting import sorter
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.train import Member
from attnlab.train.layouts.layout import Batch
from attnlab.train.layouts.simd import Simd

Advance = Callable[[Sequence[Batch], int], Tensor]

ROUNDS, STEPS, RATE = 3, 15_000, 1e-3
BLOCK = 64  # of so many models the numbers stay in the cache
CONFIG = SortingConfig()
ROWS = CONFIG.sequence_task().rows(CONFIG.sequence_task().all_prompts())
GIVEN, WANTED = (F.one_hot(each, 4).float() for each in (ROWS[:, :-1], ROWS[:, 1:]))
BLOCKED = torch.ones(6, 6).triu(1).bool()[..., None, None]  # (query, key, head, model)


def _linear(x: Tensor, weight: Tensor) -> Tensor:  # (…, in, model), (out, in, model)
    return (x.unsqueeze(-3) * weight).sum(-2)


def _norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    centered = x - x.mean(-2, keepdim=True)
    return centered * (centered.square().mean(-2, keepdim=True) + 1e-5).rsqrt() * gain + bias


def _losses(p: dict[str, Tensor], counts: Tensor) -> tuple[Tensor, Tensor]:
    tokens = p["embedding.tokens.weight"]
    x = (GIVEN[..., None, None] * tokens).sum(2) + p["embedding.positions.weight"][:6]
    read = _norm(x, p["layers.0.norm_attention.weight"], p["layers.0.norm_attention.bias"])
    made = {}
    for name in ("query", "key", "value"):
        a, b, base = (p[f"layers.0.attention.{name}.{part}"] for part in ("a", "b", "base"))
        weight = (a.unsqueeze(3) * b.unsqueeze(1)).sum(2).softmax(2) * base  # (head, in, out, …)
        made[name] = (read[:, :, None, :, None] * weight).sum(3)  # (row, place, head, out, model)
    scores = (made["query"].unsqueeze(2) * made["key"].unsqueeze(1)).sum(-2) / 3**0.5
    weights = scores.masked_fill(BLOCKED, -torch.inf).softmax(2)
    heads = (weights.unsqueeze(-2) * made["value"].unsqueeze(1)).sum(2).flatten(2, 3)
    x = x + _linear(heads, p["layers.0.attention.output.weight"])
    read = _norm(x, p["layers.0.norm_feed_forward.weight"], p["layers.0.norm_feed_forward.bias"])
    inner = _linear(read, p["layers.0.feed_forward.inner.weight"]).relu()
    x = x + _linear(inner, p["layers.0.feed_forward.outer.weight"])
    logits = _linear(_norm(x, p["final_norm.weight"], p["final_norm.bias"]), tokens)
    by_row = -(logits.log_softmax(-2) * WANTED.unsqueeze(-1)).sum(-2).mean(1)
    found = (by_row * counts).sum(0) / CONFIG.batch_size
    return found.sum(), found


def _by_compile(members: Sequence[Member]) -> Advance:
    shapes = {name: each.shape for name, each in members[0].model.named_parameters()}

    def step(p: Tensor, m: Tensor, v: Tensor, counts: Tensor, t: Tensor) -> Tensor:
        cut = p.split([shape.numel() for shape in shapes.values()])
        parts = {n: each.view(*shapes[n], -1) for n, each in zip(shapes, cut, strict=True)}
        gradients, (_, found) = torch.func.grad_and_value(_losses, has_aux=True)(parts, counts)
        g = torch.cat([each.flatten(0, -2) for each in gradients.values()])
        g = g * (1 / (g.square().sum(0).sqrt() + 1e-6)).clamp(max=1.0)
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        change = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        p.mul_(1 - RATE * 0.01).sub_(RATE * change)
        return found

    compiled = torch.compile(step, fullgraph=True, dynamic=False)
    flat = [torch.nn.utils.parameters_to_vector(each.model.parameters()) for each in members]
    whole = torch.stack(flat, 1).detach().split(BLOCK, 1)
    state = [torch.stack([each, 0 * each, 0 * each]).unbind() for each in whole]

    def advance(batches: Sequence[Batch], first: int) -> Tensor:
        counts = torch.stack([each for (each,) in batches], -1).float()  # (step, row, model)
        blocks = [each.contiguous() for each in counts.split(BLOCK, -1)]
        for index in range(len(counts)):
            t = torch.tensor(float(first + index + 1))
            for own, block in zip(state, blocks, strict=True):
                found = compiled(*own, block[index], t)
        return found

    return advance


def _by_simd(members: Sequence[Member]) -> Advance:
    example = tuple(part[0] for part in members[0].sample(0, 1))
    models, configs = [each.model for each in members], [each.config for each in members]
    layout = Simd(models, configs, sorter.problem([CONFIG], [0]).loss, example)

    def advance(batches: Sequence[Batch], first: int) -> Tensor:
        rates = torch.full((len(batches[0][0]), len(members)), RATE, dtype=torch.float64)
        return layout.advance(batches, rates, first, bool).losses[-1]

    return advance


def contest(name: str, number: int) -> None:
    """Run one contestant: print its first step's seconds, a model-step's seconds, a loss."""
    torch.set_num_threads(1)
    members = sorter.problem([CONFIG] * number, range(number)).members
    batches = [each.sample(0, 10) for each in members]
    began = sum(os.times()[:4])  # with those of the compiler
    advance = _by_simd(members) if name == "simd" else _by_compile(members)
    advance([tuple(part[:1] for part in each) for each in batches], 0)
    cold, times = sum(os.times()[:4]) - began, []
    for call in range(30):
        began = time.process_time()
        found = advance(batches, 1 + 10 * call)
        times.append((time.process_time() - began) / 10 / number)
    print(cold, statistics.median(times), float(found[-1]))


def main() -> None:
    """Run the contestants in turn, and compare."""
    if len(sys.argv) == 3:
        contest(sys.argv[1], int(sys.argv[2]))
        return
    for number in (64, 1_024):
        found: dict[str, list[list[float]]] = {"simd": [], "compile": []}
        for name, own in list(found.items()) * ROUNDS:
            with tempfile.TemporaryDirectory() as folder:
                places = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
                environment = os.environ | places | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
                command = [sys.executable, __file__, name, str(number)]
                done = subprocess.run(command, env=environment, capture_output=True, check=True)
            own.append([float(word) for word in done.stdout.split()])
        for name, own in found.items():
            cold, step, loss = (statistics.median(each) for each in zip(*own, strict=True))
            print(f"{number:5} models, {name:7}: cold {cold:5.1f} s, {1e6 * step:6.2f} us a step,")
            print(f"  {cold + step * STEPS * number:7.1f} s in all, loss {loss:.6f}", flush=True)


if __name__ == "__main__":
    main()
