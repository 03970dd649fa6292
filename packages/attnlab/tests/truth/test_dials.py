"""Dials: harder to read, the same truth."""

import functools

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.truth import turned
from attnlab.truth.network import put_together

DIALED = [
    *(("where-c", "rotate"), ("what-precedes", "rotate"), ("has-b", "norm")),
    *(("reverse", "compress"), ("where-c", "noise")),
]


@pytest.fixture(scope="module")
def turn(proved):
    """Turn a circuit by a dial, once for all tests."""
    return functools.cache(
        lambda name, dial, seed=0: turned(proved[name][0], dial, proved[name][1], seed=seed)
    )


def parameters(model):
    return torch.cat([each.flatten() for each in model.parameters()])


@pytest.mark.parametrize(("name", "dial"), DIALED)
def test_the_same_units_are_used_under_every_dial(proved, turn, name, dial):
    circuit, labels = proved[name]
    found, again = turn(name, dial)
    assert found.dial == dial
    assert (again.used, again.needed) == (labels.used, labels.needed)
    assert circuit.kinds == found.kinds or dial == "compress"
    plain, other = parameters(circuit.model), parameters(found.model)
    assert plain.shape != other.shape or not torch.equal(plain, other)


@pytest.mark.parametrize(("name", "dial"), DIALED[:3])
def test_rotation_and_norm_leave_edges_and_inputs_as_they_were(proved, turn, name, dial):
    _, labels = proved[name]
    _, again = turn(name, dial)
    assert again.needed_edges == labels.needed_edges
    assert torch.equal(again.by_input, labels.by_input)


def test_rotation_leaves_no_axis_alone(proved, turn):
    found, _ = turn("where-c", "rotate")
    width = proved["where-c"][0].network.width
    tokens = found.network.stacks[0].tokens
    assert (abs(tokens[:, :width]) > 1e-6).mean() > 0.99


def test_a_norm_stands_before_every_part(proved, turn):
    circuit, _ = proved["has-b"]
    found, _ = turn("has-b", "norm")
    assert found.model.config.norm_place == "pre"
    asked = circuit.answers >= 0
    torch.testing.assert_close(found.logits()[asked], circuit.logits()[asked], atol=1e-2, rtol=1e-2)


def test_compression_takes_dimensions_away_and_no_head(proved, turn):
    circuit, labels = proved["reverse"]
    found, again = turn("reverse", "compress")
    assert found.network.width < circuit.network.width
    assert len(again.units) == len(labels.units)


def test_noise_depends_on_the_seed_alone(proved, turn):
    circuit, labels = proved["where-c"]
    one, same, other = (
        parameters(each.model)
        for each, _ in (
            turn("where-c", "noise"),
            turned(circuit, "noise", labels),
            turn("where-c", "noise", 2),
        )
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_what_is_computed_with_is_what_is_stored(proved, turn):
    for each in (proved["where-c"][0], turn("where-c", "noise")[0]):
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
