"""Activation checkpointing: `backward()` would compute an edited block again, so it is refused."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import attnlab
import attnlab.edits as op
from attnlab.errors import CouldNotRun
from attnlab.parts.heads import multi_head_attention

TOKENS = torch.tensor([[1, 2, 3, 4]])
EDIT = op.ZeroHead(site="layers.1", head=1)


class Checkpointed(nn.Module):
    """Two attentions; `reentrant` is the kind of checkpointing, None for none."""

    def __init__(self, reentrant):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embedding = nn.Embedding(7, 8)
            self.layers = nn.ModuleList(multi_head_attention(8, 2) for _ in range(2))
            self.after = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer, after in zip(self.layers, self.after, strict=True):

            def block(x, layer=layer, after=after):
                return x + after(torch.tanh(layer(x).output))

            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


REFUSED = r"layers\.1\S* is edited under activation checkpointing, .* Turn checkpointing off"


def gradients(model, *, inside):
    model.zero_grad()
    with attnlab.edit(model, EDIT):
        loss = model(TOKENS).square().sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_block_is_not_edited(reentrant, certify):
    model = Checkpointed(reentrant)
    with pytest.raises(CouldNotRun, match=REFUSED), attnlab.edit(model, EDIT, certify=certify):
        model(TOKENS)


@pytest.mark.parametrize("reentrant", [True, False])
def test_going_back_inside_from_a_pass_before_the_edit_is_refused(reentrant):
    model = Checkpointed(reentrant)
    loss = model(TOKENS).square().sum()
    with pytest.raises(CouldNotRun, match=REFUSED), attnlab.edit(model, EDIT, certify=False):
        loss.backward()
    assert all(each.grad is None for each in model.layers[0].parameters())


def test_one_may_go_back_inside_the_edit_or_later():
    model = Checkpointed(None)
    expected = gradients(model, inside=True)
    later = gradients(model, inside=False)
    assert all(torch.equal(*both) for both in zip(later, expected, strict=True))


def test_a_block_that_is_not_edited_may_be_checkpointed():
    model = Checkpointed(None)
    expected = gradients(model, inside=True)
    first, model.layers[0].forward = model.layers[0].forward, None
    model.layers[0].forward = lambda x: checkpoint(first, x, use_reentrant=False)
    found = gradients(model, inside=True)
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))


def test_a_model_checkpointed_as_a_whole_is_not_edited():
    model = Checkpointed(None)
    for reentrant in (False, True):
        seed = torch.zeros(1, requires_grad=True)
        with pytest.raises(CouldNotRun, match=REFUSED), attnlab.edit(model, EDIT):
            checkpoint(lambda seed: model(TOKENS) + seed, seed, use_reentrant=reentrant)


def test_nothing_is_kept_for_gradients_by_the_passes_that_are_only_compared():
    model, counts = Checkpointed(None), []
    for certify in (True, False):
        alive = []
        hooks = torch.autograd.graph.saved_tensors_hooks(alive.append, lambda t: t)
        with attnlab.edit(model, EDIT, certify=certify), hooks:
            model(TOKENS)
        counts.append(len(alive))
    assert counts[0] == counts[1]
