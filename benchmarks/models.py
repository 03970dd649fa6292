"""Our models beside their peers: a forward pass, and a whole training step.

    python benchmarks/models.py [--quick] [--threads 1] [--rounds 15] [--sizes small,middle] [--json
    FILE]

The decoder meets the causal peers, the encoder the bidirectional ones. Every contestant goes from
the same token ids to logits over the same vocabulary. "Training" is forward, cross-entropy,
backward, a fused AdamW step and zero_grad. How times are taken and compared: `timing.py`. Who the
peers are: `peers.py`.
"""

import argparse
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.linear import Linear, matrix_path_probe
from peers import BareDecoder, NanoGPT, Size, TorchEncoder, x_transformers_model
from timing import Times, interleaved, ratio

SIZES = {
    "small": Size(d_model=64, num_layers=1, num_heads=4, length=16, batch=32),
    "middle": Size(d_model=256, num_layers=4, num_heads=8, length=256, batch=8),
    "large": Size(d_model=512, num_layers=6, num_heads=8, length=512, batch=4),
}
ROUNDS = {"small": 60, "middle": 24, "large": 10}
QUICK_ROUNDS = {"small": 10, "middle": 3}


class EncoderWithHead(nn.Module):
    """Our encoder, with an output head on every token, as the bidirectional peers have it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.head = Linear(config.d_model, config.vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, vocabulary)."""
        return self.head(self.encoder(ids))


def our_decoder(size: Size) -> Decoder:
    """Build our decoder at a size."""
    return Decoder(DecoderConfig(**_fields(size)))


def our_encoder(size: Size) -> EncoderWithHead:
    """Build our encoder at a size."""
    return EncoderWithHead(EncoderConfig(**_fields(size)))


CONTESTS: dict[str, dict[str, Callable[[Size], nn.Module]]] = {
    "decoder": {
        "ours": our_decoder,
        "nanoGPT's style": NanoGPT,
        "x-transformers": lambda size: x_transformers_model(size, is_causal=True),
        "bare": BareDecoder,
    },
    "encoder": {
        "ours": our_encoder,
        "torch TransformerEncoder": TorchEncoder,
        "x-transformers": lambda size: x_transformers_model(size, is_causal=False),
    },
}


def forward_call(model: nn.Module, ids: Tensor) -> Callable[[], object]:
    """Prepare one forward pass without gradients."""
    model.eval()

    def call() -> object:
        with torch.no_grad():
            return model(ids)

    return call


def training_call(model: nn.Module, ids: Tensor, targets: Tensor) -> Callable[[], object]:
    """Prepare one whole training step."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def call() -> object:
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return call


def contest(kind: str, task: str, size: Size, *, rounds: int) -> dict[str, Times]:
    """Time all contestants of one kind (decoder, encoder) at one task (forward, training)."""
    source = torch.Generator().manual_seed(0)
    ids, targets = torch.randint(0, size.vocab_size, (2, size.batch, size.length), generator=source)
    calls = {}
    for name, build in CONTESTS[kind].items():
        torch.manual_seed(0)
        model = build(size)
        calls[name] = (
            forward_call(model, ids) if task == "forward" else training_call(model, ids, targets)
        )
    return interleaved(calls, rounds=rounds)


def row(
    kind: str, task: str, size_name: str, threads: int, times: dict[str, Times]
) -> dict[str, Any]:
    """Summarize one contest: milliseconds, and our ratio to the peer with the lowest median."""
    wall = {name: _median(found.wall) for name, found in times.items()}
    best = min(
        (name for name in times if name not in ("ours", "bare")), key=lambda name: wall[name]
    )
    by_bare = ratio(times["ours"].wall, times["bare"].wall) if "bare" in times else None
    by_wall = ratio(times["ours"].wall, times[best].wall)
    by_processor = ratio(times["ours"].processor, times[best].processor)
    return {
        "size": size_name,
        "model": kind,
        "task": task,
        "threads": threads,
        "rounds": len(times["ours"].wall),
        "milliseconds": {name: round(1e3 * seconds, 3) for name, seconds in wall.items()},
        "best_peer": best,
        "wall_ratio": by_wall._asdict(),
        "processor_ratio": by_processor._asdict(),
        "bare_ratio": by_bare and by_bare._asdict(),
        "line": f"{size_name:7} {kind:8} {task:9} {threads:7}  {1e3 * wall['ours']:9.2f}  "
        f"{1e3 * wall[best]:9.2f}  {by_wall!s:22}  {by_processor!s:22}  "
        f"{f'{by_bare.median:.3f}' if by_bare else '':5}  {best}",
    }


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Our models beside their peers.")
    parser.add_argument(
        "--threads", type=int, choices=(1, 2), help="only this many (default: 1, then 2)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by size)")
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of small,middle,large")
    parser.add_argument(
        "--quick", action="store_true", help="small and middle, one thread, few rounds"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    asked = options.sizes.split(",")
    if unknown := set(asked) - set(SIZES):
        parser.error(f"unknown sizes: {', '.join(sorted(unknown))}; known are {', '.join(SIZES)}.")
    wanted = [name for name in asked if name in QUICK_ROUNDS or not options.quick]
    all_threads = (
        [options.threads or 1]
        if options.quick
        else [options.threads]
        if options.threads
        else [1, 2]
    )
    rounds = QUICK_ROUNDS if options.quick else ROUNDS

    print(f"{platform.machine()}, torch {torch.__version__}, matrix path: {matrix_path_probe()}")
    columns = f"{'ratio, wall':22}  {'ratio, processor':22}  best peer"
    print(f"{'size':7} {'model':8} {'task':9} threads    ours ms    best ms  {columns}")
    rows = []
    for threads in all_threads:
        torch.set_num_threads(threads)
        for name in wanted:
            for kind in CONTESTS:
                for task in ("forward", "training"):
                    times = contest(kind, task, SIZES[name], rounds=options.rounds or rounds[name])
                    rows.append(row(kind, task, name, threads, times))
                    print(rows[-1].pop("line"), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def _fields(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": size.vocab_size,
        "max_length": size.length,
        "d_model": size.d_model,
        "num_heads": size.num_heads,
        "num_layers": size.num_layers,
        "activation": "gelu",
        "positions": "learned",
    }


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
