"""What this processor can do, beside what the two matrix paths make of it.

    python benchmarks/processor.py

The fp32 peak of one core is measured by a small C program (`peak.c`; skipped without a C compiler):
registers only, nothing but multiply-adds, once with AVX2 vectors and once with AVX-512. Then come
products of the shapes that our models have, by PyTorch's default path (MKL) and by oneDNN. A path
that is near the peak cannot be beaten: the gain that `parts/linear.py` can bring on a processor is
bounded by the share that the default leaves unused.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from attnlab.parts.linear import MatrixPath, linear, use_matrix_path
from results import measured
from timing import interleaved

SHAPES = (  # (rows, in, out)
    (512, 64, 256),
    (2048, 256, 256),
    (2048, 256, 1024),
    (2048, 512, 512),
    (2048, 512, 2048),
    (2048, 2048, 512),
    (2048, 2048, 2048),
)


def measured_peak(width: int) -> float | None:
    """Return the GFLOP/s of one core with vectors of `width` floats; None without a compiler or
    such vectors."""
    compiler = next((path for path in map(shutil.which, ("gcc", "clang", "cc")) if path), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        source = Path(__file__).with_name("peak.c")
        command = [
            compiler,
            "-O3",
            "-march=native",
            "-ffp-contract=fast",
            f"-DWIDTH={width}",
            str(source),
        ]
        if compiler.endswith("gcc"):
            command.insert(
                1, "-mprefer-vector-width=512" if width == 16 else "-mprefer-vector-width=256"
            )
        try:
            subprocess.run([*command, "-o", str(program)], check=True, capture_output=True)
            found = subprocess.run([str(program)], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError:
            return None
    return float(found.stdout) / 1e9


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description="The processor's peak, and the two matrix paths.")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    peaks = {name: measured_peak(width) for name, width in (("AVX2", 8), ("AVX-512", 16))}
    known = {name: peak for name, peak in peaks.items() if peak is not None}
    said = ", ".join(f"{peak:.0f} GFLOP/s with {name}" for name, peak in known.items())
    with measured(
        "processor",
        "products",
        "products of our models' shapes by both matrix paths of `parts/linear.py`",
        ours=["oneDNN"],
        reference="default (MKL)",
        rounds=options.rounds,
        limit=f"one core's measured peak, {said}" if known else "",
    ) as table:
        for rows, inputs, outputs in SHAPES:
            calls = _products(rows, inputs, outputs)
            times = interleaved(calls, rounds=options.rounds)
            microseconds = {
                name: [1e6 * second for second in found.processor] for name, found in times.items()
            }
            note = ""
            if known:
                rates = [
                    2e-9 * rows * inputs * outputs / statistics.median(found.processor)
                    for found in times.values()
                ]
                shares = [f"{rate / max(known.values()):.0%}" for rate in rates]
                note = f"{' and '.join(shares)} of the peak"
            table.add(f"{rows} x {inputs} x {outputs}", microseconds, unit="µs", note=note)


def _products(rows: int, inputs: int, outputs: int) -> dict[str, Callable[[], object]]:
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)

    def product(path: MatrixPath) -> None:
        with torch.no_grad(), use_matrix_path(path):
            linear(x, weight, bias)

    return {"default (MKL)": partial(product, "default"), "oneDNN": partial(product, "onednn")}


if __name__ == "__main__":
    main()
