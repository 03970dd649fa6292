"""What a compiler of RASP is known to get wrong, each as a program: right here, or refused."""

import copy
import math
import operator
import random
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.programs import (
    Program,
    ProgramError,
    aggregate,
    best,
    compile_program,
    everything,
    indices,
    interpret,
    library,
    prove_program,
    select,
    selector_width,
    tokens,
    total,
    where,
)
from attnlab.programs.interpreter import ProgramValues
from tests.sampling import first_of_each, sampled

from .oracles import ORACLES
from .test_programs import CASES

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def proved(program, longest, **options):
    compiled = compile_program(program, longest, **options)
    proof = prove_program(compiled, program)
    assert proof.holds, str(proof)
    return compiled


def right_on(compiled, program, rows):
    """Compare on some inputs of one length, given as ids."""
    expected = ProgramValues(program, rows).of(program.output)
    found = compiled.logits(compiled.with_bos(torch.from_numpy(rows))).double().numpy()
    numbers = np.array([float(value) for value in expected.values])[expected.codes]
    return np.abs(found[..., 0] - numbers).max()


def test_a_the_share_of_two_thirds_is_more_than_half():
    program = library.majority_so_far("ab", "a")
    compiled = proved(program, 5)
    assert compiled("aab") == [True, True, True]
    proved(Program(aggregate(library.so_far, tokens == "a") >= 0.6, "ab"), 5)


@BOTH
def test_b_counts_are_exact_at_64_tokens(dtype):
    program = library.hist("ab")
    compiled = compile_program(program, 64, dtype=dtype)
    rows = np.random.default_rng(0).integers(0, 2, (40, 64))
    for some in range(65):  # every count
        rows = np.concatenate((rows, np.arange(64)[None] < some))
    assert right_on(compiled, program, rows) < 1e-3
    for length in (1, 2, 63):
        assert right_on(compiled, program, rows[:, :length]) < 1e-3


def test_b_reverse_at_twenty_tokens_takes_less_than_100_hidden_units():
    compiled = compile_program(library.reverse("abcd"), 20)
    assert compiled.model.config.inner_width < 100
    rows = np.random.default_rng(0).integers(0, 4, (500, 20))
    found = compiled.logits(compiled.with_bos(torch.from_numpy(rows))).argmax(-1).numpy()
    assert (found == rows[:, ::-1]).all()


def test_c_what_is_not_there_has_a_default_of_its_own():
    twice = library.shifted(1, library.shifted(1))
    compiled = proved(Program(twice, "abc"), 5)
    assert compiled("abc") == [".", ".", "a"]
    with pytest.raises(ProgramError, match="with default="):
        compile_program(Program(aggregate(select(indices, indices - 1, "=="), tokens), "ab"), 3)


def test_d_symbols_have_no_mean():
    with pytest.raises(ProgramError, match="symbols have no mean") as refused:
        compile_program(Program(aggregate(library.so_far, tokens), "ab"), 3)
    assert "aggregate(library.so_far, tokens)" in refused.value.line.source
    weighted = aggregate(library.so_far, tokens) * indices
    assert interpret(Program(weighted, (3, 5)), (3, 5, 5)) == [0, 4, pytest.approx(26 / 3)]
    proved(Program(weighted, (3, 5)), 5)


def test_e_one_wrong_input_of_a_thousand_is_found():
    program = library.hist("abc")
    compiled = compile_program(program, 6)
    wrong = copy.deepcopy(compiled)
    with torch.no_grad():  # the hidden units of the highest count alone, which one letter reaches
        unit = wrong.model.layers[0].feed_forward.inner.bias.argmax()
        wrong.model.layers[0].feed_forward.outer.weight[:, unit] *= 1.5
    proof = prove_program(wrong, program)
    assert (proof.failures, proof.inputs) == (3, 1092)  # aaaaaa, bbbbbb and cccccc
    assert proof.counterexample.tokens == tuple("aaaaaa")
    assert prove_program(wrong, program, longest=5).holds


def test_f_a_program_that_looks_ahead_is_not_made_causal():
    with pytest.raises(ProgramError, match="later position"):
        compile_program(library.reverse("ab"), 4, causal=True)
    program = library.induction("ab")
    compiled = proved(program, 5, causal=True)
    ids = compiled.ids(["abbab", "abbaa", "abaaa"])
    logits = compiled.logits(ids)
    assert torch.equal(logits[0, :4], logits[1, :4])
    assert not torch.equal(logits[0, :4], logits[2, :4])


def test_g_selectors_are_joined_by_and_or_not():
    same, before = library.same, library.before
    for selector in (same & before, same | before, ~(same & before), ~same & ~before):
        proved(Program(selector_width(selector), "abc"), 5)
        proved(Program(aggregate(selector, indices, default=-1), "abc"), 4)
    assert interpret(Program(selector_width(~(same & before)), "abc"), "aab") == [3, 2, 3]
    three = (same & before) | (select(tokens, "a", "==") & library.after)
    proved(Program(selector_width(three), "abc"), 5)
    proved(Program(aggregate(three, indices, default=-1), "abc"), 4)


def test_i_logits_are_named_in_their_order():
    program = Program(tokens.map({"a": "z", "b": "m", "c": "a"}.get), "cab")
    compiled = proved(program, 2)
    assert compiled.values == ("a", "z", "m")
    assert compiled("cab"[:2]) == ["a", "z"]


OF_EACH_KIND = pytest.mark.parametrize(
    "program",
    [
        library.fraction_so_far("ab", "a"),
        library.largest((0, 1, 2)),
        Program(aggregate(select(indices, indices - 1, "=="), tokens, 0), (0, 1)),
        Program(aggregate(select(indices, library.length - 1 - indices, "=="), tokens), (0, 1)),
    ],
    ids=["fraction", "largest", "shift", "reverse"],
)


@OF_EACH_KIND
def test_a_tenth_of_the_gain_less_is_refuted(program):
    compiled = proved(program, 5)
    for layer in compiled.model.layers:
        weights = layer.attention.query.weight, layer.attention.query.bias
        with torch.no_grad():
            for weight in weights:
                weight *= 0.9
    assert not prove_program(compiled, program).holds


@pytest.mark.parametrize("tolerance", [1e-6, 0.05])
@OF_EACH_KIND
def test_any_tolerance_is_kept_and_answers_are_exact(program, tolerance):
    compiled = proved(program, 5, tolerance=tolerance)
    assert compiled.tolerance <= tolerance
    for word in product(program.alphabet, repeat=5):
        assert compiled(word) == interpret(program, word)


def test_addition_of_binary_numbers():
    program = library.addition()
    compiled = compile_program(program, 7)
    for digits in (1, 2, 3):
        for one in product("01", repeat=digits):
            for two in product("01", repeat=digits):
                word = "".join((*one, "+", *two))
                assert compiled(word) == ORACLES["addition"](word)


def test_every_program_of_the_library_is_held_against_an_oracle():
    made = set()
    for name, each in vars(library).items():
        is_made = getattr(each, "__annotations__", {}).get("return") is Program
        if is_made and not name.startswith("_"):
            made.add(name)
    assert made - {"addition"} == {"length_of" if name == "length" else name for name in CASES}


def test_a_long_chain_of_maps_is_one_table():
    found = tokens == "a"
    for _ in range(40):
        found = found + found
    assert interpret(Program(found, "ab"), "ab") == [2**40, 0]
    assert len(repr(found)) <= 160
    proved(Program(found * Fraction(1, 2**40) > 0.5, "ab"), 3)


@pytest.mark.parametrize(
    "output",
    [
        aggregate(library.so_far, tokens.map({"a": 300, "b": 500}.get)) - library.how_often,
        aggregate(library.so_far, 5) + library.length,
        aggregate(best(library.so_far, library.shifted(1, tokens == "a", 0)), tokens == "b"),
        library.shifted(1, tokens == "a", False).map(str),
        library.shifted(1, tokens.map({"a": 0.5, "b": 1.5}.get), 0.0).map(str),
        library.shifted(1, indices, "none"),
    ],
    ids=["large values", "one value", "gathered scores", "bools", "halves", "a word"],
)
def test_means_beside_bos_and_values_of_one_kind(output):
    proved(Program(output, "ab"), 4)


def test_far_places_are_later_too():
    ahead = aggregate(select(indices, indices + 13, "=="), tokens, ".")
    with pytest.raises(ProgramError, match=r"might select a later position"):
        compile_program(Program(ahead, "ab"), 15, causal=True)
    compile_program(Program(selector_width(library.so_far), "ab"), 15, causal=True)


@pytest.mark.parametrize(
    ("output", "alphabet", "options", "words"),
    [
        (where(tokens == "a", 1, tokens == "b"), "abc", {}, "equal and not the same"),
        (library.apply(lambda *a: sum(a), *[indices] * 22), "a" , {"longest": 8}, "join in steps"),
        (aggregate(everything, tokens), (10**9, 0), {"dtype": torch.float32}, "rounding"),
        (
            aggregate(select(tokens, aggregate(library.same, tokens), "=="), indices),
            (10**9, 10**9 + 1), {}, "too large",
        ),
    ],
)  # fmt: skip
def test_what_would_be_wrong_is_refused(output, alphabet, options, words):
    program = Program(output, alphabet)
    with pytest.raises(ProgramError, match=words):
        compile_program(program, **{"longest": 4, **options})


OPERATIONS = [
    lambda x: 10 % (x + 1),
    lambda x: 7 // (x + 1),
    lambda x: x // 2,
    lambda x: 2**x,
    lambda x: x**2,
    lambda x: 2 ** (x - 2),
    lambda x: (-2) ** x,
    lambda x: 5 - x,
    lambda x: 3 * x,
    lambda x: operator.lt(2, x),
    lambda x: operator.ge(2, x),
    lambda x: 6 & x,
    lambda x: x & 6,
    lambda x: 1 | x,
    lambda x: True & x,
    lambda x: True & (x > 1),
    lambda x: (x > 1) | False,
    lambda x: abs(x - 2),
    lambda x: -x,
    lambda x: -(x - 2),
    lambda x: ~x,
    lambda x: Fraction(7, 2) % (x + 1),
    lambda x: Fraction(7, 2) - x,
    lambda x: np.int64(7) - x,
    lambda x: np.float64(0.5) * x,
]


# A remainder, a power below one, a comparison, truth values, and numbers of other classes.
@pytest.mark.parametrize("number", sampled(range(len(OPERATIONS)), [0, 5, 9, 15, 20, 21, 24]))
def test_an_operator_means_what_python_means_on_either_side(number):
    operation = OPERATIONS[number]
    program = Program(operation(indices), "a")
    assert interpret(program, "aaaaa") == [operation(place) for place in range(5)]
    compiled = proved(program, 5)
    assert compiled("aaaaa") == [operation(place) for place in range(5)]
    counts = proved(Program(operation(selector_width(library.so_far)), "a"), 4)
    assert counts("aaaa") == [operation(place) for place in (1, 2, 3, 4)]


class Level(IntEnum):
    """Equal to numbers."""

    LOW = 1


@dataclass(frozen=True)
class Point:
    """Equal to others of equal parts."""

    x: object


ALIKE = [
    (True, 1),
    (1, 1.0),
    (0.0, -0.0),
    (0, -0.0),
    (False, 0),
    (0.5, Fraction(1, 2)),
    ((True,), (1,)),
    ((1, (2, 0.0)), (1, (2, -0.0))),
    (((True,),), ((1.0,),)),
]


@pytest.mark.parametrize(("one", "other"), first_of_each(ALIKE, lambda pair: type(pair[0])))
def test_values_that_are_equal_and_not_the_same_stay_apart_or_are_refused(one, other):
    assert one == other
    table = {"a": one, "b": other}
    told = [repr(one), repr(other), repr(one)]
    assert interpret(Program(tokens.map(table.get).map(repr), "ab"), "aba") == told
    for made in (
        tokens.map(table.get).map(repr),
        aggregate(select(indices, indices, "=="), tokens.map(table.get).map(repr)),
    ):
        compiled = proved(Program(made, "ab"), 3)
        assert compiled("aba") == told
    for mixed in (
        tokens.map(table.get),
        where(indices > 0, tokens.map(table.get), one),
        library.apply(lambda token, place: table[token], tokens, indices).map(repr),
        where(tokens == "a", one, other),
    ):
        with pytest.raises(ProgramError, match="equal and not the same"):
            compile_program(Program(mixed, "ab"), 3)
    with pytest.raises(ProgramError, match="distinct"):
        Program(tokens, (one, other))
    with pytest.raises(WrongUsage, match="one or more of the tokens"):
        interpret(Program(tokens, (one, "x")), (other,))
    same = compile_program(Program(tokens.map({"a": one, "b": "x"}.get), "ab"), 2)
    unlike = Program(tokens.map({"a": other, "b": "x"}.get), "ab")
    assert not prove_program(same, unlike).holds


place_from_the_end = library.length - 1 - indices
share = aggregate(library.so_far, tokens == "a")
RIGHT_ON_EVERY_INPUT = [
    (lambda e: 2**e, [place_from_the_end]),
    (lambda t, e: int(t == "b") * 2**e, [tokens, place_from_the_end]),
    (lambda e: "abcdefghijk"[e] if e >= 0 else 7, [place_from_the_end]),
    (lambda e: True if e < 0 else 1, [place_from_the_end]),
    (lambda e: 0.0 if e < 0 else 0, [place_from_the_end]),
    (lambda e: (True,) if e < 0 else (1,), [place_from_the_end]),
    (lambda n, i: 1 if i < n else "x", [library.length, indices]),
    (lambda n, c: n - c if c <= n else 0.5, [library.length, library.how_often]),
    (lambda s, i: s * (i + 1) if s * (i + 1) == int(s * (i + 1)) else "no", [share, indices]),
]


@pytest.mark.parametrize("number", sampled(range(len(RIGHT_ON_EVERY_INPUT)), [1, 2, 8]))
@pytest.mark.parametrize("reader", ["itself", "total", "mean", "word"])
def test_values_that_no_input_has_refuse_no_program(number, reader):
    function, arguments = RIGHT_ON_EVERY_INPUT[number]
    made = library.apply(function, *arguments)
    wrap = {
        "itself": lambda each: each,
        "total": lambda each: total(library.so_far, each),
        "mean": lambda each: aggregate(library.so_far, each),
        "word": lambda each: each.map(repr),
    }[reader]
    if (number, reader) in ((2, "total"), (2, "mean"), (5, "total")):  # no numbers
        with pytest.raises(ProgramError, match=r"only numbers|no mean"):
            compile_program(Program(wrap(made), "ab"), 5)
        return
    proved(Program(wrap(made), "ab"), 5)


def test_a_default_that_no_query_gets_refuses_no_program():
    """Neither by its kind nor by being no number."""
    for default in (None, "nothing", (1,), 0.5):
        program = Program(aggregate(library.so_far, indices, default=default), "ab")
        assert proved(program, 4)("abab")[3] == Fraction(3, 2)
    flags = Program(aggregate(select(indices, indices, "=="), tokens.map(ord), True).map(str), "ab")
    assert proved(flags, 3)("ab") == ["97", "98"]


def test_of_many_inputs_the_places_are_tried_and_of_those_the_values():
    """Too many to try each: two to the power of 24."""
    power = library.apply(lambda e: 2**e if e >= 0 else 0.5, place_from_the_end)
    compiled = compile_program(Program(power, "01"), 24)
    assert compiled("01" * 12)[:3] == [2**23, 2**22, 2**21]


def test_what_some_input_has_is_refused_as_ever():
    """The values are tried, and these occur."""
    for output, words in (
        (library.apply(lambda n, i: 1 if i < n - 1 else True, library.length, indices), "mixes"),
        (total(everything, library.apply(lambda n, i: "x", library.length, indices)), "numbers"),
        (library.apply(lambda n, i: 1 // (n - i - 1), library.length, indices), "ZeroDivision"),
        (aggregate(select(indices, indices, "<"), indices, default="no"), "has a number as"),
    ):
        with pytest.raises(ProgramError, match=words) as refused:
            compile_program(Program(output, "ab"), 4)
        assert "test_miscompiles.py:" in str(refused.value)


def test_what_is_the_same_is_one_value_however_it_is_made():
    for one in ((1, 2), ("a", None), Fraction(1, 2)):
        program = Program(
            where(tokens == "a", one, tokens.map(lambda _, one=one: copy.copy(one))), "ab"
        )
        assert proved(program, 2)("ab") == [one, one]


class Word(str):
    """Equal to other words, whatever it carries."""


def test_a_value_that_has_no_identity_is_refused_with_its_line():
    values = [
        Word("a"),
        (Word("a"),),
        Level.LOW,
        Point(1),
        Decimal(1),
        1j,
        frozenset({1}),
        range(2),
    ]
    for value in values:
        for make in (
            lambda value=value: Program(where(tokens == "a", value, "b"), "ab"),
            lambda value=value: interpret(Program(tokens.map(lambda _: value), "ab"), "ab"),
        ):
            with pytest.raises(ProgramError, match="a value is a number, a text") as refused:
                make()
            assert "test_miscompiles.py:" in str(refused.value)


def test_an_aggregate_gathers_exact_numbers_beside_symbols_too():
    """1 of True, whether a symbol stands in the same input or not."""
    mixed = aggregate(select(indices, indices, "=="), tokens.map({"a": True, "b": "x"}.get))
    program = Program(mixed.map(str), "ab")
    assert interpret(program, "aa") == ["1", "1"]
    assert interpret(program, "ab") == ["1", "x"]
    assert proved(program, 3)("ab") == ["1", "x"]


def test_best_takes_the_highest_score_and_all_keys_that_share_it():
    last = best(select(tokens, "a", "=="), indices)
    proved(Program(aggregate(last, indices, default=-1), "abc"), 6)
    program = Program(aggregate(best(everything, tokens), indices), (1, 2))
    assert interpret(program, (2, 2, 1, 1)) == [Fraction(1, 2)] * 4
    assert proved(program, 4)((2, 1, 2)) == [1, 1, 1]
    with pytest.raises(ProgramError, match="best"):
        compile_program(Program(selector_width(best(everything, indices)), "ab"), 3)
    nothing = Program(aggregate(best(library.before, tokens), indices, default=-1), (1, 2))
    assert interpret(nothing, (2, 1, 1)) == [-1, 0, 0]
    assert proved(nothing, 4)((2, 1, 1)) == [-1, 0, 0]


@pytest.mark.parametrize(
    ("selector", "longest"),
    [
        (select(library.length, 4, "<"), 4),
        (select(library.length, 4, "!="), 4),
        (select(library.how_often, 4, "<"), 4),
        (select(library.length, 1, ">"), 1),
        (select(library.how_often, 1, "!="), 1),
    ],
)
def test_a_query_that_selects_nothing_in_one_length_alone_is_found(selector, longest):
    """In the longest inputs, or in the shortest."""
    program = Program(aggregate(selector, indices), "ab")
    with pytest.raises(ProgramError, match="default="):
        compile_program(program, longest)
    proved(Program(aggregate(selector, indices, default=-1), "ab"), longest)
    if longest > 1:
        proved(program, longest - 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: select(tokens, tokens, "=<"), "did you mean '<='"),
        (lambda: aggregate(tokens, indices), "expected a selector"),
        (lambda: tokens + select(tokens, tokens, "=="), "expected a sequence"),
        (lambda: not tokens, "neither true nor false"),
        (lambda: tokens == ["a"], "a number, a text, None or a tuple of such; got"),
        (lambda: tokens < math.inf, "a number must be finite"),
        (lambda: indices * 10**400, "fit a float"),
        (lambda: aggregate(everything, indices, default=math.nan), "finite"),
        (
            lambda: interpret(
                Program((indices + 1).map(float).map(lambda x: x * 1e308 * 2), "ab"), "ab"
            ),
            "finite",
        ),
        (lambda: sum([indices] * 200), "at most 100 deep"),
        (lambda: indices / 2, "there is no /"),
        (lambda: 1 / indices, "there is no /"),
        (lambda: ~aggregate(everything, tokens == "a"), "so ~ does not negate it"),
        (lambda: True & select(tokens, tokens, "=="), "expected a selector"),
        (lambda: Program(select(tokens, tokens, "=="), "ab"), "is a selector: aggregate"),
        (lambda: Program("tokens", "ab"), "a program computes a sequence"),
        (lambda: Program(tokens, "aa"), "distinct tokens"),
        (lambda: Program(tokens, ""), "an alphabet"),
        (lambda: Program(indices, [1.0, math.inf]), "finite"),
        (lambda: interpret(Program(tokens & True, "ab"), "ab"), "& fails on 'a', True"),
        (
            lambda: compile_program(Program(tokens.map(lambda t: random.random()), "ab"), 2),
            "a map must depend on its values alone",
        ),
        (lambda: interpret(Program(tokens < 3, "ab"), "ab"), "fails on 'a', 3"),
        (
            lambda: interpret(Program(selector_width(select(tokens, 3, "<")), "ab"), "ab"),
            "compared",
        ),
        (
            lambda: interpret(
                Program(selector_width(select(tokens, tokens, lambda key, query: None)), "ab"), "ab"
            ),
            "must be True or False; got None: does the function lack a return",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(make, words):
    with pytest.raises(ProgramError, match=words) as refused:
        make()
    assert "lambda" in str(refused.value)


def test_a_dictionary_is_a_map_and_the_domain_does_not_grow():
    table = {("a", 0): 1, ("a", 1): 2, ("b", 0): 5, ("b", 1): 7}
    found = library.apply(lambda token, place: table[token, place], tokens, indices % 2)
    proved(Program(found, "ab"), 4)
    assert interpret(Program(found, "ab"), "ab") == [1, 7]
