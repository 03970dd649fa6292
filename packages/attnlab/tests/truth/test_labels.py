"""The truth: what ablation over the whole domain says, and that it refuses what is not so."""

from dataclasses import replace

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.truth import LADDERS, build_circuit, circuit_names, label
from attnlab.truth.labels import is_wrong
from attnlab.truth.ladders import specs


def test_every_ladder_has_twelve_circuits_with_and_without_each_decoy():
    assert len(circuit_names()) >= 60
    for ladder in LADDERS:
        decoys = [spec.decoys for spec in specs().values() if spec.ladder == ladder]
        assert len(decoys) >= 12
        for kind in "srxtb":
            assert {kind in each for each in decoys} == {True, False}


def test_heads_are_used_or_not_as_they_were_made(proved):
    for circuit, labels in proved.values():
        for head, used in labels.used_heads(circuit).items():
            assert used == (circuit.kinds[head] in ("program", "twin", "backup"))
    kinds = {kind for circuit, _ in proved.values() for kind in circuit.decoys}
    assert kinds == {"sharp", "random", "suppressor", "twin", "backup"}


@pytest.mark.slow
@pytest.mark.parametrize("name", circuit_names())
def test_every_circuit_is_what_it_was_made_for(name):
    label(build_circuit(name))  # which refuses what is not


def test_of_twins_neither_is_needed_and_both_are_used(proved):
    circuit, labels = proved["where-c"]
    number = {unit: index for index, unit in enumerate(labels.units)}
    pair = [head for head in circuit.heads if circuit.kinds[head] in ("program", "twin")]
    assert len(pair) == 2
    for head in pair:
        assert labels.used[number[head]]
        assert not labels.needed[number[head]]
    cuts = [frozenset(), frozenset(pair[:1]), frozenset(pair[1:]), frozenset(pair)]
    assert is_wrong(circuit, cuts).any(1).tolist() == [False, False, False, True]


def test_a_backup_acts_only_if_the_first_head_is_cut(proved):
    circuit, _ = proved["swap"]
    (backup,) = [head for head in circuit.heads if circuit.kinds[head] == "backup"]
    (first,) = [head for head in circuit.heads if circuit.kinds[head] == "program"]
    plain = circuit.logits()
    found = []
    for cut in ({backup}, {first}, {first, backup}):
        found.append(bool(is_wrong(circuit, [frozenset(cut)]).any()))
    assert found == [False, False, True]
    assert plain[..., :2].amax(-1).min() > 0.9


def test_without_decoys_the_one_head_is_needed_by_every_input(proved):
    _, labels = proved["half"]
    assert labels.units == ("decoder.layers.0.cross_attention.0",)
    assert labels.needed == (True,)
    assert labels.by_input.shape == (3**4, 1)
    assert labels.by_input.all()
    reads = [receiver.rpartition(".")[2] for _, receiver in labels.needed_edges]
    assert reads == ["query", "key", "value"]


def test_only_some_inputs_need_the_first_head_of_induction(proved):
    _, labels = proved["induction-two"]
    shares = dict(zip(labels.units, labels.by_input.sum(0).tolist(), strict=True))
    assert shares["layers.0.attention.0"] == 58  # of 62; in a, b, ab and ba nothing came before
    assert shares["layers.1.attention.0"] == 0  # it has a twin


def test_a_decoy_that_is_read_after_all_is_refused(proved):
    circuit, _ = proved["where-c"]
    kinds = {name: "sharp" if kind == "twin" else kind for name, kind in circuit.kinds.items()}
    with pytest.raises(CouldNotRun, match="was made as sharp, and is used"):
        label(replace(circuit, kinds=kinds))


def test_a_head_that_does_not_do_its_job_is_refused(proved):
    circuit, _ = proved["shift"]
    kinds = {name: "program" if kind == "sharp" else kind for name, kind in circuit.kinds.items()}
    with pytest.raises(CouldNotRun, match="was made as program, and is not used"):
        label(replace(circuit, kinds=kinds))


def test_a_wrong_answer_is_refused(proved):
    circuit, _ = proved["half"]
    answers = circuit.answers.clone()
    answers[5, 0] = (answers[5, 0] + 1) % 3
    with pytest.raises(CouldNotRun, match="some answers of the model are wrong"):
        label(replace(circuit, answers=answers))


def test_a_tie_and_a_logit_that_is_no_number_are_wrong(proved):
    circuit, _ = proved["half"]
    (head,) = circuit.heads
    assert is_wrong(circuit, [frozenset({head})]).all()  # all logits are 0
    broken = build_circuit("half")
    with torch.no_grad():
        next(broken.model.head.parameters()).fill_(float("nan"))
    assert is_wrong(broken, [frozenset()]).all()


def test_an_unknown_circuit_and_an_unknown_ladder_are_named():
    with pytest.raises(WrongUsage, match="there is no circuit 'sorted'"):
        build_circuit("sorted")
    with pytest.raises(WrongUsage, match="there is no ladder 'count'"):
        circuit_names("count")
