"""One neuron, one channel: edits of sites along the last axis, beside hooks written by hand."""

from typing import Any

import numpy as np
import pytest
import torch

import attnlab
from attnlab import edits as op
from attnlab.cli.edit_syntax import parse_edit
from attnlab.errors import WrongUsage
from attnlab.models import Decoder
from attnlab.sites import Hook, installed
from tests.planting import noticed
from tests.random_models import random_model

HIDDEN = "layers.1.feed_forward.hidden"  # of 7 channels
TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
CHANNELS: list[tuple[Any, list[int]]] = [
    (3, [3]),
    (-1, [6]),
    ([0, 5], [0, 5]),
    ("2..4", [2, 3, 4]),
    ("-2..", [5, 6]),
    ("all", list(range(7))),
]


class ByHand(Hook):
    """Changes some channels of one site, row by row and position by position."""

    def __init__(self, site, where, change):
        self.site, self.where, self.change = site, where, change

    def wants(self, site):
        return site == self.site

    def visit(self, site, value):
        new = value.detach().numpy().copy()
        for place in self.where:
            new[place] = self.change(value, *place)
        return torch.from_numpy(new)


@pytest.fixture
def model():
    made = random_model("decoder")
    assert isinstance(made, Decoder)
    return made.eval()


@pytest.mark.parametrize(("channel", "numbers"), CHANNELS)
@pytest.mark.parametrize("kind", ["zero", "scale", "add", "mean", "patch"])
def test_only_these_channels_change(model, channel, numbers, kind):
    vector = torch.linspace(1.0, 2.0, 7, dtype=torch.float64)
    recording = attnlab.record(model, TOKENS.flip(1), HIDDEN)
    other = recording[HIDDEN]
    targets: dict[str, Any] = {"site": HIDDEN, "channel": channel, "row": 1, "query": -2}
    cases: dict[str, tuple[op.Edit, Any]] = {
        "zero": (op.ZeroSite(**targets), lambda value, *place: 0.0),
        "scale": (op.ScaleSite(factor=3.0, **targets), lambda value, *place: 3.0 * value[place]),
        "add": (
            op.AddVector(vector=vector, scale=2.0, **targets),
            lambda value, *place: value[place] + 2.0 * vector[place[-1]],
        ),
        "mean": (
            op.MeanSite(over="rows", **targets),
            lambda value, row, query, channel: value[:, query, channel].mean(),
        ),
        "patch": (op.Patch(recording=recording, **targets), lambda value, *place: other[place]),
    }
    edit, change = cases[kind]
    hook = ByHand(HIDDEN, [(1, 2, number) for number in numbers], change)
    with torch.no_grad(), installed(model, hook):
        expected = model(TOKENS)
    with torch.no_grad(), attnlab.edit(model, edit) as certificate:
        logits = model(TOKENS)
    assert np.allclose(logits.numpy(), expected.numpy(), rtol=1e-12, atol=1e-13)
    assert certificate.holds
    assert certificate.edits[0].values == len(numbers)
    assert certificate.edits[0].changed is not None
    assert certificate.edits[0].changed <= len(numbers)


def test_a_channel_of_a_head_and_of_the_logits(model):
    for site, values in (("layers.0.attention.heads", 2 * 4), ("logits", 2 * 4)):
        edit = op.ScaleSite(
            site=site, channel=1, factor=2.0, **{"head": 2} if "heads" in site else {}
        )
        with torch.no_grad(), attnlab.edit(model, edit) as certificate:
            model(TOKENS)
        assert certificate.holds
        assert certificate.edits[0].changed == certificate.edits[0].values == values


def test_a_channel_is_said_in_json_and_on_the_command_line():
    edit = op.ZeroSite(site="layers.3.feed_forward.hidden", channel=17)
    assert repr(edit) == "ZeroSite(site='layers.3.feed_forward.hidden', channel=17)"
    assert op.edits_from_json(op.edits_to_json([edit])) == [edit]
    assert parse_edit("zero-site site=layers.3.feed_forward.hidden channel=17") == edit
    assert parse_edit("zero-site site=hidden channel=1,4").channel == (1, 4)  # type: ignore[attr-defined]
    assert parse_edit("zero-site site=hidden channel=2..4").channel == "2..4"  # type: ignore[attr-defined]
    assert op.ZeroSite(site="hidden") != op.ZeroSite(site="hidden", channel=0)


def test_channels_that_are_not_there(model):
    cases: list[tuple[op.Edit, str]] = [
        (op.ZeroSite(site=HIDDEN, channel=7), r"channel=7 is out of range: .* has 7 channels"),
        (
            op.Patch(site="layers.0.attention.weights", channel=1, recording={}),
            "the last axis of layers.0.attention.weights are keys; use key=",
        ),
    ]
    for edit, words in cases:
        with pytest.raises(WrongUsage, match=words), attnlab.edit(model, edit):
            model(TOKENS)
    with pytest.raises(WrongUsage, match="is empty"):
        op.ZeroSite(site=HIDDEN, channel="5..2")


@pytest.mark.parametrize(
    ("module", "snippet", "fault"),
    [
        ("edits.site_edits", 'site}")] = True', 'site}")[:1]] = True'),
        ("edits.site_edits", 'site}")] = True', 'site}")[0] - 1] = True'),
        ("edits.editor", "chosen & channels", "chosen | channels"),
    ],
)
def test_planted_faults_are_seen(model, module, snippet, fault):
    """The first channel alone, the neighbor, the whole axis of positions."""
    with noticed(module, snippet, fault):
        test_only_these_channels_change(model, [3, 5], [3, 5], "scale")
