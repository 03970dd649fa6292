"""Models under torch's transforms: copies, populations by vmap, compilation."""

import copy
import shutil
import warnings

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

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


def test_a_population_by_vmap_is_its_members_one_by_one():
    models = [decoder(seed) for seed in range(3)]
    parameters, buffers = stack_module_state(models)
    together = vmap(lambda p, b: functional_call(models[0], (p, b), (TOKENS,)))(parameters, buffers)
    for member, model in zip(together, models, strict=True):
        torch.testing.assert_close(member, model(TOKENS), atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_is_one_graph_and_computes_the_same():
    model = decoder(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        compiled = torch.compile(model, fullgraph=True)
        torch.testing.assert_close(compiled(TOKENS), model(TOKENS), atol=1e-5, rtol=0)
