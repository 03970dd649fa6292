import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.seeds import generator, isolated, stream_seed


def test_each_purpose_has_its_own_stream():
    draws = {
        name: tuple(torch.rand(4, generator=generator(0, name)).tolist())
        for name in ("data", "model", "judge")
    }
    assert len(set(draws.values())) == 3
    assert tuple(torch.rand(4, generator=generator(0, "data")).tolist()) == draws["data"]


def test_a_seed_is_the_same_number_everywhere():
    # SHA-256 of "attnlab/0/data", first 63 bits; any machine gives this.
    import hashlib

    expected = int.from_bytes(hashlib.sha256(b"attnlab/0/data").digest()[:8], "big") >> 1
    assert stream_seed(0, "data") == expected


def test_isolated_leaves_the_global_state_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with isolated(0, "model"):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with isolated(0, "model"):
        assert torch.equal(torch.rand(3), inside)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, "0", None])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(WrongUsage, match="a seed must be an integer"):
        stream_seed(seed)


def test_a_slash_in_a_purpose_makes_it_no_other_purpose():
    purposes = [("a/b",), ("a", "b"), ("a%2Fb",), ("a", "", "b"), ("a/", "b"), ("a", "/b")]
    assert len({stream_seed(0, *purpose) for purpose in purposes}) == len(purposes)


class Generators:
    """The random states of devices that this machine does not have."""

    def __init__(self, states):
        self.states = states

    def seed(self, number):
        self.states = [number for _ in self.states]


def test_isolated_restores_several_gpus_and_apples(monkeypatch):
    gpus, apple = Generators([1, 2]), Generators([3])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: gpus.states[device])
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(gpus.states))
    monkeypatch.setattr(
        torch.cuda, "set_rng_state_all", lambda states: setattr(gpus, "states", states)
    )
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: apple.states[0])
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state: setattr(apple, "states", [state]))
    with isolated(0, "model"):
        gpus.seed(7)
        apple.seed(8)
    assert (gpus.states, apple.states) == ([1, 2], [3])
