"""Faults planted in the backends, each of them seen."""

from functools import partial

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.pretrained.attach import attach
from attnlab.sites import site_names
from tests.planting import Fault, fault_tests
from tests.pretrained import test_families, test_padding, test_streams
from tests.pretrained.families import FAMILIES, REFUSED
from tests.pretrained.trying import Tried, difference, tried
from tests.pretrained.written import Attention, X

pytest.importorskip("transformers")


def attached(name):
    Tried(FAMILIES[name])


def lazily(name):
    each = Tried(FAMILIES[name])
    assert all(point.is_lazy for _, point in each.model.attention_points())


def scores(name):
    each = tried(name)
    with attnlab.record(each.model, "*") as recording:
        each.run()
    same = attnlab.edits.Temperature(site="layers.1.attention", head=0, temperature=1.0)
    with attnlab.edit(each.model, same), attnlab.record(each.model, "*.scores") as opened:
        each.run()
    query, key = (recording[f"layers.1.attention.{name}"] for name in ("query", "key"))
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    raw = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    found = opened["layers.1.attention.scores"]
    shown = recording["layers.1.attention.scores"]
    for each in (found, shown):
        assert difference(each[each.isfinite()], raw[each.isfinite()]) <= 1e-5


def named(name):
    assert "decoder.layers.0.cross_attention.weights" in site_names(Tried(FAMILIES[name]).model)


zeroed = test_families.test_a_head_zeroed_is_its_slice_zeroed_before_the_output_projection
value = test_padding.test_the_value_of_one_query_head_of_a_group_is_its_own
cross = test_padding.test_an_edit_of_cross_attention_moves_the_logits
streams = test_streams.test_every_stream_is_seen_as_hooks_of_one_s_own_see_it
hidden = test_streams.test_an_edit_at_the_feed_forward_part_reaches_the_output_as_one_by_hand

HEADS = "return heads.transpose(1, 2)"
GROUPS = "key, value = share_heads(key, query.shape[1])"
REGISTRY = [
    ("mask dropped", lazily, "llama", "mask = foreign_causal(self.query, self.key)", "mask = None"),
    ("scale doubled", lazily, "llama", "return float(scale)", "return 2.0 * float(scale)"),
    ("heads permuted", attached, "bert", HEADS, HEADS.replace("heads", "heads.flip(1)")),
    ("groups tiled", value, "llama", GROUPS, "key, value = key.repeat(1, 2, 1, 1)"),
    (
        "attention passed twice",
        attached,
        "bert",
        "heads: Tensor = point(attention)",
        "heads: Tensor = (point(attention), point(attention))[1]",
    ),
    (
        "the bias of positions forgotten",
        lazily,
        "t5",
        'bias: Tensor | None = self.options.get("position_bias")',
        "bias: Tensor | None = None",
    ),
]
LOWERED = "self._lowered = _Lowered(output, args[0], args[1])"
EDITED = "edited = edited.to(weights.dtype)"
SHOWN = 'edited = point.visit("scores", shown)'
VISITED = 'return self.visit("heads", heads)'
CALL = [
    ("softmax over queries", attached, "bert", "= compute(scores)", "= compute(scores.mT).mT"),
    ("edited weights discarded", cross, "t5", EDITED, "edited = weights[..., :num_keys]"),
    ("edited heads discarded", attached, "gpt2", VISITED, VISITED + " * 0.0 + heads"),
    ("scores after the softmax", scores, "bert", SHOWN, SHOWN.replace("n)", "n.softmax(-1))")),
    ("scores of sinks as lowered", scores, "gpt_oss", LOWERED, "self._lowered = None"),
]
HIDDEN = 'return put(self._seen(".feed_forward", "hidden", hidden))'
SUM = "total = stream[self.path] + new"
OTHERS = {
    "structure": [("cross for own", named, "bart", '"attention" if is_own else', '"attention" or')],
    "hooks": [
        ("stream before taken for that after", streams, "llama", SUM, SUM + " * 0.0"),
        ("edited hidden layer discarded", hidden, "bert", HIDDEN, HIDDEN[:-1] + " * 0 + hidden)"),
    ],
    "backends.products": [
        ("axes in the order of the product", zeroed, "xlnet", "self.place][:-1]", "2]"),
    ],
    "pass_state": [
        ("shared layers taken for one", streams, "albert", "self._calls.get(path, 0) %", "0 %"),
    ],
}
FAULTS = {"backends.registry": REGISTRY, "attention_call": CALL, **OTHERS}


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    Fault(name, f"pretrained.{module}", partial(check, family), old, new)
    for module, faults in FAULTS.items()
    for name, check, family, old, new in faults
)


@pytest.mark.parametrize(
    ("check", "family"),
    [(lazily, "llama"), (lazily, "t5"), (scores, "bert"), (scores, "gpt_oss"), (named, "bart")],
)
def test_without_a_fault_the_checks_of_this_file_hold(check, family):
    check(family)


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_family_without_a_seam_is_refused_and_told_why(name):
    family, why = REFUSED[name]
    with pytest.raises(CouldNotRun, match=why):
        attach(family.build())


class _Odd(Attention):
    """An attention of one's own with something wrong about it."""

    def __init__(self, fault):
        torch.manual_seed(0)
        super().__init__()
        self.fault, self.calls = fault, 0

    def mix(self, query, key, value):
        self.calls += 1
        heads = super().mix(query, key, value)
        if self.fault == "called once more from time to time" and self.calls > 1:
            heads = super().mix(query, key, value)
        if self.fault == "not heeded":
            heads = value
        if self.fault == "dropout left on":
            heads = torch.nn.functional.dropout(heads, 0.5, training=True)
        return heads


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("called once more from time to time", "was reached 2 times in one pass"),
        (
            "not heeded",
            "its heads were replaced, by zeros and by large numbers",
        ),
        ("dropout left on", "gives a different output each time"),
    ],
)
def test_a_model_whose_attention_cannot_be_vouched_for_is_refused(fault, why):
    attach(_Odd(""), example=(X,))
    with pytest.raises(CouldNotRun, match=why):
        attach(_Odd(fault), example=(X,))
