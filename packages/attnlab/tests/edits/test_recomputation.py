"""Activation checkpointing: what `backward()` computes again is edited again, or refused."""

from contextlib import nullcontext

import pytest
import torch
from parts.planting import planted
from torch import nn
from torch.utils.checkpoint import checkpoint

import attnlab
import attnlab.edits as op
from attnlab.errors import CouldNotRun
from attnlab.parts.heads import multi_head_attention

TOKENS = torch.tensor([[1, 2, 3, 4]])
EDIT = op.ZeroHead(site="layers.1", head=1)


class Checkpointed(nn.Module):
    """Two attentions; `reentrant` is the kind of checkpointing, None for none; a frozen one feeds
    what learns."""

    def __init__(self, reentrant: bool | None, frozen: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embedding = nn.Embedding(7, 8)
            self.layers = nn.ModuleList(multi_head_attention(8, 2) for _ in range(2))
            self.after = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.reentrant = reentrant
        self.embedding.requires_grad_(not frozen)
        self.layers.requires_grad_(not frozen)
        self.after[0].requires_grad_(not frozen)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer, after in zip(self.layers, self.after, strict=True):

            def block(
                x: torch.Tensor, layer: nn.Module = layer, after: nn.Module = after
            ) -> torch.Tensor:
                return x + after(torch.tanh(layer(x).output))

            x = (
                block(x)
                if self.reentrant is None
                else checkpoint(block, x, use_reentrant=self.reentrant)
            )
        return x


def gradients(
    model: nn.Module, *, inside: bool, certify: bool = True, run=None
) -> list[torch.Tensor]:
    model.zero_grad()
    with attnlab.edit(model, EDIT, certify=certify):
        loss = (model if run is None else run)(TOKENS).square().sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


def check_late(reentrant: bool, certify: bool, frozen: bool = False) -> None:
    model = Checkpointed(reentrant, frozen)
    with pytest.raises(
        CouldNotRun, match=r"backward\(\) was called after .* Call backward\(\) inside the `with`"
    ):
        gradients(model, inside=False, certify=certify)
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_going_back_after_the_edit_is_refused_before_any_gradient_is_made(
    reentrant: bool, certify: bool
) -> None:
    check_late(reentrant, certify)


def check_earlier(reentrant: bool) -> None:
    model = Checkpointed(reentrant)
    loss = model(TOKENS).square().sum()
    with attnlab.edit(model, EDIT, certify=False):
        model(TOKENS).square().sum().backward()
        with pytest.raises(
            CouldNotRun, match="blocks of an earlier pass again, now with the edits"
        ):
            loss.backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_going_back_inside_from_a_pass_before_the_edit_is_refused(reentrant: bool) -> None:
    check_earlier(reentrant)


def test_gradients_of_an_earlier_pass_under_an_edit_are_caught() -> None:
    with (
        planted("attnlab.edits.editor", "self.recomputation.computes_again()", "pass"),
        pytest.raises(pytest.fail.Exception),
    ):
        check_earlier(reentrant=False)


def test_going_back_is_refused_also_where_what_was_edited_has_no_gradient_itself() -> None:
    check_late(reentrant=False, certify=False, frozen=True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_going_back_inside_gives_the_gradients_of_the_edited_model(reentrant: bool) -> None:
    expected = gradients(Checkpointed(None), inside=True)
    found = gradients(Checkpointed(reentrant), inside=True)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_without_checkpointing_one_may_go_back_later() -> None:
    model = Checkpointed(None)
    expected = gradients(model, inside=True)
    assert all(
        torch.equal(*both) for both in zip(gradients(model, inside=False), expected, strict=True)
    )


def test_a_model_checkpointed_as_a_whole_goes_back_inside_or_is_refused() -> None:
    model = Checkpointed(None)
    expected = gradients(model, inside=True)

    def whole(tokens: torch.Tensor, reentrant: bool = False) -> torch.Tensor:
        seed = torch.zeros(1, requires_grad=True)
        return checkpoint(lambda seed: model(tokens) + seed, seed, use_reentrant=reentrant)

    assert all(
        torch.equal(*both)
        for both in zip(gradients(model, inside=True, run=whole), expected, strict=True)
    )
    with pytest.raises(CouldNotRun, match=r"backward\(\) was called after"):
        gradients(model, inside=False, run=whole)
    with pytest.raises(CouldNotRun, match="checkpointed with use_reentrant=True"):
        gradients(model, inside=False, run=lambda tokens: whole(tokens, True))


def test_part_of_a_model_that_is_called_alone_is_guarded_too() -> None:
    model = Checkpointed(False)
    x = torch.ones(1, 4, 8, requires_grad=True)
    with attnlab.edit(model, EDIT, certify=False):
        model(TOKENS)
        found = checkpoint(lambda x: model.layers[1](x).output, x, use_reentrant=False)
    with pytest.raises(CouldNotRun, match=r"backward\(\) was called after"):
        found.sum().backward()


def test_the_certificate_tells_that_gradients_are_refused_from_now_on() -> None:
    for reentrant in (None, False, True):
        model = Checkpointed(reentrant)
        with attnlab.edit(model, EDIT) as certificate:
            model(TOKENS)
        told = (
            "activation checkpointing computes edited blocks again in backward(), which is refused"
            in str(certificate)
        )
        assert told == (reentrant is not None)


def test_nothing_is_kept_for_gradients_by_the_passes_that_are_only_compared() -> None:
    model, alive = Checkpointed(None), []
    with (
        attnlab.edit(model, EDIT),
        torch.autograd.graph.saved_tensors_hooks(lambda t: alive.append(1) or t, lambda t: t),
    ):
        model(TOKENS)
    with attnlab.edit(model, EDIT, certify=False), nullcontext():
        number, _ = len(alive), alive.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: alive.append(1) or t, lambda t: t):
            model(TOKENS)
    assert number == len(alive)


@pytest.mark.parametrize(
    ("old", "new", "case"),
    [
        ("if tensor.requires_grad:", "if False:", (False, False)),
        (
            'f_globals.get("__name__") == "torch.utils.checkpoint"',
            'f_globals.get("__name__") == "torch"',
            (True, True),
        ),
        ("self._guard(output)\n\n    def _guard(", "pass\n\n    def _guard(", (True, False)),
    ],
)
def test_a_planted_fault_is_noticed(old: str, new: str, case: tuple[bool, bool]) -> None:
    with (
        planted("attnlab.edits.editor", old, new),
        pytest.raises((AssertionError, pytest.fail.Exception)),
    ):
        check_late(*case)
