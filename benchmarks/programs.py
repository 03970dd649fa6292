"""Programs: seconds to compile, to answer 10,000 inputs, and to prove large domains.

    python benchmarks/programs.py [--rounds 5]

Compile: every program of the library, to 8 tokens. Answers: `hist` over 5 letters, 10,000 inputs of
8 tokens in one call. Proofs, with certificate and the bound on rounding: `dyck_1` on all 131,070
inputs of up to 16 brackets, `hist` on all 488,280 of up to 8 of 5 letters. Medians of rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from attnlab.programs import compile_program, library, prove_program
from attnlab.programs.language import Program

LETTERS = "abc"
LIBRARY = [
    *(make(LETTERS) for make in (
        library.length_of, library.reverse, library.hist, library.double_hist, library.sort,
        library.seen_before, library.previous_count, library.sort_unique, library.shift,
        library.sort_by_frequency, library.most_frequent_first, library.load_from,
        library.next_identical, library.induction,
    )),
    *(make(LETTERS, "a") for make in (
        library.fraction_so_far, library.majority_so_far, library.count, library.contains,
        library.mark_first, library.mark_last,
    )),
    *(make() for make in (
        library.pair_balance, library.dyck_1, library.dyck_2, library.shuffle_dyck_2,
        library.average, library.running_sum, library.smallest, library.largest,
        library.add_neighbors, library.addition,
    )),
    library.detect(LETTERS, "abc"),
    library.count_rarer(LETTERS, 2),
]  # fmt: skip


def seconds(work: Callable[[], Any], rounds: int) -> list[float]:
    """Time some work again and again."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found


def main() -> None:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds

    def once(program: Program) -> float:
        return statistics.median(seconds(lambda: compile_program(program, 8), rounds))

    compiled = {program.name: once(program) for program in LIBRARY}
    slowest = max(compiled, key=lambda name: compiled[name])
    print(
        f"compile, {len(compiled)} programs   median {statistics.median(compiled.values()):.3f} s, "
        f"most {compiled[slowest]:.3f} s ({slowest})"
    )
    hist = compile_program(library.hist("abcde"), 8)
    rows = hist.with_bos(torch.randint(0, 5, (10_000, 8)))
    answer = statistics.median(seconds(lambda: hist.logits(rows), rounds))
    print(f"10,000 inputs              {answer:.3f} s")
    for program, longest in ((library.dyck_1(), 16), (library.hist("abcde"), 8)):
        model = compile_program(program, longest)
        began = time.perf_counter()
        proof = prove_program(model, program)
        took = time.perf_counter() - began
        assert proof.is_sure, proof
        print(
            f"prove {program.name:8} to {longest:2}      {took:.1f} s for {proof.inputs:,} inputs"
        )


if __name__ == "__main__":
    main()
