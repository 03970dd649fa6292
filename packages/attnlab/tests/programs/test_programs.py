"""Programs compiled and proved on every input, against oracles written without the language."""

from itertools import chain, product

import pytest

from attnlab.programs import (
    Program,
    ProgramError,
    aggregate,
    best,
    everything,
    indices,
    library,
    select,
)
from attnlab.programs import tokens as input_tokens
from attnlab.programs.compiler import compile_program
from attnlab.programs.interpreter import interpret
from attnlab.programs.proof import prove_program

from . import oracles

CASES = {
    "length": (library.length_of("abc"), oracles.length, 6),
    "reverse": (library.reverse("abc"), oracles.reverse, 7),
    "hist": (library.hist("abcd"), oracles.hist, 6),
    "double_hist": (library.double_hist("abc"), oracles.double_hist, 6),
    "seen_before": (library.seen_before("abc"), oracles.seen_before, 6),
    "previous_count": (library.previous_count("abc"), oracles.previous_count, 6),
    "sort": (library.sort("abc"), oracles.sort, 6),
    "sort_unique": (library.sort_unique("abc"), oracles.sort_unique, 6),
    "sort_by_frequency": (library.sort_by_frequency("abc"), oracles.sort_by_frequency, 6),
    "most_frequent_first": (library.most_frequent_first("abc"), oracles.most_frequent_first, 6),
    "fraction_so_far": (library.fraction_so_far("abc", "a"), oracles.fraction_so_far, 6),
    "majority_so_far": (library.majority_so_far("ab", "a"), oracles.majority_so_far, 9),
    "pair_balance": (library.pair_balance(), oracles.pair_balance, 6),
    "dyck_1": (library.dyck_1(), oracles.dyck_1, 10),
    "dyck_2": (library.dyck_2(), oracles.dyck_2, 5),
    "dyck_3": (library.dyck_3(), oracles.dyck_3, 4),
    "shuffle_dyck_2": (library.shuffle_dyck_2(), oracles.shuffle_dyck_2, 5),
    "count": (library.count("abc", "a"), oracles.count, 6),
    "contains": (library.contains("abc", "a"), oracles.contains, 6),
    "has_focus": (library.has_focus("abc"), oracles.has_focus, 6),
    "indicator": (library.indicator("abc", "a"), oracles.indicator, 6),
    "minimum": (library.minimum(), oracles.minimum, 6),
    "maximum": (library.maximum(), oracles.maximum, 6),
    "average": (library.average(), oracles.average, 6),
    "running_sum": (library.running_sum(), oracles.running_sum, 6),
    "shift": (library.shift("abc"), oracles.shift, 6),
    "load_from": (library.load_from("abc"), oracles.load_from, 6),
    "mark_first": (library.mark_first("abc", "a"), oracles.mark_first, 6),
    "mark_last": (library.mark_last("abc", "a"), oracles.mark_last, 6),
    "next_identical": (library.next_identical("abc"), oracles.next_identical, 6),
    "smallest": (library.smallest(), oracles.smallest, 6),
    "largest": (library.largest(), oracles.largest, 6),
    "induction": (library.induction("abc"), oracles.induction, 6),
    "detect": (library.detect("abc", "abc"), oracles.detect, 6),
    "count_rarer": (library.count_rarer("abc", 2), oracles.count_rarer, 6),
    "add_neighbors": (library.add_neighbors(), oracles.add_neighbors, 6),
}


def inputs_of(program, longest):
    for length in range(1, longest + 1):
        for tokens in product(program.alphabet, repeat=length):
            yield tokens if isinstance(tokens[0], int) else "".join(tokens)


@pytest.mark.parametrize("name", CASES)
def test_a_program_means_what_its_oracle_says(name):
    program, oracle, longest = CASES[name]
    for tokens in inputs_of(program, min(longest, 5)):
        assert interpret(program, tokens) == oracle(tokens), tokens


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_program_is_right_on_every_input(name):
    program, _, longest = CASES[name]
    proof = prove_program(compile_program(program, longest), program)
    assert proof.holds, str(proof)
    assert proof.inputs == sum(len(program.alphabet) ** n for n in range(1, longest + 1))


def test_each_dimension_of_the_stream_has_one_meaning():
    for program in (library.addition(), library.dyck_1(), library.sort("abc")):
        compiled = compile_program(program, 7)
        held = chain(*(range(first, last + 1) for _, first, last in compiled.stream))
        assert list(held) == list(range(1 + compiled.stream[-1][2]))


def test_best_selects_all_keys_that_share_the_highest_score_not_the_first_of_them():
    program = Program(
        aggregate(best(everything, input_tokens), indices), (1, 2), "where-the-largest"
    )
    assert interpret(program, (2, 1, 2)) == [1.0, 1.0, 1.0]
    assert interpret(program, (1, 2, 2)) == [1.5, 1.5, 1.5]
    proof = prove_program(compile_program(program, 4), program)
    assert proof.holds


def test_a_query_that_selects_nothing_in_the_longest_input_alone_needs_a_default():
    shorter = select(library.length, 3, "<")
    program = Program(aggregate(shorter, indices), "ab", "short")
    assert prove_program(compile_program(program, 2), program).holds
    with pytest.raises(ProgramError, match="nothing"):
        compile_program(program, 3)
