"""A person writes programs, has them compiled and proved, and cannot be told what is not so."""

import json
import re
import shutil
import signal
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


def test_a_program_is_compiled_proved_and_checked_by_someone_else_who_finds_every_lie(home):
    (home.here / "parity.py").write_text(PARITY)
    told = home.run("attnlab compile parity.py --length 5 --example abb --out parity")
    assert "proved on all 62 inputs of up to 5 tokens" in told.out
    assert "left = 10 % (indices + 1)" in told.out
    assert answers(home, "parity", "abb") == f"{RIGHT}\n"
    assert ": holds;" in home.run("python parity/check.py").out
    certificate = home.here / "parity" / "certificate.json"
    kept = json.loads(certificate.read_text())
    for field, lie in (("margin", 99.0), ("name", "sort"), ("proved_to", 9), ("shortest", 3)):
        certificate.write_text(json.dumps({**kept, field: lie}, indent=2))
        told = home.run("python parity/check.py", status=1)
        assert "DIFFERS" in told.out
        assert field in told.out or field == "proved_to"


def twice(text):
    return text.replace('  "margin"', '  "margin": 99.0,\n  "margin"')


def flipped(content):
    return content[:-1] + bytes([content[-1] ^ 1])


BY_HAND = {  # what somebody changes in the folder of a proof
    "a field is changed": ("certificate.json", lambda text: text.replace("27", "28", 1)),
    "a field is written twice": ("certificate.json", twice),
    "a field is added": ("certificate.json", lambda text: text.replace("{", '{"by": "me",', 1)),
    "the margin is NaN": (
        "certificate.json",
        lambda text: re.sub(r'("margin": )[\d.]+', r"\1NaN", text),
    ),
    "another task": ("task.json", lambda text: text.replace("sort", "copy")),
    "another model": ("config.json", lambda text: text.replace("true", "false", 1)),
    "another weight": ("model.safetensors", flipped),
    "no weights": ("model.safetensors", None),
    "no certificate": ("certificate.json", None),
}


CHECK_ALL = """
import runpy, sys
for number in range(int(input())):
    sys.argv = [f"{number}/check.py"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code)
        print("ended with", int(bool(end.code)))
"""


def test_a_folder_of_a_proof_that_was_changed_is_refused_by_its_check(home, sorter):
    shutil.copytree(sorter, home.here / "runs" / "sorting")
    assert "proved on all 27 inputs" in home.run("attnlab prove sorting --float64 --out proof").out
    assert ": holds;" in home.run("python proof/check.py").out
    for number, (name, (file, change)) in enumerate(BY_HAND.items()):
        path = shutil.copytree(home.here / "proof", home.here / str(number)) / file
        if change is None:
            path.unlink()
        elif file.endswith(".json"):
            before = path.read_text()
            path.write_text(change(before))
            assert path.read_text() != before, name
        else:
            path.write_bytes(change(path.read_bytes()))
    (home.here / "check_all.py").write_text(CHECK_ALL)
    told = home.run("python check_all.py", typed=str(len(BY_HAND))).text
    for name, refusal in zip(BY_HAND, told.split("ended with 1\n"), strict=False):
        assert "DIFFERS" in refusal or "no certificate" in refusal, name
    assert told.count("ended with 1\n") == len(BY_HAND)


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


RELABEL = """
from attnlab.programs import Program, aggregate, indices, select, tokens

labels = {"a": "first", "b": "second"}
program = Program(aggregate(select(indices, indices, "=="), tokens.map(labels.get)), "ab", "label")
"""


def test_a_proof_that_ctrl_c_stopped_goes_on_with_its_own_program_alone(home):
    file, out = home.here / "label.py", home.here / "label"
    file.write_text(RELABEL)
    command = "attnlab compile label.py --length 15 --out label"
    process = home.start(command)
    while process.poll() is None and not (out / "proof.json").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed = process.communicate()[0]
    assert process.returncode == 130, printed
    assert "the same command goes on with the proof" in printed
    file.write_text(RELABEL.replace('"first"', '"second"').replace('"b": "second"', '"b": "first"'))
    refusal = home.run(command, status=3).err.splitlines()[-1]
    assert refusal.startswith("attnlab: ")
    assert "belongs to another proof" in refusal
    file.write_text(RELABEL)
    assert "proved on all 65,534 inputs" in home.run(f"{command} --resume").out
    assert answers(home, "label", "ab") == "['first', 'second']\n"


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
