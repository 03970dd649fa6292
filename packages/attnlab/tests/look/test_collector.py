"""The collector: the model stops after the last attention, and is left as it was."""

import pytest
import torch

from attnlab.errors import CouldNotRun
from attnlab.look.collector import Collector, run_collector
from attnlab.models import Decoder, DecoderConfig
from attnlab.seeds import isolated
from attnlab.sites import Hook, hooks_of, installed

IDS = torch.tensor([[1, 2, 3]])
PARTS = ["layers.0.attention", "layers.1.attention"]


class Shapes(Collector):
    """Collects the shapes of queries, or of weights where they are explicit."""

    def __init__(self, parts):
        super().__init__(parts)
        self.found = {}

    def collect(self, part, call, weights):
        self.found[part] = tuple((call.query if weights is None else weights).shape)


class Seen(Hook):
    """Notes whether the logits were computed, and opens one attention."""

    def __init__(self):
        self.logits = False

    def wants(self, site):
        return site in ("logits", "layers.1.attention.weights")

    def visit(self, site, value):
        self.logits |= site == "logits"
        return value


@pytest.fixture
def model():
    with isolated(0):
        return Decoder(DecoderConfig(vocab_size=5, d_model=8, num_heads=2, num_layers=3))


def test_it_collects_and_stops_after_the_last(model):
    collector, seen = Shapes(PARTS), Seen()
    with installed(model, seen):
        run_collector(model, collector, (IDS,), {})
    assert collector.found == dict(zip(PARTS, [(1, 2, 3, 4), (1, 2, 3, 3)], strict=True))
    assert not seen.logits
    assert hooks_of(model) == []
    assert all(module.training for module in model.modules())


def test_what_never_comes_is_named(model):
    with pytest.raises(CouldNotRun, match=r"without layers\.9\.attention; 1 of 3 are missing"):
        run_collector(model, Shapes([*PARTS, "layers.9.attention"]), (IDS,), {})
    assert all(module.training for module in model.modules())
