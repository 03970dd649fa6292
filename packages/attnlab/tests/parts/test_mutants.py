"""The tests themselves, tested: each planted fault must be noticed by each of the tests named for
it."""

import importlib

import pytest
import torch

from attnlab.parts import attend
from attnlab.parts.linear import matrix_path_probe

from .mutants import MUTANTS, Check, Mutant
from .planting import planted

CHECKS: list[Check] = []
for mutant in MUTANTS:
    CHECKS += [check for check in mutant.checks if check not in CHECKS]
# Caught in this process; with several workers each has its share.
CAUGHT: set[str] = set()


def run(check: Check) -> None:
    file, test, *arguments = check
    module = importlib.import_module(file if file == "test_sites" else f"{__package__}.{file}")
    arguments = [getattr(torch, a) if a == "float64" else a for a in arguments]
    getattr(module, test)(*arguments)


def needs_onednn(file: str) -> None:
    if file == "test_linear" and matrix_path_probe().ratio is None:
        pytest.skip("no oneDNN linear in this torch")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: "-".join(map(str, check[1:])))
def test_without_a_fault_every_check_passes(check):
    needs_onednn(check[0])
    run(check)


@pytest.mark.parametrize(
    "mutant", MUTANTS, ids=lambda m: f"{m.module.rsplit('.', 1)[-1]}: {m.name}"
)
def test_a_planted_fault_is_noticed_by_each_of_its_checks(mutant: Mutant):
    """Noticed means a failed claim: a crash of any other kind would be luck, and comes out as an
    error here."""
    assert mutant.checks
    for check in mutant.checks:
        needs_onednn(check[0])
        with planted(mutant.module, mutant.old, mutant.new):
            try:
                run(check)
            except AssertionError:
                continue
        pytest.fail(f"{check[1]} does not notice: {mutant.name}")
    CAUGHT.add(f"{mutant.module}: {mutant.name}")
    print(f"{len(CAUGHT)} of {len(MUTANTS)} faults noticed in this process")  # noqa: T201


def test_there_are_many_different_faults():
    assert (
        len({(mutant.module, mutant.new, mutant.old) for mutant in MUTANTS}) == len(MUTANTS) >= 32
    )
    assert len({(mutant.module, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_fault_is_planted_for_everybody_and_gone_afterwards_also_after_an_error():
    one = torch.ones(1, 4)

    def use_and_fail():
        with planted("attnlab.parts.attend", "float(width**-0.5)", "7.0") as where:
            assert where == ["_scale_factor"]
            assert attend(one, one, one).scores.item() == 28.0
            raise KeyError

    with pytest.raises(KeyError):
        use_and_fail()
    assert attend(one, one, one).scores.item() == 2.0


def test_a_snippet_that_is_not_there_or_not_unique_or_in_no_function_is_refused():
    for old, complaint in (
        ("no such text", "occurs 0 times"),
        ("return", "occurs"),
        ("_SAFE_MAGNITUDE = 1e15", "no func"),
    ):
        with (
            pytest.raises(AssertionError, match=complaint),
            planted("attnlab.parts.attend", old, "_SAFE_MAGNITUDE = 1e9"),
        ):
            pass
