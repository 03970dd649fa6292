"""The terminal obeys nothing that stands in a label, a word, a claim or a path."""

import io
import json
import re
import shutil

import pytest
from rich.console import Console

from attnlab.cli import main, terminal
from attnlab.cli.answers import _shaded, show_trace, show_weights
from attnlab.cli.site_facts import HeadMeans, WeightFacts
from attnlab.look.trace import HeadTrace, Step, Trace
from tests.sampling import sampled

ESCAPES = {
    "ESC": "\x1b[2J\x1b[31m",
    "OSC 8": "\x1b]8;;https://example.org\x1b\\here\x1b]8;;\x1b\\",
    "C1": "\x9b31m\x85\x90",
    "bidi": "\u202eevil\u2066\u200f",
    "carriage return": "\rattnlab: fine",
    "backspace": "\b\b\b",
    "line separator": "\u2028attnlab: fine",
}
EVIL = sampled(["".join(ESCAPES.values()), *ESCAPES.values()], 1)
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FORGED = "\nattnlab: every claim holds"


@pytest.fixture(scope="module")
def good(tmp_path_factory, without_figures):
    folder = tmp_path_factory.mktemp("work") / "runs" / "good"
    assert main(f"run sorting -q --out {folder} --set steps=20 evaluate_every=10".split()) == 1
    return folder


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def shown(capsys, *arguments):
    """Run a command; return all that it wrote, of which the terminal would obey nothing."""
    capsys.readouterr()
    main(list(arguments))
    out, err = capsys.readouterr()
    check_harmless(out + err)
    return out + err


def check_harmless(text):
    assert OBEYED.findall(text) == []
    assert FORGED not in text


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_no_text_of_a_runs_files_commands_the_terminal(capsys, good, tmp_path, evil):
    evil += FORGED
    folder = shutil.copytree(good, tmp_path / ("r" + evil.replace("/", "")))
    claims = json.loads((folder / "claims.json").read_text())
    for claim in claims:
        claim.update({key: value + evil for key, value in claim.items() if isinstance(value, str)})
    (folder / "claims.json").write_text(json.dumps(claims))
    report = json.loads((folder / "report.json").read_text())
    report["subtitle"] += evil
    report["facts"] = [[name + evil, str(value) + evil] for name, value in report["facts"]]
    for section in report["sections"]:
        if section["kind"] == "table":
            section["columns"] = [name + evil for name in section["columns"]]
            section["rows"] = [[f"{cell}{evil}" for cell in row] for row in section["rows"]]
    (folder / "report.json").write_text(json.dumps(report))
    assert "all inputs right" in shown(capsys, "show", str(folder))
    assert "1/3" in shown(capsys, "list", str(tmp_path))
    config = json.loads((folder / "config.json").read_text())
    config |= {"experiment": "sorting" + evil, "started": evil}
    (folder / "config.json").write_text(json.dumps(config))
    assert "1/3" in shown(capsys, "list", str(tmp_path))
    shown(capsys, "show", str(folder / evil.replace("/", "")))
    shown(capsys, "list", str(tmp_path / evil.replace("/", "")))
    shown(capsys, "trace", str(folder), "cab")


@pytest.mark.parametrize("evil", ESCAPES.values(), ids=ESCAPES)
def test_no_label_or_word_of_a_model_commands_the_terminal(capsys, evil):
    words = [f"{name}{evil}{FORGED}" for name in ("a", "b")]
    head = HeadTrace(f"layers.0.{words[0]}.weights", 0, ((1.0, 0.0), (0.5, 0.5)))
    step = Step(None, tuple(words), (0.25, 0.75), words[1], expected=words[0])
    show_trace(Trace(tuple(words), tuple(words), (step,), (head,)))
    each = HeadMeans(0, 0.1, 1.0, words, {}, None, [[1.0, 0.0], [0.5, None]])
    show_weights(words[0], WeightFacts(words, words, [each]))
    terminal.say(words[0])
    terminal.complain(words[0], 2)
    out, err = capsys.readouterr()
    check_harmless(out + err)
    assert "p(a" in out


def test_the_check_of_harmless_text_catches_each_of_them():
    for evil in [*ESCAPES.values(), FORGED]:
        with pytest.raises(AssertionError):
            check_harmless(f"a{evil}b")


def test_what_a_terminal_would_obey_is_shown(capsys):
    terminal.say("a\x1b[31mb\x9bc\u202ed\x7fe\nf")
    assert capsys.readouterr().out == "a␛[31mb\ufffdc\ufffdd␡e␊f\n"


@pytest.mark.parametrize("colours", ["standard", "256", "truecolor", None])
def test_a_larger_weight_looks_larger_with_any_colours_and_on_any_ground(colours):
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=colours is not None, color_system=colours, _environ={}
    )
    for weight in (0.0, 0.1, 0.3, 0.6, 1.0):
        console.print(_shaded(weight))
    written = stream.getvalue()
    # the ground is left as it is
    assert re.search(r"\x1b\[[\d;]*(4[0-8]|10[0-7])[m;]", written) is None
    plain = re.sub(r"\x1b\[[\d;]*m", "", written)
    assert plain.split("\n")[:-1] == ["0.00 ", "0.10▁", "0.30▂", "0.60▅", "1.00█"]
