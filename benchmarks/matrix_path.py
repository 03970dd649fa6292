"""The matrix path of `parts/linear.py`, on and off: what it saves, and that it changes no gradient.

    python benchmarks/matrix_path.py [--threads 1 2] [--rounds 12] [--sizes middle large]

"On" forces oneDNN wherever a product is large enough, "off" is PyTorch's default. How much there is
to gain is a property of the processor: see `processor.py`.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.parts.linear import MatrixPath, use_matrix_path
from models import ROUNDS, SIZES, forward_call, our_decoder, training_call
from peers import Size
from results import Table, measured
from timing import interleaved


def gradient_differences(size: Size) -> str:
    """Compare every parameter's gradient, on against off, as |on - off| / |off|, and name the
    worst.

    A key's bias moves all scores of a row alike, so its true gradient is zero and what stands there
    is rounding in both: a share of it says nothing. These biases are told apart, as |on - off| over
    the length of the whole gradient.
    """
    ids, targets = _data(size)
    torch.manual_seed(0)
    model = our_decoder(size)

    def gradients(path: MatrixPath) -> dict[str, Tensor]:
        with use_matrix_path(path):
            loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
            found = torch.autograd.grad(loss, list(model.parameters()))
        return dict(zip((name for name, _ in model.named_parameters()), found, strict=True))

    on, off = gradients("onednn"), gradients("default")
    distances = {name: float((on[name] - off[name]).norm()) for name in off}
    lengths = {name: float(off[name].norm()) for name in off}
    whole = sum(length**2 for length in lengths.values()) ** 0.5
    vanishing = [name for name in off if name.endswith("attention.key.bias")]
    worst, name = max(
        (distances[name] / lengths[name], name) for name in off if name not in vanishing
    )
    apart = max(distances[name] for name in vanishing) / whole
    alone = max(distances[name] / lengths[name] for name in vanishing)
    return f"{worst:.1e} ({name}); key biases {apart:.1e} of the whole ({alone:.1e} of themselves)"


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description="The matrix path, on and off.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by size)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["middle", "large"])
    options = parser.parse_args()
    for threads in options.threads:
        torch.set_num_threads(threads)
        with measured(
            "matrix_path",
            f"{threads} thread{'s' * (threads > 1)}",
            "our decoder with oneDNN's products: time over that with PyTorch's default, wall time",
            ours=["on"],
            reference="off",
            rounds=options.rounds or max(ROUNDS[name] for name in options.sizes),
        ) as table:
            for name in options.sizes:
                compare(name, options.rounds or ROUNDS[name], table)


def compare(name: str, rounds: int, table: Table) -> None:
    """Add the rows of one size."""
    size = SIZES[name]
    ids, targets = _data(size)
    calls = {
        "forward": forward_call(our_decoder(size), ids),
        "training": training_call(our_decoder(size), ids, targets),
    }
    note = f"gradients differ by {gradient_differences(size)}"
    for task, call in calls.items():
        times = interleaved(
            {"off": _on_path("default", call), "on": _on_path("onednn", call)}, rounds=rounds
        )
        wall = {path: found.wall for path, found in times.items()}
        table.add(f"{name}, {task}", wall, note=note if task == "training" else "")


def _data(size: Size) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    ids, targets = torch.randint(0, size.vocab_size, (2, size.batch, size.length), generator=source)
    return ids, targets


def _on_path(path: MatrixPath, call: Callable[[], object]) -> Callable[[], object]:
    def on_path() -> object:
        with use_matrix_path(path):
            return call()

    return on_path


if __name__ == "__main__":
    main()
