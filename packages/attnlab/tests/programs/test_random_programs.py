"""Random programs: compiled, they say what the interpreter says, on every input."""

import pytest
import torch

from attnlab.programs import ProgramError, compile_program, prove_program
from tests.sampling import sampled

from .random_programs import LONGEST, random_program


def compare(seeds, dtype):
    """Prove the programs of some seeds; return how many there were, and how many were refused."""
    proved = refused = 0
    for seed in seeds:
        program = random_program(seed)
        if program is None:
            continue
        try:
            compiled = compile_program(program, LONGEST, dtype=dtype)
        except ProgramError:
            refused += 1
            continue
        proof = prove_program(compiled, program)
        assert proof.holds, f"seed {seed}: {proof}\n{program.output!r}"
        proved += 1
    return proved, refused


@pytest.mark.parametrize("dtype", sampled([torch.float32, torch.float64], 1))
@pytest.mark.parametrize("part", sampled([0, 1], 1))
def test_a_random_program_is_right_on_every_input(part, dtype):
    proved, refused = compare(range(30 * part, 30 * part + 30), dtype)
    assert proved > 20
    assert refused < 6


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", range(10))
def test_two_thousand_random_programs_are_right_on_every_input(part, dtype):
    proved, refused = compare(range(1_000 + 230 * part, 1_230 + 230 * part), dtype)
    assert proved >= 200
    assert refused < 25
