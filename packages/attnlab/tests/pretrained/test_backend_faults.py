"""Faults planted in the backends, each of them seen; and models whose attention cannot be vouched
for, refused."""

from collections.abc import Callable

import pytest
import torch
from parts.planting import planted
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.pretrained.attach import attach
from attnlab.sites import site_names
from tests.pretrained.families import FAMILIES, REFUSED
from tests.pretrained.test_families import _zeroed_by_hand
from tests.pretrained.test_padding import _value_by_hand
from tests.pretrained.test_streams import _expected
from tests.pretrained.trying import Tried, difference, recorded_weights

pytest.importorskip("transformers")

SDPA = torch.nn.functional.scaled_dot_product_attention


def _attached(name: str) -> None:
    Tried(FAMILIES[name])


def _lazily(name: str) -> None:
    each = Tried(FAMILIES[name])
    assert all(point.is_lazy for _, point in each.model.attention_points())


def _weights(name: str) -> None:
    each = Tried(FAMILIES[name])
    for openly in (False, True):
        found = recorded_weights(each, openly=openly)
        assert (
            max(difference(one, own) for one, own in zip(found, each.own_weights, strict=True))
            <= 1e-6
        )


def _scores(name: str) -> None:
    each = Tried(FAMILIES[name])
    with attnlab.record(each.model, "*") as recording:
        each.run()
    same = attnlab.edits.Temperature(site="layers.1.attention", head=0, temperature=1.0)
    with attnlab.edit(each.model, same), attnlab.record(each.model, "*.scores") as opened:
        each.run()
    query, key = (recording[f"layers.1.attention.{name}"] for name in ("query", "key"))
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    raw = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    found = opened["layers.1.attention.scores"]
    assert difference(found[found.isfinite()], raw[found.isfinite()]) <= 1e-5


def _zeroed(name: str) -> None:
    each = Tried(FAMILIES[name])
    for number, point in enumerate(each.points):
        with attnlab.edit(each.model, attnlab.ZeroHead(site=point, head=1 + number)):
            assert torch.equal(each.run(), _zeroed_by_hand(each, point, 1 + number))


def _value(name: str) -> None:
    each = Tried(FAMILIES[name])
    with attnlab.edit(each.model, attnlab.edits.ZeroValue(site="layers.1.attention", head=2)):
        found = each.run()
    assert difference(found, _value_by_hand(each, 2)) <= 1e-5 * float(found.abs().max())


def _streams(name: str) -> None:
    each = Tried(FAMILIES[name])
    with attnlab.record(each.model, "*") as recording:
        each.run()
    for site, value in _expected(each).items():
        assert difference(recording[site], value.reshape(recording[site].shape)) <= 1e-4, site


def _cross(name: str) -> None:
    each = Tried(FAMILIES[name])
    edit = attnlab.edits.UniformPattern(site="decoder.layers.1.cross_attention")
    with attnlab.edit(each.model, edit, certify=False):
        assert difference(each.run(), each.plain) > 1e-3  # more than opening it changes


def _named(name: str) -> None:
    assert "decoder.layers.0.cross_attention.weights" in site_names(Tried(FAMILIES[name]).model)


def _hidden(name: str) -> None:
    each = Tried(FAMILIES[name])
    with attnlab.edit(
        each.model, attnlab.edits.ZeroSite(site="layers.0.feed_forward.hidden"), certify=False
    ):
        assert not torch.equal(each.run(), each.plain)


FAULTS: list[tuple[str, Callable[[str], None], str, str, str, str]] = [
    (
        "mask dropped",
        _lazily,
        "llama",
        "backends.registry",
        "mask = causal(self.query, self.key)",
        "mask = None",
    ),
    (
        "scale doubled",
        _lazily,
        "llama",
        "backends.registry",
        "return float(scale)",
        "return 2.0 * float(scale)",
    ),
    (
        "heads permuted",
        _attached,
        "bert",
        "backends.registry",
        "return heads.transpose(1, 2)",
        "return heads.flip(1).transpose(1, 2)",
    ),
    (
        "keys of groups tiled",
        _value,
        "llama",
        "backends.registry",
        "key, value = share_heads(key, query.shape[1])",
        "key, value = key.repeat(1, query.shape[1] // key.shape[1], 1, 1)",
    ),
    (
        "attention passed twice",
        _attached,
        "bert",
        "backends.registry",
        "heads: Tensor = point(attention)",
        "heads: Tensor = (point(attention), point(attention))[1]",
    ),
    (
        "softmax over queries",
        _attached,
        "bert",
        "attention_call",
        "weights = compute(scores)",
        "weights = compute(scores.mT).mT",
    ),
    (
        "edited weights discarded",
        _cross,
        "t5",
        "attention_call",
        "edited = edited.to(weights.dtype)",
        "edited = weights[..., :num_keys]",
    ),
    (
        "edited heads discarded",
        _attached,
        "gpt2",
        "attention_call",
        'return self.visit("heads", heads)',
        'return (self.visit("heads", heads), heads)[1]',
    ),
    (
        "scores shown after the softmax",
        _scores,
        "bert",
        "attention_call",
        'edited = point.visit("scores", shown)',
        'edited = (point.visit("scores", shown.softmax(-1)), shown)[1]',
    ),
    (
        "scores of sinks as they were lowered",
        _scores,
        "gpt_oss",
        "attention_call",
        "self._lowered = _Lowered(output, args[0], args[1])",
        "self._lowered = None",
    ),
    (
        "cross-attention taken for another's own",
        _named,
        "bart",
        "structure",
        '"attention" if is_own else',
        '"attention" if True else',
    ),
    (
        "stream before attention taken for that after",
        _streams,
        "llama",
        "hooks",
        "total = stream[self.path] + new",
        "total = stream[self.path] + 0.0 * new",
    ),
    (
        "edited hidden layer discarded",
        _hidden,
        "bert",
        "hooks",
        'return put(self._seen(".feed_forward", "hidden", hidden))',
        'return put((self._seen(".feed_forward", "hidden", hidden), hidden)[1])',
    ),
    (
        "queries and heads in the order of the product",
        _zeroed,
        "xlnet",
        "backends.products",
        "wanted = self._terms[self.place][:-1]",
        "wanted = self._terms[2]",
    ),
    (
        "the bias of positions forgotten",
        _lazily,
        "t5",
        "backends.registry",
        'bias: Tensor | None = self.options.get("position_bias")',
        "bias: Tensor | None = None",
    ),
    (
        "layers that share a module taken for one",
        _streams,
        "albert",
        "pass_state",
        "number = self._calls.get(path, 0) % calls",
        "number = 0",
    ),
]


@pytest.mark.parametrize(
    ("check", "name", "module", "old", "new"),
    [fault[1:] for fault in FAULTS],
    ids=[fault[0] for fault in FAULTS],
)
def test_a_planted_fault_is_seen(
    check: Callable[[str], None], name: str, module: str, old: str, new: str
) -> None:
    check(name)
    with (
        planted(f"attnlab.pretrained.{module}", old, new),
        pytest.raises((AssertionError, CouldNotRun, KeyError, RuntimeError)),
    ):
        check(name)


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_family_without_a_seam_is_refused_and_told_why(name: str) -> None:
    family, why = REFUSED[name]
    with pytest.raises(CouldNotRun, match=why):
        attach(family.build())


class _Odd(nn.Module):
    """An attention of one's own with something wrong about it."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(0)
        self.turned = nn.Parameter(torch.randn(8, 24, generator=source))
        self.fault, self.calls = fault, 0

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            each.unflatten(-1, (2, 4)).transpose(1, 2)
            for each in (x @ self.turned).split(8, dim=-1)
        )
        self.calls += 1
        heads = SDPA(query, key, value)
        if self.fault == "called once more from time to time" and self.calls > 1:
            heads = SDPA(query, key, value)
        if self.fault == "not heeded":
            heads = value
        if self.fault == "dropout left on":
            heads = torch.nn.functional.dropout(heads, 0.5, training=True)
        return x + heads.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("called once more from time to time", "was reached 2 times in one pass"),
        ("not heeded", "its heads were zeroed, and the output did not change"),
        ("dropout left on", "gives a different output each time"),
    ],
)
def test_a_model_whose_attention_cannot_be_vouched_for_is_refused(fault: str, why: str) -> None:
    inputs = {"x": torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(1))}
    attach(_Odd(""), example=inputs)
    with pytest.raises(CouldNotRun, match=why):
        attach(_Odd(fault), example=inputs)
