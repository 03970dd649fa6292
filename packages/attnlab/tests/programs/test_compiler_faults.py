"""Faults planted in the compiler: for each, some program is refuted on some input."""

import sys
import types
from pathlib import Path

import pytest

from attnlab.programs import (
    Program,
    ProgramError,
    aggregate,
    apply,
    best,
    everything,
    indices,
    library,
    prove_program,
    select,
    selector_width,
    tokens,
    total,
    where,
)
from tests.sampling import sampled

ORDER = (
    *("interpreter", "reachable_values", "domains", "conjunctions", "blueprint", "views"),
    *("hidden_units", "aggregates", "matrices", "compiled_program", "compiler"),
)

FAULTS = [
    ("aggregates", "odds = (1 - share) / share", "odds = 1 / (30 * share)"),
    ("aggregates", "bos_score = channels.floor + top + bos", "bos_score = channels.floor + top"),
    ("aggregates", "math.log(views.longest / _LEAK)", "math.log(2.0)"),
    ("aggregates", "_LEAK = 0.1", "_LEAK = 1.0"),
    ("aggregates", "default[0] = value", "default[0] = 0.0"),
    ("aggregates", "default[views.places(node, views.domains.default(node))] = 1.0", "pass"),
    ("aggregates", "total.plus(count, times)", "total.plus(count, 1.0)"),
    ("aggregates", "np.array([values, np.square(values)])", "np.array([values, np.abs(values)])"),
    ("aggregates", "float(row.max())", "0.0"),
    ("aggregates", "row = step * np.array([ranks]", "row = 0 * step * np.array([ranks]"),
    ("aggregates", "gain * (len(case) - 1), gain", "0.0, gain"),
    ("aggregates", "gathered.append(value)", "pass"),
    ("hidden_units", "2.0 / gap", "0.5 / gap"),
    ("hidden_units", "outer += [change, -change]", "outer += [change, change]"),
    ("hidden_units", "view.through(pick, 1.0 - number)", "view.through(pick, 2.0 - number)"),
    ("hidden_units", "changes[kept].T, usual,", "changes[kept].T, 0 * usual,"),
    ("hidden_units", "scale += times * span", "pass"),
    ("views", "rows[np.arange(len(places)), list(places)] = 1.0",
     "rows[np.arange(len(places)), list(reversed(list(places)))] = 1.0"),
    ("views", "self.domains.at_most_one(base.selector) and", "True and"),
    ("compiler", "views.number(two), -1.0)", "views.number(two), 1.0)"),
    ("compiler", "[1 / (1 + value) for value in values]", "[1 / (2 + value) for value in values]"),
    ("blueprint", "last + 1 if last % 2 else last + 2", "last + 1"),
    ("blueprint", "view.slot + 1 if view.slot % 2 == 0 else view.slot + 2", "view.slot"),
    ("blueprint", "value += matrix @ block.at_bos", "pass"),
    ("blueprint", "width += block.width", "width += max(1, block.width - 1)"),
    ("matrices", "units.inner, config, bos, -1.0)", "units.inner, config, None)"),
    ("matrices", "head.queries.through(np.eye(channels) * width**0.5)", "head.queries"),
    ("matrices", "(_CERTAIN - score)", "0.0 * (_CERTAIN - score)"),
    ("matrices", "attention.key.weight[bos_channel, bos.offset] = 1.0",
     "attention.key.weight[bos_channel, bos.offset] = 0.5"),
    ("matrices", "rows = range(views.has_bos, views.longest + views.has_bos)",
     "rows = range(views.longest)"),
    ("matrices", "first += number", "first += 0"),
    ("conjunctions", "if len(rows) > 1:", "if False:"),
    ("conjunctions", "if len(conjunctions(selector, domains)) <= 1:", "if True:"),
    ("domains", "return bool((self.relation(selector).sum(1) <= 1).all())", "return True"),
    ("domains", "for above in sums}\n            if len(means)",
     "for above in sums if above in (0, 1, count)}\n            if len(means)"),
]  # fmt: skip

before, same = library.before, library.same
value = {"a": 0, "b": 2, "c": 5}.get
digit = tokens.map(value)
PROGRAMS = [
    *(library.hist("abc"), library.sort("abc"), library.reverse("abc"), library.induction("ab")),
    *(library.majority_so_far("ab", "a"), library.dyck_2(), library.running_sum((0, 1, 3))),
    Program(aggregate(best(~same, -indices), digit, default=7), "abc"),
    Program(aggregate(library.so_far, digit) - indices * 2, "abc"),
    Program(aggregate(same & before, digit, default=-2), "abc"),
    Program(selector_width((same & before) | select(tokens, "a", "==")), "abc"),
    Program(aggregate((same & before) | select(tokens, "a", "=="), digit, default=1), "abc"),
    Program(apply(max, total(before, digit), aggregate(everything, indices)), "ab"),
    Program(where(tokens == "a", indices, selector_width(~same & before)), "ab"),
    Program(aggregate(select(indices, total(before, tokens == "a"), "=="), tokens), "ab"),
    Program(aggregate(select(indices, indices - 1, "=="), aggregate(everything, digit), -1), "abc"),
    Program(selector_width(select(aggregate(same & before, digit, -2) > 1, False, "==")), "abc"),
    Program(aggregate(select(digit, 2, ">"), indices * 3, default=-1) > 3, "abc"),
    Program(library.sort_by_frequency("abc").output.map(value) + library.how_often, "abc"),
]  # fmt: skip


BROKEN = (ProgramError, IndexError, ValueError, AssertionError, ArithmeticError, RuntimeError)


def compiler_with(faulty, old, new):
    """Load the compiler with one text replaced, beside the language and the interpreter."""
    kept = {name: sys.modules[f"attnlab.programs.{name}"] for name in ORDER}
    try:
        for name in ORDER:
            source = Path(kept[name].__file__).read_text()
            if name == faulty:
                assert source.count(old) == 1, old
                source = source.replace(old, new)
            if name == "compiler":  # what it compares by itself is left to the proof
                source = source.replace("            _check_numbers(compiled, program)\n", "")
            loaded = types.ModuleType(f"attnlab.programs.{name}")
            loaded.__file__ = kept[name].__file__
            sys.modules[loaded.__name__] = loaded
            exec(compile(source, loaded.__file__, "exec"), loaded.__dict__)
        return sys.modules["attnlab.programs.compiler"].compile_program
    finally:
        for name, module in kept.items():
            sys.modules[f"attnlab.programs.{name}"] = module


def refuted(compile_program):
    """Return how the first program came out that such a compiler gets wrong, or cannot compile."""
    for program in PROGRAMS:
        try:
            proof = prove_program(compile_program(program, 4), program)
        except BROKEN:
            return "broken"
        if not proof.holds:
            return "wrong"
    return "right"


def test_without_a_fault_nothing_is_refuted():
    assert refuted(compiler_with("compiler", "_TIGHT = 0.999", "_TIGHT = 0.998")) == "right"


@pytest.mark.parametrize("every", sampled([6, 1], 1))
def test_planted_faults_are_refuted_nearly_all_by_a_wrong_answer(every):
    found = {fault: refuted(compiler_with(*fault)) for fault in FAULTS[::every]}
    assert [fault for fault, how in found.items() if how == "right"] == []
    assert list(found.values()).count("wrong") >= 0.6 * len(found)
