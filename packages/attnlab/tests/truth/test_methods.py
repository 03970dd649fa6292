"""Methods: each gives every head a number, and the ones that ablate find what is needed."""

import math

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.truth import METHODS, find_method, methods
from attnlab.truth.methods import corrupted


def _scores(name, circuit):
    return METHODS[name](circuit.model, circuit.inputs, circuit.answers)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_every_head_a_finite_number_and_the_same_again(proved, name):
    for circuit in (proved["reverse"][0], proved["what-precedes"][0]):
        found = _scores(name, circuit)
        assert set(found) == set(circuit.kinds)
        assert all(math.isfinite(value) for value in found.values())
    assert _scores(name, circuit) == found


@pytest.mark.parametrize("name", ["ablation", "patching", "pattern-effects"])
def test_methods_that_intervene_put_a_needed_head_above_a_sharp_one(proved, name):
    circuit, _ = proved["shift"]
    found = _scores(name, circuit)
    program = [found[head] for head in circuit.heads if circuit.kinds[head] == "program"]
    sharp = [found[head] for head in circuit.heads if circuit.kinds[head] == "sharp"]
    assert min(program) > 0.1
    assert max(sharp) == 0.0


def test_a_sharp_decoy_looks_important_to_raw_attention(proved):
    circuit, _ = proved["shift"]
    found = _scores("raw-attention", circuit)
    assert max(found[head] for head in circuit.heads if circuit.kinds[head] == "sharp") > 0.8


def test_gradients_leave_nothing_behind_that_changes_the_next_method(proved):
    circuit, _ = proved["shift"]
    before = _scores("value-norm", circuit)
    for name in ("gradient-attention", "attribution-patching"):
        _scores(name, circuit)
    assert _scores("value-norm", circuit) == before


def test_corrupted_inputs_are_others_of_the_same_length(proved):
    inputs = proved["shift"][0].inputs
    found = corrupted(inputs)
    assert torch.equal(found["real"], inputs["real"])
    assert not torch.equal(found["tokens"], inputs["tokens"])
    rows = {tuple(row) for row in inputs["tokens"].tolist()}
    assert {tuple(row) for row in found["tokens"].tolist()} == rows


def test_a_method_of_a_file_and_one_of_a_module_are_found(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def ones(model, inputs, answers):\n    return {}\n")
    assert find_method(f"{file}:ones")(None, None, None) == {}
    assert find_method("attnlab.truth.methods:rollout").__name__ == "rollout"


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("ablatoin", WrongUsage, "there is no method 'ablatoin'; .*ablation"),
        ("nowhere.py:f", CouldNotRun, "nowhere.py could not be run: FileNotFoundError"),
        ("no.module:f", CouldNotRun, "no.module could not be run"),
        ("attnlab.truth.methods:rolout", WrongUsage, "has no function 'rolout'; .*rollout"),
    ],
)
def test_a_method_that_is_not_there_is_told_with_what_is(name, kind, words):
    with pytest.raises(kind, match=words):
        find_method(name)


def test_the_norm_of_what_a_head_writes_goes_through_its_own_columns(proved):
    circuit, _ = proved["shift"]
    found = _scores("value-norm", circuit)
    for site, heads in methods._recorded(circuit.model, circuit.inputs, "heads").items():
        attention = circuit.model.get_submodule(site)
        shares = torch.zeros_like(heads)
        for number in range(heads.shape[1]):
            shares[:] = 0
            shares[:, number] = heads[:, number]
            joined = shares.transpose(1, 2).flatten(2)
            written = joined @ attention.output.weight.detach().T
            norms = written.norm(dim=-1)[circuit.inputs["real"]]
            assert found[f"{site}.{number}"] == pytest.approx(float(norms.mean()), rel=1e-4)


def test_rollout_leaves_half_in_the_stream_and_shares_the_rest_among_the_heads(monkeypatch):
    """One input of two tokens, two layers of two heads; only the second token has an answer."""
    weights = {
        "layers.0.attention": [[[1, 0], [1, 0]], [[0, 1], [0, 1]]],
        "layers.1.attention": [[[1, 0], [1, 0]], [[1, 0], [0.5, 0.5]]],
    }
    found = {path: torch.tensor([heads]) for path, heads in weights.items()}
    monkeypatch.setattr(methods, "_weights", lambda model, inputs: found)
    assert METHODS["rollout"](None, {}, torch.tensor([[-100, 0]])) == pytest.approx(
        {
            # Of 1 at the second token, a quarter goes along either head; 1/8 of it stays there.
            "layers.1.attention.0": 1 / 4,
            "layers.1.attention.1": 1 / 8,
            # Now 3/8 lie at the first token and 5/8 at the second: a quarter of each moves.
            "layers.0.attention.0": 5 / 32,
            "layers.0.attention.1": 3 / 32,
        },
        abs=1e-6,
    )


def test_a_lead_is_over_the_other_classes_not_over_all():
    logits = torch.tensor([[[3.0, 1.0, 2.0]]], requires_grad=True)
    methods._differentiate(logits, torch.tensor([[0]]))
    assert logits.grad.tolist() == [[[1.0, 0.0, -1.0]]]
