"""Programs compiled and proved on every input, against oracles written without the language."""

from itertools import chain, product

import pytest

from attnlab.programs import library
from attnlab.programs.compiler import compile_program
from attnlab.programs.interpreter import interpret
from attnlab.programs.proof import prove_program
from tests.sampling import sampled

from .oracles import ORACLES

CASES = {
    "length": (library.length_of("abc"), 6),
    "reverse": (library.reverse("abc"), 7),
    "hist": (library.hist("abcd"), 6),
    "double_hist": (library.double_hist("abc"), 6),
    "seen_before": (library.seen_before("abc"), 6),
    "previous_count": (library.previous_count("abc"), 6),
    "sort": (library.sort("abc"), 6),
    "sort_unique": (library.sort_unique("abc"), 6),
    "sort_by_frequency": (library.sort_by_frequency("abc"), 6),
    "most_frequent_first": (library.most_frequent_first("abc"), 6),
    "fraction_so_far": (library.fraction_so_far("abc", "a"), 6),
    "majority_so_far": (library.majority_so_far("ab", "a"), 9),
    "pair_balance": (library.pair_balance(), 6),
    "dyck_1": (library.dyck_1(), 10),
    "dyck_2": (library.dyck_2(), 5),
    "dyck_3": (library.dyck_3(), 4),
    "shuffle_dyck_2": (library.shuffle_dyck_2(), 5),
    "count": (library.count("abc", "a"), 6),
    "contains": (library.contains("abc", "a"), 6),
    "has_focus": (library.has_focus("abc"), 6),
    "indicator": (library.indicator("abc", "a"), 6),
    "minimum": (library.minimum(), 6),
    "maximum": (library.maximum(), 6),
    "average": (library.average(), 6),
    "running_sum": (library.running_sum(), 6),
    "shift": (library.shift("abc"), 6),
    "load_from": (library.load_from("abc"), 6),
    "mark_first": (library.mark_first("abc", "a"), 6),
    "mark_last": (library.mark_last("abc", "a"), 6),
    "next_identical": (library.next_identical("abc"), 6),
    "smallest": (library.smallest(), 6),
    "largest": (library.largest(), 6),
    "induction": (library.induction("abc"), 6),
    "detect": (library.detect("abc", "abc"), 6),
    "count_rarer": (library.count_rarer("abc", 2), 6),
    "add_neighbors": (library.add_neighbors(), 6),
}


def inputs_of(program, longest):
    for length in range(1, longest + 1):
        for tokens in product(program.alphabet, repeat=length):
            yield tokens if isinstance(tokens[0], int) else "".join(tokens)


@pytest.mark.parametrize("name", CASES)
def test_a_program_means_what_its_oracle_says(name):
    program, longest = CASES[name]
    length = min(longest, {1: 5, 2: 5, 3: 4, 4: 4}.get(len(program.alphabet), 3))
    for tokens in inputs_of(program, length):
        assert interpret(program, tokens) == ORACLES[name](tokens), tokens


# One of each way to select, to aggregate and to count, and of the deepest ones.
SAMPLE = (
    *("reverse", "double_hist", "sort_by_frequency", "fraction_so_far", "dyck_2"),
    *("average", "load_from", "induction", "add_neighbors"),
)


@pytest.mark.parametrize("name", sampled(CASES, SAMPLE))
def test_a_compiled_program_is_right_on_every_input(name):
    program, longest = CASES[name]
    proof = prove_program(compile_program(program, longest), program)
    assert proof.holds, str(proof)
    assert proof.inputs == sum(len(program.alphabet) ** n for n in range(1, longest + 1))


def test_each_dimension_of_the_stream_has_one_meaning():
    for program in (library.addition(), library.dyck_1(), library.sort("abc")):
        compiled = compile_program(program, 7)
        held = chain(*(range(first, last + 1) for _, first, last in compiled.stream))
        assert list(held) == list(range(1 + compiled.stream[-1][2]))
