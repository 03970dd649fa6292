"""The page as a file: one piece, within its size, made of modules that are joined once."""

import html
import json
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import attnlab
from attnlab.draw import markup
from attnlab.draw.view import page as view_page_module
from attnlab.draw.view import view_page, write_view
from attnlab.draw.view.maps import fit_maps
from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.progress import is_notebook
from tests.random_models import new_model

from ..attention.patterns import ODD, make_layers, make_pattern
from .reading import read_back

FOLDER = Path(markup.__file__).parent


def test_the_page_loads_nothing_and_no_text_leaves_its_place():
    page = view_page([make_pattern(queries=len(ODD), tokens=ODD)], title=f"</h1>{ODD[-1]}")
    assert "unsafe" not in page
    assert not re.search(r'(?:src|href)="(?!data:,|#)', page)
    assert "<script>alert" not in page  # of a token and of the title


def test_the_page_is_never_larger_than_allowed():
    patterns = make_layers(2, 4, 300)
    full = len(view_page(patterns))
    assert full > 400_000
    for share in (0.9, 0.7):
        assert len(view_page(patterns, max_bytes=int(full * share)).encode()) <= full * share
    with pytest.raises(WrongUsage, match="give a larger max_bytes than 1,000"):
        view_page(patterns, max_bytes=1000)


def test_notes_stand_among_the_facts_with_their_lines_and_rows_of_a_table_below():
    notes = [("Answers", "unedited: <a>\n  edited: b")]
    page = view_page(make_layers(), notes=notes, table=[("step", "after"), ("1", "<b>")])
    note = '<div class="told"><dt>Answers</dt><dd>unedited: &lt;a&gt;\n  edited: b</dd></div>'
    assert note in page
    assert "<tr><td>1</td><td>&lt;b&gt;</td></tr>" in page
    assert "answers: table" not in view_page(make_layers()).lower()
    long = [("Certificate", "ü" * 100_000)]
    with pytest.raises(WrongUsage, match="leaves no room for the maps"):
        view_page(make_layers(), notes=long, max_bytes=300_000)
    for notes in (["ab"], [("name",)], [("name", 3)]):
        with pytest.raises(WrongUsage, match="notes are pairs of texts"):
            view_page(make_layers(), notes=notes)


SAME = "the patterns are the same"


def test_two_recordings_that_differ_in_no_pattern_are_said_to_be_the_same():
    same = view_page(make_layers(), make_layers())
    assert SAME in same
    assert same == view_page(make_layers(), make_layers())  # to the byte
    assert SAME not in view_page(make_layers())
    other = make_layers()
    weights = other[1].weights.clone()
    weights[2, 7, :2] += torch.tensor([1e-4, -1e-4])
    other[1] = replace(other[1], weights=weights)
    assert SAME not in view_page(make_layers(), other)


def test_a_page_may_open_with_the_head_that_tells_most_and_says_by_which_rule():
    patterns = make_layers()
    length = patterns[0].weights.shape[-1]
    resting, looking = torch.zeros(length, length), torch.eye(length)
    resting[:, 0] = 1.0
    for number, weights in ((0, resting), (1, looking)):
        layer = patterns[number].weights.clone()
        layer[2] = weights  # of least entropy, but the first rests on the first key
        patterns[number] = replace(patterns[number], weights=layer)
    page = view_page(patterns, opens="telling")
    assert f'"opens":{{"site":"{patterns[1].site}","head":2}}' in page
    assert "Shown first</dt><dd>head 1.2: the lowest entropy of the heads that do not rest" in page
    other = make_layers()
    other[0] = replace(other[0], weights=patterns[0].weights)
    compared = view_page(make_layers(), other, opens="telling")
    assert f'"opens":{{"site":"{patterns[0].site}","head":2}}' in compared
    assert "head 0.2: its weights change most" in compared
    assert "Shown first" not in view_page(make_layers(), make_layers(), opens="telling")


def test_a_recording_is_shown_with_its_tokens_or_refused_with_what_it_holds():
    decoder = new_model("decoder", vocab_size=5, num_heads=2)
    sites = "layers.*.attention.weights"
    with record(decoder, sites, vocabulary="abcde") as recording, torch.no_grad():
        decoder(torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]))
    page = view_page(recording, row=1)
    assert '"query_tokens":["e","d","c","b"],"key_tokens":["e","d","c","b"]' in page
    maps = json.loads(re.findall(r'id="maps">(.*)</script>', page)[0])
    (head, _) = maps["groups"][0]["layers"][0]["heads"]
    assert np.isnan(read_back(head["maps"][0][0])[0]).tolist() == (np.tri(4) == 0).tolist()
    assert "<dt>Model</dt><dd>decoder</dd>" in page
    with pytest.raises(WrongUsage, match="rows 0 to 1; got row 2"):
        view_page(recording, row=2)
    for other, words in (
        ({"logits": torch.zeros(1, 2, 3)}, r"record weights, .* the recording has logits"),
        (3, "got an int"),
        ([], "expected a recording"),
    ):
        with pytest.raises(WrongUsage, match=words):
            view_page(other)
    model = new_model("encoder-decoder", vocab_size=7, d_model=8, num_heads=2, num_layers=1)
    with record(model, "*.weights") as recording, torch.no_grad():
        model(torch.tensor([[6, 5, 4, 3, 2]]), torch.tensor([[0, 1, 2]]))
    page = view_page(recording)
    assert "6 in 3 attentions" in page
    names = '"query_tokens":["0","1","2"],"key_tokens":["6","5","4","3","2"]'
    assert f'"name":"Decoder cross-attention",{names}' in page


def test_elsewhere_the_page_is_written_and_opened(tmp_path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    own = tempfile.mkdtemp
    chosen = lambda suffix=None, prefix=None, dir=None: (  # noqa: E731
        own(suffix, prefix, dir) if dir else str(tmp_path)
    )
    monkeypatch.setattr("tempfile.mkdtemp", chosen)
    place = attnlab.show(make_layers(), title="Here")
    assert isinstance(place, Path)
    assert opened == [place.as_uri()]
    assert "<h1>Here</h1>" in place.read_text()
    written = write_view(tmp_path / "other.html", make_layers()).read_text()
    assert written == view_page(make_layers())


def test_inside_a_notebook_it_is_a_sealed_frame(monkeypatch):
    shell: Any = type("Shell", (), {"kernel": object()})()
    notebook: Any = ModuleType("IPython")
    notebook.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    frame = attnlab.show(make_layers())._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts" ')
    (inside,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(inside) == view_page(
        make_layers(), max_bytes=view_page_module.NOTEBOOK_BYTES
    )
    notebook.get_ipython = lambda: None
    assert not is_notebook()


HOST = """<!DOCTYPE html><html lang="en"><body><div id="place"></div><script type="module">
import { mount } from "/view/modules/view.js";
await mount(document.getElementById("place"), await (await fetch("/maps.json")).json());
</script></body></html>"""


def test_the_frame_of_a_notebook_works_and_the_modules_mount_in_any_page(visited):
    page = visited.page()
    page.set_content(view_page_module.NotebookPage(view_page(make_layers()))._repr_html_())
    page.frame_locator("iframe").locator("#view[data-ready='true']").wait_for()
    maps = json.dumps(fit_maps(make_layers(), max_bytes=10**7))
    own = {"": (HOST, "text/html"), "maps.json": (maps, "application/json")}

    def answer(route):
        path = route.request.url.removeprefix("http://attnlab.test/")
        if path in own:
            body, kind = own[path]
            route.fulfill(body=body, content_type=kind)
        elif path.endswith(".js"):
            route.fulfill(body=(FOLDER / path).read_text(), content_type="text/javascript")
        else:
            route.fulfill(status=404)

    page.route("http://attnlab.test/**", answer)
    page.goto("http://attnlab.test/")
    page.locator("#place[data-ready='true']").wait_for(timeout=10_000)
    page.locator(".head[data-layer='1'][data-head='2']").click()
    page.get_by_role("heading", name="Head 1.2").wait_for()
    page.unroute_all()
