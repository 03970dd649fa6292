"""Metrics: numbers that a reader can redo."""

import math

import pytest
import torch

from attnlab.edits import ZeroHead
from attnlab.edits.application import edit
from attnlab.edits.effects import ablate, effect
from attnlab.edits.effects.metrics import IGNORED, Metric, prepare_metric
from attnlab.errors import WrongUsage
from attnlab.experiments.model_loader import load_pretrained
from attnlab.look.inputs import Call
from tests.pretrained.speaking import saved

LOGITS = torch.log(
    torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], [[0.2, 0.2, 0.6], [0.8, 0.1, 0.1]]])
)
LABELS = torch.tensor([[0, 1], [IGNORED, 2]])


def measured(name, logits=LOGITS, before=LOGITS, **told):
    return prepare_metric(Metric(name, **told), before)(logits, before)[0].tolist()


def test_each_metric_is_its_formula_averaged_over_the_positions_that_count():
    loss = [-(math.log(0.5) + math.log(0.2)) / 2, -math.log(0.1)]
    assert measured("loss", target=LABELS) == pytest.approx(loss)
    minus = [-each for each in loss]  # these logits are logarithms
    assert measured("logit", target=LABELS) == pytest.approx(minus)
    assert measured("probability", target=LABELS) == pytest.approx([0.35, 0.1])
    assert measured("accuracy", target=LABELS) == [0.5, 0.0]
    others = torch.tensor([[1, 2], [IGNORED, 0]])
    difference = [(math.log(0.5 / 0.25) + math.log(0.2 / 0.7)) / 2, math.log(0.1 / 0.8)]
    assert measured("logit_difference", target=LABELS, others=others) == pytest.approx(difference)
    likeliest = [math.log(0.2 / 0.7), math.log(0.8 / 0.1)]  # without others
    found = measured("logit_difference", target=torch.tensor([1, 0]))
    assert found == pytest.approx(likeliest)


def test_the_last_position_is_the_last_that_is_no_padding():
    real = torch.tensor([[True, False], [True, True]])
    padded = prepare_metric(Metric("logit"), LOGITS, real)
    assert padded.labels.tolist() == [[0, IGNORED], [IGNORED, 0]]
    assert padded(LOGITS, LOGITS)[0].tolist() == pytest.approx([math.log(0.5), math.log(0.8)])
    last = [[IGNORED, 2], [IGNORED, 0]]
    assert prepare_metric(Metric("logit"), LOGITS, real.flip(1)).labels.tolist() == last
    asked = Metric("logit", position=1)
    assert prepare_metric(asked, LOGITS, real).labels.tolist() == last  # as it was said


def test_padding_of_a_source_says_nothing_of_the_target():
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    real = torch.tensor([[True, True, False], [True, True, True]])
    assert torch.equal(Call.of({"tokens": tokens, "real": real}).real, real)
    assert torch.equal(Call.of({"input_ids": tokens, "attention_mask": real.long()}).real, real)
    for target in (
        {"source": tokens, "target": tokens, "real": real},
        {"input_ids": tokens, "attention_mask": real, "decoder_input_ids": tokens},
    ):
        assert Call.of(target).real is None
    assert Call.of(tokens).real is None


def test_divergence_is_from_before_to_now():
    now = LOGITS.clone()
    now[0, 1] = torch.tensor([0.3, 0.3, 0.4]).log()
    wanted = 0.1 * math.log(0.1 / 0.3) + 0.2 * math.log(0.2 / 0.3) + 0.7 * math.log(0.7 / 0.4)
    assert measured("kl", now) == pytest.approx([wanted, 0.0], abs=1e-7)


def test_without_labels_the_models_own_answer_at_the_position_counts():
    assert measured("probability") == pytest.approx([0.7, 0.8])
    assert measured("probability", position=0) == pytest.approx([0.5, 0.6])
    assert measured("probability", position=torch.tensor([0, -1])) == pytest.approx([0.5, 0.8])


def test_copies_of_the_rows_are_measured_each_with_its_own_labels():
    metric = prepare_metric(Metric("loss", LABELS), LOGITS)
    found = metric(torch.cat([LOGITS, LOGITS.flip(0)]), LOGITS).tolist()
    for losses, logits in zip(found, (LOGITS, LOGITS.flip(0)), strict=True):
        assert losses == pytest.approx(measured("loss", logits, target=LABELS))


def test_the_last_positions_alone_are_enough():
    metric = prepare_metric(Metric("loss", torch.tensor([1, 2])), LOGITS)
    assert metric.num_last == 1
    assert torch.equal(metric(LOGITS[:, -1:], LOGITS[:, -1:]), metric(LOGITS, LOGITS))
    assert prepare_metric(Metric("loss", LABELS), LOGITS).num_last == 2
    assert prepare_metric(Metric(lambda logits: logits[:, 0, 0]), LOGITS).num_last is None


def test_classes_are_one_position():
    classes = LOGITS[:, 0]
    assert measured("loss", classes, classes, target=torch.tensor([0, 2])) == pytest.approx(
        [-math.log(0.5), -math.log(0.6)]
    )


def test_half_precision_is_measured_as_float32():
    metric = prepare_metric(Metric("loss", LABELS), LOGITS.half())
    expected = torch.tensor(measured("loss", target=LABELS)).double()
    assert torch.allclose(metric(LOGITS.half(), LOGITS.half())[0], expected, atol=1e-3)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"target": torch.tensor([0])}, "one for each of 2 rows"),
        ({"target": torch.tensor([0.0, 1.0])}, "integer ids"),
        ({"target": torch.tensor([0, 3])}, "from 0 to 2"),
        ({"target": torch.tensor([0, -1])}, "from 0 to 2"),
        ({"target": torch.full((2, 2), IGNORED)}, "needs a position that counts"),
        ({"target": torch.tensor([0, 1]), "position": 2}, "position must be from -2 to 1"),
        ({"target": torch.tensor([0, 1]), "position": 0.5}, "position is an integer"),
        ({"target": LABELS[0], "others": LABELS[0]}, "goes with logit_difference"),
        ({}, "needs target="),
    ],
)
def test_labels_that_do_not_fit_are_refused(told, words):
    with pytest.raises(WrongUsage) as caught:
        prepare_metric(Metric("loss", **told), LOGITS)
    assert words in str(caught.value)


def test_what_could_not_be_said_before_adds_nothing_to_a_divergence():
    was, now = torch.tensor([[0.0, float("-inf"), 1.0]]), torch.tensor([[1.0, 2.0, 0.0]])
    both = torch.tensor([0.0, 1.0]).double().log_softmax(-1)
    wanted = (both.exp() * (both - now[0].double().log_softmax(-1)[[0, 2]])).sum()
    assert measured("kl", now, was, target=torch.tensor([0])) == [pytest.approx(float(wanted))]
    assert measured("kl", was, was, target=torch.tensor([0])) == [0.0]


def test_a_model_that_gives_vectors_is_measured_by_their_cosine(tmp_path):
    pytest.importorskip("transformers")
    model = load_pretrained(saved("bert", tmp_path))
    text, cut = "the cat sat on the mat", ZeroHead(layer=0, head=1)
    effects = ablate(model, text)
    assert str(effects).startswith(
        "1 less the cosine of the vectors to what they were, 1 input: 0;"
    )
    inputs = model.inputs(text)
    with torch.no_grad():
        plain = model(**inputs)
        with edit(model, cut):
            moved = model(**inputs)
    distance = (1 - torch.cosine_similarity(plain.double(), moved.double(), dim=-1)).mean()
    assert float(effects.table()[0, 1]) == pytest.approx(float(distance), abs=1e-9)
    told = effect(model, text, cut)
    assert told.to_mapping()["mean_cosine_distance"] == pytest.approx(float(distance), abs=1e-9)
    assert "tokens change" not in str(told)
    with pytest.raises(WrongUsage, match="gives vectors, no logits"):
        ablate(model, text, target="cat")


def test_a_cosine_is_of_all_positions_but_padding():
    real = torch.tensor([[True, True], [True, False]])
    moved = LOGITS.clone()
    moved[0, 0, 0] += 1.0
    moved[1, 1, 0] += 5.0  # padding
    found = prepare_metric(Metric("cosine"), LOGITS, real)(moved, LOGITS)[0]
    distance = 1 - torch.cosine_similarity(moved[0, 0].double(), LOGITS[0, 0].double(), dim=0)
    assert found.tolist() == pytest.approx([float(distance) / 2, 0.0], abs=1e-9)
