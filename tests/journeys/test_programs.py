"""A person writes programs, has them compiled and proved, and cannot be told what is not so."""

import json
import time

PARITY = '''"""Is the number of b's up to here odd? And what is left of 10, place by place?"""

from attnlab.programs import Program, aggregate, apply, indices, select, tokens, total


def marks(odd, even="even"):
    def mark(count):
        return odd if count % 2 else even

    return mark


so_far = select(indices, indices, "<=")
count = total(so_far, True & (tokens == "b"))
word = count.map(marks("odd"))
left = 10 % (indices + 1)
output = apply(lambda one, other: f"{one} {other}", word, left)
program = Program(output, "ab", "parity")
'''

RIGHT = ["even 0", "odd 0", "even 1"]  # of "abb"


def answers(home, folder, word):
    program = (
        f"from attnlab.programs import open_compiled\nprint(open_compiled({folder!r})({word!r}))"
    )
    return home.python(program).out


def test_a_program_is_compiled_proved_and_checked_by_someone_else(home):
    (home.here / "parity.py").write_text(PARITY)
    told = home.run("attnlab compile parity.py --length 5 --example abb --out parity")
    assert "proved on all 62 inputs of up to 5 tokens" in told.out
    assert "left = 10 % (indices + 1)" in told.out
    assert answers(home, "parity", "abb") == f"{RIGHT}\n"
    assert ": holds;" in home.run("python parity/check.py").out


def test_a_certificate_in_which_someone_changed_a_field_does_not_hold(home):
    (home.here / "parity.py").write_text(PARITY)
    home.run("attnlab compile parity.py --length 4 --out parity")
    certificate = home.here / "parity" / "certificate.json"
    kept = certificate.read_text()
    for field, lie in (("margin", 99.0), ("name", "sort"), ("proved_to", 9), ("shortest", 3)):
        certificate.write_text(json.dumps({**json.loads(kept), field: lie}, indent=2))
        told = home.run("python parity/check.py", status=1)
        assert "DIFFERS" in told.out
        assert field in told.out or field == "proved_to"
    certificate.write_text(kept)
    home.run("python parity/check.py")


def test_a_proof_that_is_killed_early_is_begun_anew_by_the_same_command(home):
    (home.here / "parity.py").write_text(PARITY)
    command, out = "attnlab compile parity.py --length 10 --out parity", home.here / "parity"
    process, due = home.start(command), time.monotonic() + 120
    while not (out / "unfinished").exists() and time.monotonic() < due:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert (out / "unfinished").exists()
    assert "proved on all 2,046 inputs" in home.run(command).out
    assert answers(home, "parity", "abb") == f"{RIGHT}\n"


def test_a_mistake_is_told_with_its_file_line_and_expression(home):
    for line, reason in (
        ("bad = tokens % 2", "fails on"),
        ("bad = 1 / (indices + 1)", "there is no /"),
        ("bad = tokens.map({'a': True, 'b': 1}.get)", "equal and not the same"),
    ):
        text = f"from attnlab.programs import *\n{line}\nprogram = Program(bad, 'ab')\n"
        (home.here / "bad.py").write_text(text)
        told = home.run("attnlab compile bad.py --length 3", status=2)
        assert reason in told.err
        assert f"bad.py:2  {line}" in told.err
