"""A person changes a model, and wants to know that the change landed, and what it alone did."""

import json
import shutil

NESTED = """
import json, pathlib
import attnlab, torch

model = attnlab.load("runs/sorting")
tokens = torch.tensor([[3, 1, 2, 0]])
plain = model(tokens)
with attnlab.edit(model, attnlab.ZeroHead(layer=0, head=0)) as outer:
    with attnlab.edit(model, attnlab.ZeroHead(layer=0, head=1)) as inner:
        both = model(tokens)
with attnlab.edit(model, attnlab.ZeroHead(layer=0, head=0)):
    first = model(tokens)
print(float((first - plain).abs().max()), float((both - first).abs().max()))
print(outer.effects[""].largest, inner.effects[""].largest)
pathlib.Path("certificate.json").write_text(json.dumps(inner.to_mapping()))
(again,) = attnlab.edits.edits_from_json(pathlib.Path("edited/edits.json").read_text())
print(again == attnlab.ZeroHead(layer=0, head=0))
"""

MISTYPED = """
import attnlab, torch

model = attnlab.load("runs/sorting")
question = attnlab.ask("runs/sorting", "cab")
for cut in (attnlab.CutEdge(query="SEP", key="z"), attnlab.CutEdge(query=6, key=0)):
    try:
        attnlab.fork(question, cut)
    except attnlab.AttnlabError as error:
        print(error)
try:
    with attnlab.edit(model, attnlab.CutEdge(query=999, key=0)):
        model(torch.tensor([[3, 1, 2, 0]]))
except attnlab.AttnlabError as error:
    print(error)
"""

METHOD = """
import attnlab

def sharpest(model, inputs, answers):
    found = {}
    with attnlab.record(model, "*.weights") as recording:
        model(**inputs)
    for site in recording:
        for head, weights in enumerate(recording[site].unbind(1)):
            found[f"{site.removesuffix('.weights')}.{head}"] = float(weights.amax(-1).mean())
    return found
"""


def test_an_edit_is_made_kept_and_made_again_and_tells_what_it_alone_did(home, sorter):
    shutil.copytree(sorter, home.here / "runs" / "sorting")
    once = home.run("attnlab edit sorting cab --zero-head 0.0 --out edited")
    assert "1 edit, native backend" in once.out
    assert "no-op edits at the same sites, in the first: 0 (must be exactly 0)" in once.out
    (kept,) = json.loads((home.here / "edited/edits.json").read_text())
    assert (kept["edit"], kept["layer"], kept["head"], kept["row"]) == ("ZeroHead", 0, 0, None)
    again = home.run("attnlab edit sorting cab --edits edited/edits.json")
    answer = once.out.partition("1 edit")[0]
    assert answer in again.out

    moved, told, same = home.python(NESTED).out.splitlines()
    for expected, figure in zip(moved.split(), told.split(), strict=True):
        assert abs(float(expected) - float(figure)) < 1e-5
        assert float(figure) > 0
    assert same == "True"
    certificate = json.loads((home.here / "certificate.json").read_text())
    assert certificate["holds"]
    assert certificate["effects"][""]["identity"] == 0

    token, position, beyond = home.python(MISTYPED).out.splitlines()
    assert "no token is called 'z'" in token
    assert "query=6 is out of range; the longest input has 6 positions, 0 to 5" in position
    assert "query=999 was never reached; the longest input had 4 positions" in beyond
    for words, reason in (
        ("SEP-z", "no token is called 'z'"),
        ("6-0", "query=6 is out of range; the longest input has 6 positions"),
    ):
        refused = home.run(f"attnlab edit sorting cab --cut-edge {words}", status=2)
        assert reason in " ".join(refused.err.split())
        assert refused.out == ""


def test_a_method_of_ones_own_stands_beside_those_that_look_at_no_model(home):
    (home.here / "mine.py").write_text(METHOD)
    home.run("attnlab truth score mine.py:sharpest --ladder position --out scores")
    table = json.loads((home.here / "scores/scores.json").read_text())
    (mine,) = table["methods"]
    assert mine["method"] == "mine.py:sharpest"
    for row in table["baselines"]:
        _, low, high = row["auroc"]
        assert low <= 0.5 <= high, row["method"]
