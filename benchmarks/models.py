"""Our models beside their peers: a forward pass, and a whole training step.

    python benchmarks/models.py [--threads 1 2] [--rounds 15] [--sizes small middle large]

The decoder meets the causal peers, the encoder the bidirectional ones. Every contestant goes from
the same token ids to logits over the same vocabulary. "Training" is forward, cross-entropy,
backward, a fused AdamW step and zero_grad. How times are taken and compared: `timing.py`. Who the
peers are: `peers.py`.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.linear import Linear
from results import leave_without, measured
from timing import Times, interleaved

leave_without("x_transformers")
from peers import BareDecoder, NanoGPT, Size, TorchEncoder, x_transformers_model  # noqa: E402

SIZES = {
    "small": Size(d_model=64, num_layers=1, num_heads=4, length=16, batch=32),
    "middle": Size(d_model=256, num_layers=4, num_heads=8, length=256, batch=8),
    "large": Size(d_model=512, num_layers=6, num_heads=8, length=512, batch=4),
}
ROUNDS = {"small": 60, "middle": 24, "large": 10}
PEERS = ["nanoGPT's style", "torch TransformerEncoder", "x-transformers"]


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
        "attnlab": our_decoder,
        "nanoGPT's style": NanoGPT,
        "x-transformers": lambda size: x_transformers_model(size, is_causal=True),
        "bare": BareDecoder,
    },
    "encoder": {
        "attnlab": our_encoder,
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


def main() -> None:
    """Read the arguments, measure, write the results: a table for each number of threads."""
    parser = argparse.ArgumentParser(description="Our models beside their peers.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by size)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    options = parser.parse_args()
    for threads in options.threads:
        torch.set_num_threads(threads)
        with measured(
            "models",
            f"{threads} thread{'s' * (threads > 1)}",
            "a forward pass and a training step, wall time",
            packages=["x-transformers"],
            ours=["attnlab"],
            peers=PEERS,
            rounds=options.rounds or max(ROUNDS[name] for name in options.sizes),
            limit='"bare" is the same arithmetic with nothing around it',
        ) as table:
            for name in options.sizes:
                for kind in CONTESTS:
                    for task in ("forward", "training"):
                        rounds = options.rounds or ROUNDS[name]
                        times = contest(kind, task, SIZES[name], rounds=rounds)
                        milliseconds = {
                            each: [1e3 * seconds for seconds in found.wall]
                            for each, found in times.items()
                        }
                        table.add(f"{name} {kind}, {task}", milliseconds, unit="ms")


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


if __name__ == "__main__":
    main()
