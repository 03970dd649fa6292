"""Edits as text: JSON there and back, and as they print."""

import copy
import dataclasses
import pickle
import sys

import pytest
import torch

import attnlab.edits as op
from attnlab.cli.edit_syntax import parse_edit
from attnlab.edits.edit import edit_kinds
from attnlab.errors import WrongUsage
from attnlab.look import record
from tests.random_models import random_model, tokens

from .cases import Case
from .kinds import KINDS

edit_module = sys.modules[edit_kinds.__module__]


def test_rows_of_one_batch_survive_json():
    (back,) = op.edits_from_json(op.edits_to_json([op.ZeroHead(layer=0, head=1, row=2)]))
    assert back.row == 2


@pytest.mark.parametrize("kind", KINDS)
def test_edits_go_through_json_and_come_back_the_same(kind):
    for seed in range(3):
        edited, _ = KINDS[kind](Case(seed))
        text = op.edits_to_json([edited])
        (back,) = op.edits_from_json(text)
        assert type(back) is type(edited)
        assert back == edited
        assert op.edits_to_json([back]) == text
        assert hash(back) == hash(edited)
    form = edited.to_json()  # with every setting, so that a later default changes no file
    names = {field.name for field in dataclasses.fields(edited)}
    targets = {"layer", "site", "head", "query", "key", "row", "step"}
    assert form.keys() == names - targets | {"layer", "site", *edited.NARROWS, "edit", "version"}


def test_every_edit_is_in_the_numpy_tests_and_in_the_face():
    made = {type(KINDS[kind](Case(2 if kind == "swap_heads" else 0))[0]).__name__ for kind in KINDS}
    ours = {name for name, kind in edit_kinds().items() if kind.__module__.startswith("attnlab.")}
    assert made == ours  # other tests have edits of their own
    assert ours <= set(op.__all__)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ('{"edit": "ZeroHead"}', "a JSON list of objects; got a dict"),
        ("[", "this is not JSON"),
        ('["ZeroHead"]', "an edit is an object"),
        ('[{"edit": "ZeroHed", "head": 1}]', "no edit 'ZeroHed'; did you mean 'ZeroHead'"),
        ('[{"edit": "ZeroHead", "heads": 1}]', "takes no 'heads'; did you mean 'head'"),
        ('[{"edit": "ZeroHead", "head": 1, "version": 1}]', "written in version 1; this attnlab"),
        ('[{"edit": "Temperature", "temprature": 2}]', "takes no 'temprature'; did you mean 't"),
        ('[{"edit": "ScaleHead", "head": 1}]', "ScaleHead needs factor="),
        ('[{"edit": "ZeroHead", "head": 1, "channel": 2}]', "ZeroHead takes no 'channel'"),
        ('[{"edit": "ZeroSite", "site": "hidden", "channel": "x"}]', "channel= takes numbers"),
        ('[{"edit": "ZeroHead", "head": {"a": 1}}]', "got an object with 'a'"),
        ('[{"edit": "SetPattern", "pattern": {"tensor": [[1]], "dtype": "float31"}}]', "float32"),
    ],
)
def test_json_that_is_not_an_edit_is_refused_with_the_reason(form, message):
    with pytest.raises(WrongUsage, match=message):
        op.edits_from_json(form)


@pytest.mark.parametrize("name", ["ZeroHead", "Zero_Head", "zero_head", "ZEROHEAD"])
def test_an_edit_that_takes_the_name_of_another_is_refused(name):
    known = dict(edit_kinds())
    with pytest.raises(WrongUsage, match=r"is already an edit of attnlab\.edits\.site_edits"):
        type(name, (op.Edit,), {"__module__": __name__, "__annotations__": {}})
    assert edit_kinds() == known
    (back,) = op.edits_from_json('[{"edit": "ZeroHead", "head": 1}]')
    assert type(back) is op.ZeroHead


def test_an_edit_that_is_defined_once_more_replaces_itself_as_in_a_notebook(monkeypatch):
    monkeypatch.setattr(edit_module, "_KINDS", dict(edit_kinds()))
    for _ in range(2):
        own = type("OwnEdit", (op.Edit,), {"__module__": "notebook", "__annotations__": {}})
        assert type(op.edits_from_json('[{"edit": "OwnEdit"}]')[0]) is own


def test_the_edit_of_another_package_is_read_from_json_without_being_loaded_before(monkeypatch):
    monkeypatch.setattr(edit_module, "_KINDS", dict(edit_kinds()))

    class Point:
        def load(self):
            return type("OfAPackage", (op.Edit,), {"__module__": "p", "__annotations__": {}})

    monkeypatch.setattr(edit_module, "entry_points", lambda group: [Point()])
    (back,) = op.edits_from_json('[{"edit": "OfAPackage", "layer": 1}]')
    assert repr(back) == "OfAPackage(layer=1)"


def test_settings_need_their_names_and_copies_keep_them():
    with pytest.raises(WrongUsage, match=r"got \(0, 1\). Head 0.1 is layer=0, head=1"):
        op.ZeroHead(0, 1)
    with pytest.raises(WrongUsage, match="Temperature needs temperature="):
        op.Temperature()
    cut = op.ScaleHead(layer=0, head=1, factor=2.0)
    assert copy.deepcopy(cut) == cut == pickle.loads(pickle.dumps(cut))


def test_infinities_and_recordings_go_through_json():
    cut = op.AddToScores(amount=torch.tensor([0.0, -float("inf")]))
    (back,) = op.edits_from_json(op.edits_to_json([cut]))
    assert torch.equal(back.amount, cut.amount)
    (back,) = op.edits_from_json(op.edits_to_json([op.AddToScores(amount=-float("inf"), key=1)]))
    assert back.amount == -float("inf")
    model = random_model("decoder")
    with record(model, "layers.0.residual_after") as recording:
        model(tokens())
    patch = op.Patch(site="layers.0.residual_after", recording=recording)
    (back,) = op.edits_from_json(op.edits_to_json([patch]))
    assert torch.equal(back.recording[patch.site], recording[patch.site])
    brief = op.Patch(site="x", recording={"x": torch.ones(2000)}).to_json(brief=True)
    assert set(brief["recording"]["values"]["x"]) == {"shape", "sha256"}


def test_edits_print_as_they_are_written():
    for edited, text in (
        (op.ZeroHead(layer=3, head=5), "ZeroHead(layer=3, head=5)"),
        (op.CutEdge(query=[5, "t1"], key="0..2"), "CutEdge(query=[5, 't1'], key='0..2')"),
        (
            op.ScaleHead(head=-1, factor=2.0, row=range(2)),
            "ScaleHead(head=-1, row=[0, 1], factor=2.0)",
        ),
        (op.AddVector(site="x", vector=torch.ones(16)), "AddVector(site='x', vector=tensor(16))"),
    ):
        assert repr(edited) == text
    assert op.ZeroHead(head=1) != op.ZeroHead(head=2)
    assert op.ZeroHead(head=1) != "ZeroHead(head=1)"


def test_a_channel_is_said_in_json_and_on_the_command_line():
    edited = op.ZeroSite(site="layers.3.feed_forward.hidden", channel=17)
    assert repr(edited) == "ZeroSite(site='layers.3.feed_forward.hidden', channel=17)"
    assert op.edits_from_json(op.edits_to_json([edited])) == [edited]
    assert edited != op.ZeroSite(site="layers.3.feed_forward.hidden")
    for words, channel in (("17", 17), ("1,4", (1, 4)), ("2..4", "2..4")):
        assert parse_edit(f"zero-site site=hidden channel={words}").channel == channel


def test_edits_are_written_in_one_version_and_read_without_it():
    late = op.ZeroHead(head=0, step="2..3")
    form = late.to_json()
    assert form["version"] == 2
    unversioned = [{"edit": "ZeroHead", "head": 0, "step": "2..3"}]
    assert op.edits_from_json([form]) == [late] == op.edits_from_json(unversioned)
