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
