"""Programs compiled by attnlab and by Tracr, side by side in one run.

    taskset -c 0 python benchmarks/compilers.py [--rounds 5] [--parts errors times]  # five minutes

Both compile with their default settings. Times are processor times, on one core. Compile: the first
time in the process, then the median of interleaved rounds. Answers: 10,000 inputs of full length,
from tokens to values; Tracr's `apply` takes one input at a time and is not jitted, so 50 a round
are timed and scaled, and beside it stands Tracr's forward pass batched and jitted by hand. Wrong:
of all inputs up to the length, those whose answer differs from plain Python's somewhere (a number:
by more than 0.001); where Python says None, it does not ask. Warned: those of Tracr's wrong ones on
which its own validator says anything.
"""

import argparse
import importlib
import itertools
import random
from collections.abc import Callable
from collections.abc import Sequence as Items
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import torch

from attnlab.programs import CompiledProgram, Program, compile_program, library
from results import Table, leave_without, measured
from timing import interleaved, seconds

leave_without("jax", "tracr")
jax, rasp, lib, compiling, validating = map(
    importlib.import_module,
    ("jax", "tracr.rasp.rasp", "tracr.compiler.lib", "tracr.compiler.compiling",
     "tracr.compiler.validating"),
)  # fmt: skip

MANY, ONE_BY_ONE, CLOSE = 10_000, 50, 1e-3
Tokens = tuple[Any, ...]
Answers = list[list[Any]]


class Case(NamedTuple):
    """A program of both, and what it says in plain Python."""

    name: str
    tracr: Any
    ours: Program
    longest: int
    says: Callable[[Tokens], Items[Any]]


def share(tokens: Tokens, token: str) -> list[Fraction]:
    """Give the share of a token among the tokens so far."""
    return [Fraction(tokens[:end].count(token), end) for end in range(1, len(tokens) + 1)]


def balance(tokens: Tokens) -> list[Fraction]:
    """Give the share of "(" less that of ")" so far."""
    return [one - two for one, two in zip(share(tokens, "("), share(tokens, ")"), strict=True)]


def is_balanced(tokens: Tokens, pair: str) -> bool:
    """Say whether one kind of bracket is balanced on its own."""
    depths = list(itertools.accumulate((token == pair[0]) - (token == pair[1]) for token in tokens))
    return bool(depths[-1] == 0 <= min(depths))


def everywhere(value: Callable[[Tokens], Any]) -> Callable[[Tokens], Items[Any]]:
    """Give one value of an input at every position."""
    return lambda tokens: [value(tokens)] * len(tokens)


def cases() -> list[Case]:
    """List the programs that both libraries have; `reverse` is that of Tracr's README."""
    tokens, three = rasp.tokens, (1, 2, 3)
    reverse = rasp.Aggregate(
        rasp.Select(rasp.indices, lib.make_length() - rasp.indices - 1, rasp.Comparison.EQ), tokens
    )
    sort = lib.make_sort(tokens, tokens, max_seq_len=6, min_key=1)
    is_a = tokens == "a"
    abc = ("a", "b", "c")
    return [
        Case("length", lib.make_length(), library.length_of("ab"), 10, everywhere(len)),
        Case("reverse", reverse, library.reverse(three), 5, lambda x: x[::-1]),
        Case("reverse", reverse, library.reverse(three), 10, lambda x: x[::-1]),
        Case("hist", lib.make_hist(), library.hist(abc), 8, lambda x: [x.count(t) for t in x]),
        Case("sort", sort, library.sort(three), 6, sorted),
        Case("sort by frequency", lib.make_sort_freq(6), library.sort_by_frequency(abc), 6,
             lambda x: sorted(x, key=lambda t: -x.count(t))),
        Case("fraction so far", lib.make_frac_prevs(is_a), library.fraction_so_far("ab", "a"), 8,
             lambda x: share(x, "a")),
        Case("majority so far", lib.make_frac_prevs(is_a) > 0.5,
             library.majority_so_far("ab", "a"), 5, lambda x: [s > 0.5 for s in share(x, "a")]),
        Case("pair balance", lib.make_pair_balance(tokens, "(", ")"), library.pair_balance(), 6,
             balance),
        Case("shuffle dyck 2", lib.make_shuffle_dyck2(), library.shuffle_dyck_2(), 6,
             everywhere(lambda x: is_balanced(x, "()") and is_balanced(x, "{}"))),
        Case("count", lib.make_count(tokens, "a"), library.count("ab", "a"), 10,
             everywhere(lambda x: x.count("a"))),
        Case("detect abc", lib.detect_pattern(tokens, "abc"), library.detect(abc, "abc"), 6,
             lambda x: [None, None, *(x[i:i + 3] == abc for i in range(len(x) - 2))][:len(x)]),
    ]  # fmt: skip


def compile_ours(case: Case) -> CompiledProgram:
    """Compile with attnlab's default settings."""
    return compile_program(case.ours, case.longest)


def our_answers(model: CompiledProgram, inputs: Items[Tokens]) -> Answers:
    """Compute answers in one batch; numbers as the model gives them."""
    logits = model.logits(model.ids(inputs))
    if model.numbers is not None:
        return [row.tolist() for row in logits[..., 0]]
    return [[model.values[code] for code in row] for row in logits.argmax(-1).tolist()]


def our_size(model: CompiledProgram) -> str:
    """Say layers x heads, stream and hidden width."""
    config = model.model.config
    return f"{config.num_layers} x {config.num_heads}, {config.d_model}, {config.inner_width}"


class Theirs:
    """A model of Tracr's, and its forward pass batched and jitted."""

    def __init__(self, case: Case) -> None:
        self.model = compiling.compile_rasp_to_model(
            case.tracr, set(case.ours.alphabet), case.longest
        )
        self._forward = jax.jit(self.model.forward)

    def batch(self, inputs: Items[Tokens]) -> Answers:
        """Compute answers of inputs of one length."""
        encode, decode = self.model.input_encoder.encode, self.model.output_encoder.decode
        ids = jax.numpy.array([encode([compiling.COMPILER_BOS, *tokens]) for tokens in inputs])
        rows = self._forward(self.model.params, ids).unembedded_output.tolist()
        return [decode(row)[1:] for row in rows]

    def one_by_one(self, inputs: Items[Tokens]) -> Answers:
        """Compute answers as Tracr does."""
        return [self.model.apply([compiling.COMPILER_BOS, *each]).decoded[1:] for each in inputs]

    def size(self) -> str:
        """Say layers x heads, stream and hidden width."""
        config, width = self.model.model_config, len(self.model.residual_labels)
        return f"{config.num_layers} x {config.num_heads}, {width}, {config.mlp_hidden_size}"


def is_right(expected: Any, got: Any) -> bool:
    """Compare one answer; a number may be a little off, a truth value or a symbol may not."""
    if expected is None:
        return True
    if isinstance(got, float) and not isinstance(expected, str):
        return abs(got - float(expected)) <= CLOSE
    return bool(got == expected)


def agrees(case: Case, tokens: Tokens, answers: Items[Any]) -> bool:
    """Compare all answers of one input with plain Python."""
    pairs = zip(case.says(tokens), answers, strict=True)
    return all(is_right(expected, got) for expected, got in pairs)


def every_input(case: Case) -> list[list[Tokens]]:
    """List all inputs, shortest first, those of one length together."""
    lengths = range(1, case.longest + 1)
    return [list(itertools.product(case.ours.alphabet, repeat=length)) for length in lengths]


def wrong_ones(case: Case, answer: Callable[[Items[Tokens]], Answers]) -> list[Tokens]:
    """List the inputs on which a model differs from plain Python."""
    found = []
    for inputs in every_input(case):
        for tokens, answers in zip(inputs, answer(inputs), strict=True):
            if not agrees(case, tokens, answers):
                found.append(tokens)
    return found


def compare_times(case: Case, rounds: int, compiling_table: Table, answers_table: Table) -> None:
    """Add the case's rows: compiling, and answering."""
    ours, theirs = partial(compile_ours, case), partial(Theirs, case)
    first = seconds(ours), seconds(theirs)
    again = interleaved({"attnlab": ours, "Tracr": theirs}, rounds=rounds)
    rng, our_model, their_model = random.Random(0), ours(), theirs()
    inputs = [tuple(rng.choices(case.ours.alphabet, k=case.longest)) for _ in range(MANY)]
    answers = interleaved(
        {
            "attnlab": partial(our_answers, our_model, inputs),
            "Tracr": partial(their_model.one_by_one, inputs[:ONE_BY_ONE]),
            "Tracr, batched by hand": partial(their_model.batch, inputs),
        },
        rounds=rounds,
    )
    name = f"{case.name}, {case.longest}"
    compiled = {which: found.processor for which, found in again.items()}
    note = f"the first time {first[0]:.2f} and {first[1]:.2f} s"
    compiling_table.add(name, compiled, note=note)
    took = {which: found.processor for which, found in answers.items()}
    took["Tracr"] = [MANY / ONE_BY_ONE * second for second in took["Tracr"]]
    answers_table.add(name, took)


def compare_errors(case: Case, table: Table) -> None:
    """Add the case's row of wrong answers, with the sizes of both models."""
    ours, theirs = compile_ours(case), Theirs(case)
    inputs = every_input(case)
    assert theirs.one_by_one(inputs[-1][:3]) == theirs.batch(inputs[-1])[:3]
    our_wrong = wrong_ones(case, partial(our_answers, ours))
    wrong = wrong_ones(case, theirs.batch)
    for tokens in wrong:  # It is the compiler that is wrong: the program says what Python says.
        assert agrees(case, tokens, case.tracr(tokens)), tokens
    warned = sum(bool(validating.validate(case.tracr, tokens)) for tokens in wrong)
    note = f"of {sum(map(len, inputs)):,}; {our_size(ours)} and {theirs.size()}"
    if wrong:
        note += f"; first {' '.join(map(str, wrong[0]))}, {warned} warned"
    values = {"attnlab": [float(len(our_wrong))], "Tracr": [float(len(wrong))]}
    table.add(f"{case.name}, {case.longest}", values, unit="inputs wrong", note=note)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parts = ["errors", "times"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    options = parser.parse_args()
    torch.set_num_threads(1)
    common = {"ours": ["attnlab"], "packages": ["tracr-pypi", "jax", "dm-haiku"]}
    if "errors" in options.parts:
        what = "wrong inputs of all; layers x heads, stream, hidden width of both models"
        with measured("compilers", "errors", what, **common) as table:
            for case in cases():
                compare_errors(case, table)
    if "times" in options.parts:
        rounds = options.rounds
        compile_what, answer_what = "compiling once more", f"answering {MANY:,} inputs"
        with (
            measured("compilers", "compiling", compile_what, rounds=rounds, **common) as compiled,
            measured("compilers", "answers", answer_what, rounds=rounds, **common) as answered,
        ):
            for case in cases():
                compare_times(case, rounds, compiled, answered)


if __name__ == "__main__":
    main()
