"""Models under torch's transforms: copies and compilation."""

import copy
import shutil
import warnings

import pytest
import torch

from attnlab.models import Decoder, DecoderConfig
from attnlab.seeds import isolated

CONFIG = DecoderConfig(
    vocab_size=4,
    max_length=7,
    d_model=6,
    num_heads=2,
    d_ff=6,
    positions="learned",
    projections="gated",
    bias=False,
)
TOKENS = torch.randint(4, (5, 6), generator=torch.Generator().manual_seed(0))


def decoder(seed):
    with isolated(seed):
        return Decoder(CONFIG)


def test_a_copy_computes_with_its_own_weights():
    model = decoder(0)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.final_norm.weight.mul_(2)
        torch.testing.assert_close(twin(TOKENS), 2 * model(TOKENS))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_is_one_graph_and_computes_the_same():
    model = decoder(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        compiled = torch.compile(model, fullgraph=True)
        torch.testing.assert_close(compiled(TOKENS), model(TOKENS), atol=1e-5, rtol=0)
