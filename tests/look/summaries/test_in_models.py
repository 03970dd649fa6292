"""Summaries inside models: recorded in place of the weights, the output the same to the bit."""

import pytest
import torch

from attnlab import seeds
from attnlab.look import record
from attnlab.look.summaries import Summarise
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.encoder import Encoder, EncoderConfig

SITES = "layers.*.attention.weights"


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_recorded_summary_is_that_of_the_recorded_weights_and_the_output_is_untouched(positions):
    with seeds.isolated(0, "summaries", positions):
        config = DecoderConfig(
            vocab_size=11, max_length=40, d_model=24, num_heads=4, num_layers=2, d_ff=24, positions=positions
        )
        model, tokens = Decoder(config).eval(), torch.randint(11, (2, 30))
    reduce = Summarise(tiles=7, top=3)
    plain = model(tokens)
    with record(model, SITES, reduce=reduce) as summaries:
        seen = model(tokens)
    with record(model, SITES) as recording:
        model(tokens)
    assert torch.equal(plain, seen)
    assert len(summaries) == 2
    for site, found in summaries.items():
        explicit = reduce.of_weights(recording[site].double())
        for name in ("entropy", "largest", "distance", "spread", "own", "top_weights", "map_mean", "map_max"):
            error = (getattr(found, name) - getattr(explicit, name)).abs().max()
            assert error < 1e-5 * 30, f"{site} {name}: {error}"
        assert torch.equal(found.cells, torch.tensor([5, 5]))


def test_padding_in_an_encoder_is_never_looked_at():
    with seeds.isolated(1, "summaries"):
        config = EncoderConfig(vocab_size=11, max_length=20, d_model=16, num_heads=2, num_layers=1, d_ff=16)
        model, tokens = Encoder(config).eval(), torch.randint(11, (2, 12))
    real = torch.arange(12) < torch.tensor([[12], [5]])
    with record(model, SITES, reduce=Summarise(top=12)) as summaries:
        model(tokens, real=real)
    found = summaries["layers.0.attention.weights"]
    assert (found.top_keys[1] < 5).all()
    assert (found.top_keys[0] >= 0).all()
    assert torch.allclose(found.top_weights.sum(-1), torch.ones(2, 2, 12), atol=1e-5)
