"""attnlab look and attnlab edit: what they print is what the library says."""

import json
import re
import shutil

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.cli.answers import show_trace
from attnlab.cli.edit_syntax import parse_edit, read_edits
from attnlab.cli.prompts import ask
from attnlab.edits import AddToScores, CutEdge, RedirectToFirst, ZeroHead, edit, edits_to_json
from attnlab.look import open_recording
from attnlab.look.trace import HeadTrace, Trace


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sorter, without_figures):
    parent = tmp_path_factory.mktemp("work")
    shutil.copytree(sorter, parent / "runs" / "good")
    made = parent / "runs" / "made"
    command = f"run handmade --quiet --out {made} --set seeds=1 steps=1 positions=one_hot"
    assert main(command.split()) in (0, 1)
    return parent


@pytest.fixture(autouse=True)
def _elsewhere(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "100")


def test_look_says_what_a_recording_says(run):
    status, out, _ = run("look good cab --json")
    found = json.loads(out)["layers.0.attention.weights"]
    assert status == 0
    assert found["query_tokens"] == found["key_tokens"] == ["c", "a", "b", "SEP", "a", "b"]
    recording = attnlab.recorded(attnlab.ask("runs/good", "cab"))
    expected = recording["layers.0.attention.weights"][0].tolist()
    for head, weights in zip(found["heads"], expected, strict=True):
        for query, row in enumerate(head["rows"]):
            assert row[: query + 1] == pytest.approx(weights[query][: query + 1], abs=1e-6)
            assert row[query + 1 :] == [None] * (5 - query)


def without_blocks(text):
    """Leave away the blocks beside weights, which are as tall as these."""
    return re.sub("[▁-█]", "", text)


def test_look_shows_each_head_with_its_tokens_and_masked_cells_as_masked(run):
    _, out, _ = run("look good cab")
    lines = without_blocks(out).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("head ")] == ["0.0", "0.1"]
    first = lines[next(number for number, line in enumerate(lines) if "query" in line) + 1]
    assert first.split() == ["c", "1.00", "·", "·", "·", "·", "·"]


def test_look_shows_any_site(run):
    status, out, _ = run("look good cab --site *residual_after *scores *mask")
    assert status == 0
    assert "layers.0.residual_after  (6, 6), root mean square" in out
    assert "layers.0.attention.scores  (2, 6, 6)" in out
    assert "layers.0.attention.mask  (6, 6), 21 of 36 not masked" in out


@pytest.mark.parametrize("command", ["look", "trace"])
def test_a_narrow_terminal_gets_other_tables_without_any_loss(command, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "38")
    out = without_blocks(run(f"{command} good cab")[1])
    assert "…" not in out
    table = [line.split() for line in out.splitlines() if line.startswith("  SEP ")]
    if command == "look":
        assert [row[:2] for row in table] == [["SEP", row[1]] for row in table]
        assert all(row[2].endswith(")") for row in table)
    else:
        weights = json.loads(run("trace good cab --json")[1])["attention"]
        assert table[0] == ["SEP", *(f"{head['rows'][3][3]:.2f}" for head in weights)]


def test_a_wrong_choice_is_marked_in_words(run, capsys):
    for command in ("trace good cab", "trace made CAB"):
        assert "wrong" not in run(command)[1]
    out = run("edit good cab --edit 'add-vector site=logits vector=[0,0,0,90]'")[1]
    assert out.count("), wrong") == 2
    assert "c a b → a b c   edited → c c c" in out
    show_trace(ask("good", ["cab"]).trace().with_expected(["a", "c", "c"]))
    marked = [line for line in capsys.readouterr().out.splitlines() if "wrong" in line]
    assert [line.partition("   wrong: ")[2] for line in marked] == ["c is right", "a c c is right"]


def test_edit_says_the_same_as_the_library(run):
    status, out, _ = run("edit good cab --zero-head 0.1 --json")
    found = json.loads(out)
    model = attnlab.load("runs/good")
    with edit(model, ZeroHead(layer=0, head=1)):
        expected = attnlab.generate(model, torch.tensor([[3, 1, 2, 0]]), 3, forbidden=[0])
    assert status == 0
    steps = found["after"]["steps"]
    assert [" abc"[token] for token in expected.tokens[0, 4:]] == [each["choice"] for each in steps]
    probabilities = torch.tensor([step["probabilities"] for step in steps])
    assert torch.allclose(probabilities, expected.probabilities[0, :, 1:].float(), atol=1e-6)
    assert found["edits"] == [ZeroHead(layer=0, head=1).to_json()]
    assert found["before"]["tokens"][:4] == ["c", "a", "b", "SEP"]
    assert found["certificate"]


def test_edits_are_read_from_a_file_and_before_all_others(run, tmp_path):
    file = tmp_path / "edits.json"
    edits = [RedirectToFirst(layer=0, head=0), AddToScores(amount=-1.0, key=0)]
    file.write_text(edits_to_json(edits))
    _, out, _ = run(f"edit good cab --edits {file} --zero-head 0.1 --json")
    names = [each["edit"] for each in json.loads(out)["edits"]]
    assert names == ["RedirectToFirst", "AddToScores", "ZeroHead"]


def test_a_handmade_head_can_be_looked_at_and_edited(run):
    status, out, _ = run("look made 'unique CAB' --json")
    assert (status, json.loads(out)["weights"]["key_tokens"]) == (0, ["CLS", "C", "A", "B"])
    status, out, _ = run("edit made CAB --edit 'uniform-pattern head=0'")
    assert status == 0
    assert "C A B → C C C" in out


EDITS = {
    "zero-head layer=0 head=1": ZeroHead(layer=0, head=1),
    "ZeroHead layer=0,1 head=all": ZeroHead(layer=[0, 1], head="all"),
    "cut_edge query=2..4 key=-1": CutEdge(query="2..4", key=-1),
    "redirect-to-first head=[0,1] site=a.b": RedirectToFirst(head=[0, 1], site="a.b"),
}
EDGES = {
    "dog-all": CutEdge(query="dog", key="all"),
    "all-cat": CutEdge(query="all", key="cat"),
    "true-null": CutEdge(query="true", key="null"),
    "NaN-1e3": CutEdge(query="NaN", key="1e3"),
    "dog--": CutEdge(query="dog", key="-"),
    "dog-,": CutEdge(query="dog", key=","),
    "3-0": CutEdge(query=3, key=0),
    "-1--2": CutEdge(query=-1, key=-2),
    "2..4-..-3": CutEdge(query="2..4", key="..-3"),
    "a,3-b": CutEdge(query=["a", 3], key="b"),
    '"3"-"a-b"': CutEdge(query="3", key="a-b"),
    "well-known-dog": CutEdge(query="well-known", key="dog"),
}


def test_an_edit_is_written_as_its_name_and_settings():
    for text, edit_ in EDITS.items():
        assert parse_edit(text) == edit_


@pytest.mark.parametrize("text", EDGES)
def test_an_edge_names_its_two_tokens_whatever_they_are_called(text):
    (found,) = read_edits([], [text], [], None)
    assert found == EDGES[text]
    if "-" not in f"{found.query}{found.key}" and "," not in text:
        query, _, key = text.partition("-")
        assert parse_edit(f"cut-edge query={query} key={key}") == found


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("look good", "type an input after the run, before any option: 3 letters from a to c"),
        ("look good cab --site layer.*", "no site of this model matches 'layer.*'"),
        ("look good cax", "expected"),
        ("look good cab --head 9.1", "there is no head 9.1; the layers with heads are 0"),
        ("look good cab --site", "--site needs a site"),
        ("edit good cab --edit ''", "got nothing"),
        ("edit good cab", "name at least one edit"),
        ("edit good cab --zero-head 1", "a head is LAYER.HEAD, such as 0.1"),
        ("edit good cab --zero-head 0.5", "head"),
        ("edit good cab --cut-edge 3", "an edge is QUERY-KEY"),
        ("edit good cab --cut-edge 3-x", "no token is called 'x'"),
        ("edit good cab --edit 'zero-haed head=0'", "did you mean 'zero-head'"),
        ("edit good cab --edit 'zero-head hed=0'", "did you mean 'head'"),
        ("edit good cab --edit 'zero-head head'", "a setting of an edit is key=value"),
        ("edit good cab --edit ' '", "an edit is a name and its settings"),
        ("edit good cab --edit temperature", "Temperature needs temperature="),
        ("edit good cab --edit 'zero-head head=0 head=1'", "head= is given twice"),
        ("edit good cab --zero-head 0.0 --from-step 4", "this answer has 3 steps, from 1 to 3"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(typed, sentence, refused):
    refused(typed, 2, sentence)


def test_look_keeps_the_recording_figures_and_a_page_that_opens_with_the_telling_head(
    run, tmp_path
):
    folder = tmp_path / "kept"
    status, out, _ = run(f"look good cab --out {folder} --site *weights *residual_after")
    assert status == 0
    page = f"page     {folder / 'view.html'}"
    assert out.rstrip().splitlines()[-2:] == [page, f"look at  attnlab open {folder}"]
    recording = open_recording(folder / "recording")
    assert list(recording) == ["layers.0.attention.weights", "layers.0.residual_after"]
    assert recording.tokens("layers.0.attention.weights").key == ["c", "a", "b", "SEP", "a", "b"]
    names = {"all-heads", "layers.0.attention.0", "layers.0.attention.1"}
    expected = {f"{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")}
    assert {path.name for path in (folder / "figures").iterdir()} >= expected
    page = (folder / "view.html").read_text()
    assert "good: cab" in page
    telling = re.search(r"Shown first</dt><dd>head 0\.([01]): the lowest entropy of", page)
    assert f'"head":{telling[1]}}}' in page
    run(f"look good cab --head 0.1 --out {tmp_path / 'named'}")
    opens = '"opens":{"site":"layers.0.attention.weights","head":1}'
    assert opens in (tmp_path / "named" / "view.html").read_text()


def figures_in(folder):
    return {each.stem for each in (folder / "figures").glob("*.png")}


def test_edit_keeps_what_repeats_it_and_both_answers_as_figures(run, tmp_path):
    folder = tmp_path / "kept"
    _, first, _ = run(f"edit good cab --cut-edge SEP-a --out {folder} --json")
    _, again, _ = run(f"edit good cab --edits {folder / 'edits.json'} --json")
    assert json.loads(first) == json.loads(again)
    before, after = (
        open_recording(folder / name)["layers.0.attention.weights"] for name in ("before", "after")
    )
    changed = (before != after).any(1)[0].nonzero().tolist()
    assert {query for query, _ in changed} == {3}  # SEP stands there, and nowhere else
    assert (after[0, :, 3, 1] == 0).all()
    assert open_recording(folder / "after").edits[0]["edit"] == "CutEdge"
    maps = {f"difference.layers.0.attention.{head}" for head in (0, 1)}
    assert figures_in(folder) == {"before", "after", *maps}


def test_the_page_of_an_edit_shows_each_step_before_and_after_and_no_map_of_zeros(run, tmp_path):
    folder = tmp_path / "kept"
    _, out, _ = run(f"edit good cab --zero-head 0.1 --out {folder}")
    page = (folder / "view.html").read_text()
    steps = [re.split(r"  +", line) for line in out.splitlines() if re.match(r"[1-3]  ", line)]
    assert len(steps) == 3
    for number, before, after, *_ in steps:
        assert f"<tr><td>{number}</td><td>{before}</td><td>{after}</td>" in page
    assert figures_in(folder) == {"before", "after"}  # of a silent head no weight has changed


def test_cross_attention_is_shown_first(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run(
        "run lookup -q --out runs/facts --set part=fixed seeds=1 control_seeds=1 samples=10"
        " epochs=1 d_model=8 d_ff=8"
    )
    words = "NAME RED ITEM CHAIR COLOR"
    named = re.findall(r"^head (\w+) 0\.\d", run("look facts", words)[1], re.M)
    assert list(dict.fromkeys(named)) == ["cross", "encoder", "decoder"]
    traced = re.findall(r"^  (\w+) 0\.0 ", run("trace facts", words)[1], re.M)
    assert traced[:2] == ["cross", "decoder"]


def test_an_edit_that_lands_nowhere_leaves_no_folder(run, tmp_path):
    folder = tmp_path / "kept"
    # the recording, unlike the answer, is made in one pass
    late = "edit good cab --edit 'zero-head layer=0 head=0 step=3'"
    status, _, err = run(f"{late} --out {folder}")
    assert status == 2
    assert "step=3 was never reached" in err
    assert not folder.exists()


def test_the_edits_are_listed_with_what_they_are_told(run):
    status, out, _ = run("edits --json")
    found = {each["edit"]: each["settings"] for each in json.loads(out)}
    assert status == 0
    assert found["temperature"] == "query= step= temperature="
    assert found["zero-head"] == "query= step="
    assert found["cut-edge"] == "query= key= step= [renormalize=]"
    assert "set a head's output to zero" in run("edits")[1].lower()


def test_tokens_named_to_a_model_of_vectors_are_answered_with_their_positions(run):
    status, out, err = run("edit made CAC --cut-edge C-A")
    assert (status, out) == (2, "")
    assert "0 is C, 1 is A, 2 is C" in err
    assert "vocabulary=" not in err
    assert run("edit made CAC --cut-edge 0-1")[0] == 0


def test_what_can_be_told_before_a_model_is_opened_is(refused, monkeypatch, tmp_path):
    for command in ("look", "edit"):
        monkeypatch.setattr(f"attnlab.cli.{command}.ask", None)
    (tmp_path / "taken").write_text("mine")
    for typed, status, told in (
        ("edit good cab --edits nowhere.json", 3, "could not read the edits in nowhere.json"),
        ("look good cab --head x", 2, "a head is LAYER.HEAD"),
        (f"look good cab --out {tmp_path}", 3, "is there already"),
        ("edit good cab --zero-head x", 2, "a head is LAYER.HEAD"),
        (f"edit good cab --zero-head 0.1 --out {tmp_path}", 3, "is there already"),
    ):
        refused(typed, status, told)
    assert (tmp_path / "taken").read_text() == "mine"


def test_open_finds_the_page_that_look_find_or_a_document_left(run, monkeypatch, tmp_path):
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    for name in ("page.html", "view.html", "report.html"):
        (tmp_path / name).write_text("")
        status, out, _ = run(f"open {tmp_path}")
        assert status == 0
        assert str(tmp_path / name) in out


def test_why_without_a_key_takes_what_the_head_writes_apart(run, refused, tmp_path):
    status, out, _ = run("why good cab --head 0.0 --query 4 --logit b --json")
    assert status == 0
    found, model = json.loads(out), attnlab.load("runs/good")
    sources = attnlab.why(model, "cab", head="0.0", query=4, target="b")
    assert found["keys"] == ["c", "a", "b", "SEP", "a", "b"]
    assert found["logits"] == pytest.approx(sources.logits.tolist(), abs=1e-6)
    status, out, _ = run("why good cab --head 0.0 --query 4 --out", tmp_path / "why.html")
    assert status == 0
    assert out.startswith("head 0.0 at query 4 'a': norm ")
    assert "What head 0.0" in (tmp_path / "why.html").read_text()
    for typed, told in (
        ("--against 0", "--against compares with the key"),
        ("--key 0 --logit b", "leave --key out"),
        ("--logit d", "not an answer of this model"),
    ):
        refused(f"why good cab --head 0.0 --query 4 {typed}", 2, told)


def test_the_heading_of_many_heads_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    tokens, rows = ("[CLS]", "keys"), ((0.6, 0.4), (0.3, 0.7))
    heads = tuple(HeadTrace("layers.0.attention.weights", head, rows) for head in range(72))
    show_trace(Trace(tokens, tokens, (), heads))
    heading, first, *_ = capsys.readouterr().out.splitlines()
    assert heading.split() == ["token", "mean", "weight", "heads", "with", "the", "largest"]
    assert first.split()[:2] == ["[CLS]", "0.45▄"]
