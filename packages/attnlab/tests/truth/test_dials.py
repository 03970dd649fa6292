"""Dials: harder to read, the same truth."""

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.truth import turned
from attnlab.truth.network import put_together

NAMES = ("where-c", "what-precedes")


def parameters(model):
    return torch.cat([each.flatten() for each in model.parameters()])


@pytest.mark.parametrize("dial", ["rotate", "compress", "noise", "norm"])
def test_the_same_units_are_used_under_every_dial(proved, dial):
    for name in NAMES:
        circuit, labels = proved[name]
        found, again = turned(circuit, dial, labels)
        assert found.dial == dial
        assert (again.used, again.needed) == (labels.used, labels.needed)
        assert circuit.kinds == found.kinds or dial == "compress"
        plain, other = parameters(circuit.model), parameters(found.model)
        assert plain.shape != other.shape or not torch.equal(plain, other)


def test_rotation_and_norm_leave_edges_and_inputs_as_they_were(proved):
    circuit, labels = proved["has-b"]
    for dial in ("rotate", "norm"):
        _, again = turned(circuit, dial, labels)
        assert again.needed_edges == labels.needed_edges
        assert torch.equal(again.by_input, labels.by_input)


def test_rotation_leaves_no_axis_alone(proved):
    circuit, labels = proved["where-c"]
    found, _ = turned(circuit, "rotate", labels)
    width = circuit.network.width
    tokens = found.network.stacks[0].tokens
    assert (abs(tokens[:, :width]) > 1e-6).mean() > 0.99


def test_a_norm_stands_before_every_part(proved):
    circuit, labels = proved["has-b"]
    found, _ = turned(circuit, "norm", labels)
    assert found.model.config.norm_place == "pre"
    asked = circuit.answers >= 0
    torch.testing.assert_close(found.logits()[asked], circuit.logits()[asked], atol=1e-2, rtol=1e-2)


def test_compression_takes_dimensions_away_and_no_head(proved):
    circuit, labels = proved["reverse"]
    found, again = turned(circuit, "compress", labels)
    assert found.network.width < circuit.network.width
    assert len(again.units) == len(labels.units)


def test_noise_depends_on_the_seed_alone(proved):
    circuit, labels = proved["where-c"]
    one, same, other = (turned(circuit, "noise", labels, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(parameters(one.model), parameters(same.model))
    assert not torch.equal(parameters(one.model), parameters(other.model))


def test_what_is_computed_with_is_what_is_stored(proved):
    circuit, labels = proved["where-c"]
    for each in (circuit, turned(circuit, "noise", labels)[0]):
        numbers = parameters(each.model)
        assert numbers.dtype == torch.float64
        assert torch.equal(numbers, numbers.float().double())


def test_a_network_that_is_put_together_twice_is_the_same(proved):
    circuit, _ = proved["reverse"]
    again, kinds = put_together(circuit.network)
    assert kinds == circuit.kinds
    assert torch.equal(parameters(again), parameters(circuit.model))


def test_an_unknown_dial_is_named(proved):
    with pytest.raises(WrongUsage, match="there is no dial 'turn'"):
        turned(proved["shift"][0], "turn", proved["shift"][1])
