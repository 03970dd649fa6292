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
from pathlib import Path

import torch

from attnlab.parts.linear import linear, matrix_path_probe, use_matrix_path
from timing import interleaved, ratio

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
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The processor's peak, and the two matrix paths.")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    peaks = {name: measured_peak(width) for name, width in (("AVX2", 8), ("AVX-512", 16))}
    for name, peak in peaks.items():
        print(
            f"peak of one core, {name}: "
            + ("not measured" if peak is None else f"{peak:.0f} GFLOP/s")
        )
    highest = max((peak for peak in peaks.values() if peak is not None), default=None)
    print(f"probe of parts/linear.py: {matrix_path_probe()}")
    print(
        "rows    in   out   default GF/s   oneDNN GF/s   of the peak       time, oneDNN / default"
    )
    for rows, inputs, outputs in SHAPES:
        x, weight, bias = (
            torch.randn(rows, inputs),
            torch.randn(outputs, inputs),
            torch.randn(outputs),
        )

        def product(
            path: str, x: torch.Tensor = x, weight: torch.Tensor = weight, bias: torch.Tensor = bias
        ) -> None:
            with torch.no_grad(), use_matrix_path(path):  # type: ignore[arg-type]
                linear(x, weight, bias)

        times = interleaved(
            {"default": lambda p=product: p("default"), "onednn": lambda p=product: p("onednn")},
            rounds=options.rounds,
        )
        flops = 2e-9 * rows * inputs * outputs
        rates = [flops / statistics.median(times[path].processor) for path in ("default", "onednn")]
        shares = "" if highest is None else " ".join(f"{rate / highest:5.0%}" for rate in rates)
        by_time = ratio(times["onednn"].processor, times["default"].processor)
        print(
            f"{rows:4} {inputs:5} {outputs:5}   {rates[0]:12.0f}   {rates[1]:11.0f}   "
            f"{shares:14}    {by_time}"
        )


if __name__ == "__main__":
    main()
