"""Programs: seconds to compile, to answer 10,000 inputs, and to prove large domains.

    python benchmarks/programs.py [--rounds 5]

Compile: every program of the library, to 8 tokens. Answers: `hist` over 5 letters, 10,000 inputs of
8 tokens in one call. Proofs, with certificate and the bound on rounding: `dyck_1` on all 131,070
inputs of up to 16 brackets, `hist` on all 488,280 of up to 8 of 5 letters. Medians of rounds.
"""

import argparse
import statistics

import torch

from attnlab.programs import compile_program, library, prove_program
from results import measured
from timing import seconds, timed

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


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    what = "compiling, answering, proving"
    with measured("programs", "programs", what, ours=["attnlab"], rounds=rounds) as table:
        compiled = {
            program.name: [seconds(compile_program, program, 8) for _ in range(rounds)]
            for program in LIBRARY
        }
        slowest = max(compiled, key=lambda name: statistics.median(compiled[name]))
        middle = [statistics.median(round) for round in zip(*compiled.values(), strict=True)]
        table.add(f"compile, median of {len(compiled)} programs", {"attnlab": middle})
        table.add(f"compile, the slowest: {slowest}", {"attnlab": compiled[slowest]})
        hist = compile_program(library.hist("abcde"), 8)
        rows = hist.with_bos(torch.randint(0, 5, (10_000, 8)))
        answers = [seconds(hist.logits, rows) for _ in range(rounds)]
        table.add("10,000 inputs of 8 tokens", {"attnlab": answers})
        for program, longest in ((library.dyck_1(), 16), (library.hist("abcde"), 8)):
            model = compile_program(program, longest)
            proof, took = timed(prove_program, model, program)
            assert proof.is_sure, proof
            table.add(f"prove {program.name} on {proof.inputs:,} inputs", {"attnlab": [took]})


if __name__ == "__main__":
    main()
