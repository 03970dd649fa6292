"""The residual stream adds up, in our models and in every family whose blocks are sums."""

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.stream_sums import stream_sums
from tests.planting import planted
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import tried
from tests.random_models import new_model
from tests.sampling import sampled

_SAMPLE = ("gpt2", "gemma2", "falcon (ALiBi)", "albert", "t5")
_NO_SUM = ("xlnet", "beit", "swin")
_ALL = sampled([name for name in FAMILIES if name not in _NO_SUM], _SAMPLE)


@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_the_stream_of_our_models_adds_up(norm_place):
    model = new_model("encoder-decoder", norm_place=norm_place)
    inputs = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    gaps = stream_sums(model, inputs)
    assert len(gaps) == 4
    assert "decoder.layers.1.residual_after" in gaps
    assert max(gaps.values()) < 1e-6
    with pytest.raises(WrongUsage):
        stream_sums(model)


@pytest.mark.parametrize("name", _ALL)
def test_the_stream_of_every_family_adds_up(name):
    gaps = stream_sums(tried(name).model)
    assert gaps
    assert max(gaps.values()) < 1e-5, gaps


@pytest.mark.parametrize("name", sampled(_NO_SUM, 1))
def test_blocks_that_are_no_sums_are_refused(name):
    with pytest.raises(CouldNotRun, match="not the sum"):
        stream_sums(tried(name).model)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stream + step.factor * added.view_as(stream)", "stream + added.view_as(stream) * 0.999"),
        ("heads.transpose(1, 2).flatten(2)", "heads.flip(1).transpose(1, 2).flatten(2)"),
        ("stream = module_at(step.path)(stream)", "pass"),
    ],
)
def test_a_gap_is_seen(old, new):
    model = tried("bert").model
    with planted("attnlab.look.stream_sums", old, new):
        assert max(stream_sums(model).values()) > 1e-4
