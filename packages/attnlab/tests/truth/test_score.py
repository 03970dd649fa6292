"""Scores: figures that can be redone by hand, and methods that cheat or fail."""

import math

import pytest

from attnlab.errors import CouldNotRun
from attnlab.truth import METHODS, build_circuit, circuit_names, ladders, score, summarize_scores
from attnlab.truth.circuits import USED
from attnlab.truth.ladders import LADDERS
from attnlab.truth.methods import BASELINES
from attnlab.truth.score import CircuitScores, auroc, average_precision, bootstrapped


def scored(values, used, kinds=None, layers=None):
    kinds = kinds or tuple("program" if each else "sharp" for each in used)
    layers = layers or [0] * len(used)
    heads = tuple(f"layers.{layer}.attention.{number}" for number, layer in enumerate(layers))
    return CircuitScores("one", "content", heads, tuple(values), tuple(used), tuple(kinds), 0.25)


class Meant:
    """Labels as a circuit was meant: proved elsewhere, and slow to prove."""

    def used_heads(self, circuit):
        return {head: circuit.kinds[head] in USED for head in circuit.heads}


def _meant(circuit):
    return circuit, Meant()


@pytest.fixture(scope="module")
def all_labels():
    return [_meant(build_circuit(name)) for name in circuit_names()]


def test_auroc_is_the_share_of_pairs_in_order_and_ties_count_half():
    assert auroc([2.0], [1.0]) == 1.0
    assert auroc([1.0], [2.0]) == 0.0
    assert auroc([1.0, 1.0], [1.0]) == 0.5
    assert auroc([3.0, 1.0], [2.0, 1.0]) == (1 + 1 + 0 + 0.5) / 4


def test_average_precision_does_not_depend_on_the_order_of_equal_scores():
    assert average_precision([3.0, 1.0], [2.0, 0.0]) == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert average_precision([1.0], [1.0, 1.0]) == pytest.approx(1 / 3)
    assert average_precision([5.0, 4.0], [1.0]) == 1.0


def test_circuits_whose_heads_are_all_used_do_not_enter():
    row = summarize_scores("m", [scored([1, 0], [True, False]), scored([1, 2], [True, True])])
    assert (row.circuits, row.all) == (1, 2)
    assert row.auroc.value == 1.0
    assert row.seconds == 0.5


@pytest.mark.parametrize("least", [1e-9, 1e-300, 5.0, 1e300])
def test_who_ranks_every_used_head_above_the_others_scores_one_however_small_the_numbers(least):
    row = summarize_scores("m", [scored([1e6, least, 0.0], [True, True, False])])
    assert row.auroc.value == row.precision.value == 1.0
    row = summarize_scores("m", [scored([-least, -2 * least, -3 * least], [True, False, False])])
    assert row.auroc.value == 1.0


def test_heads_are_compared_within_their_attention_alone():
    """The second layer holds the larger numbers, which tells nothing of its own heads."""
    used, layers = [True, False, True, False, False], [0, 0, 1, 1, 1]
    row = summarize_scores("m", [scored([2.0, 1.0, 5.0, 6.0, 4.0], used, layers=layers)])
    assert row.auroc.value == (1 + 1 + 0) / 3
    assert row.precision.value == (1 + 1 / 2) / 2
    only = summarize_scores("m", [scored([2.0, 1.0], [True, False], layers=[0, 1])])
    assert (only.circuits, only.all) == (0, 1)


@pytest.mark.parametrize("name", BASELINES)
def test_a_method_that_looks_at_no_model_scores_a_half(name, all_labels):
    found = score(name, BASELINES[name], all_labels)
    row = summarize_scores(name, found)
    assert row.auroc.low <= 0.5 <= row.auroc.high
    if name == "layer-number":
        assert row.auroc == (0.5, 0.5, 0.5)
    for ladder in LADDERS:
        row = summarize_scores(name, [each for each in found if each.ladder == ladder])
        assert row.auroc.low <= 0.5 <= row.auroc.high, ladder


@pytest.mark.parametrize("guess", ["first", "last", "middle", "cross", "encoder", "crowd"])
def test_a_guess_by_the_name_of_a_head_scores_a_half(guess, all_labels):
    def guessed(model, inputs, answers):
        names = list(METHODS["head-number"](model, inputs, answers))
        found = {}
        for name in names:
            path, _, number = name.rpartition(".")
            found[name] = {
                "first": number == "0",
                "last": f"{path}.{int(number) + 1}" not in names,
                "middle": -abs(int(number) - 1),
                "cross": "cross" in path,
                "encoder": path.startswith("encoder"),
                "crowd": sum(each.startswith(path) for each in names),
            }[guess]
        return found

    row = summarize_scores(guess, score(guess, guessed, all_labels))
    assert row.auroc.low <= 0.5 <= row.auroc.high


def test_who_knows_the_truth_scores_one_on_every_ladder(all_labels):
    truth = {id(circuit.model): labels.used_heads(circuit) for circuit, labels in all_labels}

    def knows(model, inputs, answers):
        heads = truth[id(model)].items()
        return {head: used * 10.0 ** -(5 * number) for number, (head, used) in enumerate(heads)}

    found = score("knows", knows, all_labels)
    for ladder in LADDERS:
        row = summarize_scores("knows", [each for each in found if each.ladder == ladder])
        assert row.auroc == row.precision == (1.0, 1.0, 1.0)
        assert set(map(float, (each.value for each in row.decoys.values()))) == {1.0}


def test_heads_in_the_order_in_which_they_were_made_are_caught(monkeypatch):
    monkeypatch.setattr(ladders, "shuffle_heads", lambda network, random: None)
    made = [_meant(build_circuit(name)) for name in circuit_names("position")]
    row = summarize_scores("m", score("m", BASELINES["head-number-reversed"], made))
    assert row.auroc.low > 0.5


def test_zeros_are_counted_apart_for_used_and_unused_heads():
    values = [1.0, 0.0, 0.0009, 0.0011, 0.5]
    row = summarize_scores("m", [scored(values, [True, True, False, False, False])])
    assert row.used_at_zero == 1 / 2
    assert row.unused_at_zero == 1 / 3


def test_decoys_are_scored_alone():
    kinds = ("program", "twin", "sharp", "suppressor")
    row = summarize_scores("m", [scored([3.0, 1.0, 2.0, 4.0], [True, True, False, False], kinds)])
    found = {kind: interval.value for kind, interval in row.decoys.items()}
    assert found == {"sharp": 0.5, "suppressor": 0.0, "twin": 0.0}
    assert row.auroc.value == 0.25


def test_an_interval_holds_the_mean_and_is_the_same_each_time():
    values = [0.0, 0.5, 1.0, 1.0]
    found = bootstrapped(values)
    assert found.low < found.value == 0.625 < found.high
    assert found == bootstrapped(values)
    assert bootstrapped([0.75, 0.75]) == (0.75, 0.75, 0.75)
    assert math.isnan(bootstrapped([]).value)


@pytest.mark.parametrize(("sign", "expected"), [(1, 1.0), (-1, 0.0), (0, 0.5)])
def test_truth_scores_one_its_contrary_nothing_and_ties_a_half(proved, sign, expected):
    truth = {id(circuit.model): labels.used_heads(circuit) for circuit, labels in proved.values()}

    def method(model, inputs, answers):
        return {head: sign * used for head, used in truth[id(model)].items()}

    assert summarize_scores("m", score("m", method, proved.values())).auroc.value == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "gives nan for .* give a finite number"),
        (math.inf, "gives inf for"),
        ("large", "gives 'large' for"),
        (None, "gives None for"),
    ],
)
def test_a_method_that_gives_no_number_is_refused(proved, value, words):
    def method(model, inputs, answers):
        return dict.fromkeys(circuit.kinds, value)

    circuit, labels = proved["shift"]
    with pytest.raises(CouldNotRun, match=words):
        score("mine", method, [(circuit, labels)])


def test_a_method_that_leaves_a_head_out_or_fails_is_refused(proved):
    def failing(model, inputs, answers):
        raise KeyError("head")

    with pytest.raises(CouldNotRun, match=r"gives no score for layers\.0\.attention\.0 of shift"):
        score("mine", lambda model, inputs, answers: {}, [proved["shift"]])
    with pytest.raises(CouldNotRun, match="mine fails on shift: KeyError: 'head'"):
        score("mine", failing, [proved["shift"]])
