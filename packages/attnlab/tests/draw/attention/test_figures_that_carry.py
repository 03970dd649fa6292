"""A figure's file carries what it was drawn from, and is opened and drawn again."""

import zlib
from contextlib import nullcontext

import pytest
import torch

import attnlab
from attnlab.draw.attention import Pattern
from attnlab.draw.carried import carried_in, carry
from attnlab.draw.view import write_view
from attnlab.edits import edits_from_json
from attnlab.errors import CouldNotRun

from .patterns import ODD, make_layers, make_pattern

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def recorded(*edits):
    torch.manual_seed(0)
    config = attnlab.DecoderConfig(vocab_size=4, max_length=9, d_model=8, num_heads=2, d_ff=8)
    model = attnlab.Decoder(config).eval()
    with (
        attnlab.record(model, "*weights", vocabulary=["SEP", "a", "b", "c"]) as recording,
        attnlab.edit(model, *edits) if edits else nullcontext(),
    ):
        model(torch.tensor([[3, 1, 2, 0]]))
    return recording


def crossed():
    blocked = torch.eye(4).bool()
    weights = torch.rand(2, 4, 4).masked_fill(blocked, 0)
    return Pattern("layers.0.attention.weights", weights, (*"abcd",), (*"abcd",), blocked)


CUT = attnlab.CutEdge(layer=0, head=1, query=3, key=0)
FIGURES = {
    "head": lambda: attnlab.plot.head(recorded(), "0.1", scale="root", high=0.7),
    "a mask of its own": lambda: attnlab.plot.head(crossed(), 1),
    "odd tokens": lambda: attnlab.plot.head(make_pattern(queries=len(ODD), tokens=ODD)),
    "heads": lambda: attnlab.plot.heads(make_layers(), title="</metadata> & all"),
    "difference": lambda: attnlab.plot.difference(recorded(), recorded(CUT), 1),
}


@pytest.mark.parametrize(("name", "kind"), [("head", "png"), *((name, "svg") for name in FIGURES)])
def test_the_line_that_a_figure_carries_draws_it_again_to_the_byte(name, kind, tmp_path):
    path = attnlab.plot.save(FIGURES[name](), tmp_path / f"one.{kind}", dpi=60)
    figure = attnlab.open(path)
    again = eval(figure.code, {"attnlab": attnlab, "figure": figure})
    other = attnlab.plot.save(again, tmp_path / f"two.{kind}", dpi=60)
    one, two = (carried_in(each.read_bytes()) for each in (path, other))
    assert [one[key] for key in ("patterns", "others")] == [two["patterns"], two["others"]]
    assert strip(path.read_bytes(), kind) == strip(other.read_bytes(), kind)


def strip(content, kind):
    """Return a file without what it carries."""
    start = content.index(b"iTXt" if kind == "png" else b'<metadata id="attnlab">')
    end = content.index(b"IEND" if kind == "png" else b"</metadata>", start)
    return content[: start - 4 * (kind == "png")] + content[end:]


@pytest.mark.parametrize("others", [(), (CUT,)])
def test_a_page_carries_its_weights_and_the_line_that_shows_them(others, tmp_path):
    recordings = [recorded(), *(recorded(edit) for edit in others)]
    path = write_view(tmp_path / "one.html", *recordings)
    figure = attnlab.open(path)
    for drawn, recording in zip((figure.patterns, figure.others), recordings, strict=False):
        assert torch.allclose(
            torch.tensor(drawn[0].weights), recording["layers.0.attention.weights"][0].float()
        )
    assert len(figure.edits) == len(others)
    written = tmp_path / "two.html"
    code = figure.code.replace("attnlab.show(", "write_view(written, ")
    eval(code, {"write_view": write_view, "written": written, "figure": figure})
    assert attnlab.open(written).patterns[0].query_tokens == figure.patterns[0].query_tokens


def test_edits_seed_and_model_are_carried(tmp_path):
    path = attnlab.plot.save(attnlab.plot.head(recorded(CUT), 1), tmp_path / "head.svg", seed=7)
    found = attnlab.open(path)
    assert edits_from_json(list(found.edits)) == [CUT]
    assert found.seed == 7
    assert found.model["kind"] == "decoder"
    assert found.patterns[0].key_tokens == ("c", "a", "b", "SEP")
    weights = found.patterns[0].whole(1)
    assert (weights[3, 0], weights[3, 1] > 0) == (0, True)


def test_an_opened_figure_is_shown_as_its_maps(tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    path = attnlab.plot.save(FIGURES["difference"](), tmp_path / "difference.png")
    assert '"variants":2' in attnlab.show(path).read_text()


def test_a_figure_of_too_many_weights_carries_its_facts_alone_and_a_page_nothing(tmp_path):
    weights = torch.rand(2, 900, 900).softmax(-1)
    path = attnlab.plot.save(attnlab.plot.head(weights), tmp_path / "large.png", dpi=40)
    found = attnlab.open(path)
    assert found.patterns == ()
    assert found.code.startswith("attnlab.plot.head(")
    path = write_view(tmp_path / "one.html", torch.eye(400).expand(1, 400, 400))
    with pytest.raises(CouldNotRun, match="carries nothing"):
        attnlab.open(path)


def damaged(content):
    yield content[:-30], "cut off or damaged"
    yield content.replace(b'"attnlab":1', b'"attnlab":2'), "cut off or damaged"
    yield carry(PLAIN, "png", {"attnlab": 2}), "it is of version 2; this attnlab reads 1"
    yield carry(PLAIN, "png", [1]), "no JSON object"
    yield carry(PLAIN, "png", {"attnlab": 1, "patterns": [{}]}), "carries is damaged"
    yield PLAIN, "carries nothing"
    yield b"\xff\xfe", "is damaged"


PLAIN = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IEND" + zlib.crc32(b"IEND").to_bytes(4, "big")


def test_what_is_damaged_foreign_or_empty_is_refused_in_one_sentence(tmp_path):
    path = attnlab.plot.save(FIGURES["head"](), tmp_path / "head.png", dpi=40)
    content = path.read_bytes()
    for broken, sentence in damaged(content):
        path.write_bytes(broken)
        with pytest.raises(CouldNotRun, match=sentence):
            attnlab.open(path)
    with pytest.raises(CouldNotRun, match="could not read"):
        attnlab.open(tmp_path / "nowhere.png")
