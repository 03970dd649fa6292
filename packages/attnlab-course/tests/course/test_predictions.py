"""The right answers of predictions and puzzles, worked out or tried."""

import itertools
import math

import numpy as np
import torch

from attnlab_course.cases import make_questions
from attnlab_course.catalog import HOME, find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.judge import check_here
from attnlab_course.sandbox.student_code import load_names


def softmax_rows(scores):
    """The softmax over the last axis."""
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)


def attend(query, key, value):
    """One head: the output and the weights."""
    weights = softmax_rows(query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1]))
    return weights @ value, weights


def names_of(exercise):
    return load_names((HOME / f"{exercise}.py").read_text(), exercise)


def answers_of(exercise):
    return {question.variable: question.right for question in names_of(exercise)["QUESTIONS"]}


def is_near(one, other):
    return abs(one - other) < 1e-3


def test_what_is_said_of_attention_is_so():
    answers, random = answers_of("predict_attention"), np.random.default_rng(0)
    query, key = random.normal(size=(2000, 1, 256)), random.normal(size=(2000, 10, 256))
    scores = (query * key).sum(-1)
    bare, scaled = softmax_rows(scores), softmax_rows(scores / 16)
    assert abs(scores.var() - answers["score_variance"]) < 10
    assert abs(bare.max(-1).mean() - answers["largest_unscaled"]) < 0.02
    assert abs(scaled.max(-1).mean() - answers["largest_scaled"]) < 0.02
    slopes = [(w[:, :, None] * (np.eye(10) - w[:, None])) ** 2 for w in (bare, scaled)]
    assert answers["unscaled_gradient"] == "smaller"
    assert slopes[0].sum((1, 2)).mean() < slopes[1].sum((1, 2)).mean()
    assert is_near(answers["largest_entropy"], math.log(8))
    assert answers["first_weight"] == softmax_rows(np.array([1.0, -np.inf, -np.inf]))[0]
    assert answers["leak"] == "nearly all"
    assert softmax_rows(np.array([-150.0, -150.0, -100.0]))[-1] > 0.99
    assert (answers["dead_finite"], answers["dead_infinite"]) == ("even", "nan")
    assert (torch.softmax(torch.full((4,), -1e9), -1) == 0.25).all()
    assert torch.softmax(torch.full((4,), -math.inf), -1).isnan().all()
    output = softmax_rows(random.normal(size=(7, 5))) @ random.normal(size=(5, 3))
    assert np.linalg.matrix_rank(output @ random.normal(size=(3, 6))) == answers["largest_rank"]
    assert answers["num_parameters"] == sum(
        parameter.numel() for parameter in torch.nn.MultiheadAttention(12, 3).parameters()
    )
    x, order = random.normal(size=(6, 4)), random.permutation(6)
    before, after = (softmax_rows(rows @ rows.T) @ rows for rows in (x, x[order]))
    assert answers["shuffled"] == "same"
    assert np.allclose(before[order], after)
    assert answers["cost"] == 20**2 / 10**2


def weights_of(tokens, keys, queries):
    x = np.eye(3)[tokens]
    return softmax_rows(x @ queries @ keys.T @ x.T / math.sqrt(keys.shape[1]))


def test_what_is_said_of_heads_by_hand_is_so():
    answers, random = answers_of("predict_handmade"), np.random.default_rng(0)
    twice, Km, Qm = 2 * np.eye(3), *random.normal(size=(2, 3, 3))
    assert is_near(weights_of([0, 1, 2], twice, twice)[0, 0], answers["own_weight"])
    assert is_near(weights_of([0, 0, 2], twice, twice)[0, 0], answers["two_alike"])
    assert answers["longer"] == "a little larger"
    assert 1 < math.log(59 * 999) / math.log(5 * 999) < 1.5
    R = random.normal(size=(3, 3)) + 3 * np.eye(3)
    plain = weights_of([0, 1, 2], Km, Qm)
    assert answers["new_numbers"] == "nothing"
    assert np.allclose(plain, weights_of([0, 1, 2], Km @ R, Qm @ np.linalg.inv(R).T))
    assert answers["blind"] == "only inputs of one letter repeated"
    here, there = (weights_of(pair, Km, Qm) @ np.eye(3)[pair] for pair in ([0, 1], [1, 0]))
    assert np.allclose(here, there[::-1])
    assert answers["no_queries"] == "the mean of the values"
    assert np.allclose(weights_of([0, 1, 2], Km, 0 * Qm), 1 / 3)
    assert answers["overflow"] == "nan"
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(40 * 40 / math.sqrt(3)))
    assert answers["double"] == "only the output doubles"
    assert answers["order"] == "are put into the same order"
    turn = [2, 0, 1]
    moved = weights_of(turn, Km, Qm) @ np.eye(3)[turn]
    assert np.allclose((plain @ np.eye(3))[turn], moved)
    assert answers["wider"] == "flatter"
    wide = weights_of([0, 1, 2], 2 * np.eye(3, 12), 2 * np.eye(3, 12))
    assert wide[0, 0] < answers["own_weight"]


def test_what_is_said_of_looking_up_is_so():
    answers, random = answers_of("predict_lookup"), np.random.default_rng(0)
    source, places, query = (random.normal(size=size) for size in ((5, 4), (5, 4), (1, 4)))
    reordered = source[[3, 0, 4, 2, 1]]
    for x, other, name in (
        (source, reordered, "scrambled"),
        (source + places, reordered + places, "control"),
    ):
        outputs = [softmax_rows(query @ rows.T) @ rows for rows in (x, other)]
        assert np.allclose(*outputs) == (answers[name] == "the same")
    assert answers["orders"] == math.factorial(5)
    numbers = random.normal(size=20).tolist()
    sums = {sum(random.permutation(numbers).tolist()) for _ in range(100)}
    assert answers["to_the_last_digit"] == "equal up to rounding"
    assert len(sums) > 1
    assert answers["two_facts"] == 1 / 2
    order = random.permutation(4)
    pairs = np.eye(8)[:4] + np.eye(8)[4:][order]
    found = softmax_rows(np.eye(8)[:4] @ pairs.T * 50) @ pairs
    assert answers["bound_facts"] == "always"
    assert (found[:, 4:].argmax(1) == order).all()
    assert answers["fixed_facts"] == "yes"
    assert answers["weights"] == 4 * 2 * 5


def test_what_is_said_of_a_verdict_is_so():
    answers, random = answers_of("predict_sentiment"), np.random.default_rng(0)
    order = random.permutation(200) % 20
    assert answers["seen"] == "almost all"
    assert np.isin(order[:40], order[40:]).mean() > 0.95
    assert answers["memory_accuracy"] == 5 / 10
    assert is_near(answers["first_loss"], math.log(2))
    assert is_near(answers["confidence"], 1 / (1 + math.exp(-2)))
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256)
    assert answers["block_size"] == sum(parameter.numel() for parameter in layer.parameters())
    real, pad = random.normal(size=(4, 3)), random.normal(size=(1, 3))
    means = [np.concatenate([real, pad.repeat(n, axis=0)]).mean(axis=0) for n in (1, 4)]
    assert answers["more_padding"] == "different"
    assert not np.allclose(*means)
    x = random.normal(size=(4, 3))
    means = [(softmax_rows(rows @ rows.T) @ rows).mean(0) for rows in (x, x[[0, 3, 2, 1]])]
    assert answers["word_order"] == "the same"
    assert np.allclose(*means)
    assert answers["unknown_words"] == "the same"


def test_what_is_said_of_sorting_is_so():
    answers, random = answers_of("predict_sorting"), np.random.default_rng(0)
    rows = list(itertools.product("abc", repeat=3))
    assert answers["num_inputs"] == len(rows)
    assert answers["num_answers"] == len({tuple(sorted(row)) for row in rows})
    assert is_near(answers["floor"], 2 * math.log(3) / 6)
    assert answers["num_parameters"] == 6 * 3 + 3 * 3 + 6 * 3
    thin = random.normal(size=(6, 1)) @ random.normal(size=(1, 3)) * 2
    assert is_near(answers["hot_entry"], softmax_rows(thin / 1e6)[0, 0])
    assert answers["cold_row"] == "one-hot"
    assert np.allclose(softmax_rows(thin * 1e6).max(-1), 1)
    assert np.linalg.matrix_rank(softmax_rows(thin)) == answers["largest_rank"]
    assert answers["tokens_seen"] == len(["c", "a", "b", "SEP", "a"])
    assert is_near(answers["midway_rate"], (1 + 0.1) / 2)


TEXTS = ["".join(text) for n in range(1, 5) for text in itertools.product("ABC", repeat=n)]


def test_the_heads_of_the_first_puzzle_do_what_is_said_of_them():
    names = names_of("puzzle_which_head")
    heads, encode = names["heads"], names["encode"]

    def weights(head, text):
        Km, Qm, Vm = heads[head]
        x = encode(text)
        return attend(x @ Qm, x @ Km, x @ Vm)

    def looks(head, keys_of):
        for text in TEXTS:
            for place, row in enumerate(weights(head, text)[1]):
                if row[keys_of(text, place)].sum() < 0.9:
                    return False
        return True

    jobs = {
        "equal": lambda text, place: [k for k in range(len(text)) if text[k] == text[place]],
        "previous": lambda text, place: [max(place - 1, 0)],
        "first": lambda text, place: [0],
    }
    for name, keys_of in jobs.items():
        assert [head for head in heads if looks(head, keys_of)] == [names[name]]
    blind = []
    for head in heads:
        outputs = [weights(head, text)[0] for text in TEXTS if len(text) == 4]
        if np.allclose(outputs, outputs[0], atol=0.05):
            blind.append(head)
    assert blind == [names["blind"]]
    assert is_near(weights("h4", "ABBA")[1][0, 1], names["weight"])


def test_one_head_of_the_second_puzzle_matters_and_one_always_says_the_same():
    names = names_of("puzzle_decoy")
    heads, readout, inputs = names["HEADS"], names["READOUT"], names["every_input"]()
    to_zero, to_mean, sharpness = {}, {}, {}
    for name, (Km, Qm, Vm) in heads.items():
        to_zero[name] = names["effect"](heads, readout, name, inputs)
        to_mean[name] = names["mean_effect"](heads, readout, name, inputs)
        sharpness[name] = attend(inputs @ Qm, inputs @ Km, inputs @ Vm)[1].max(-1).min()
    assert max(sharpness, key=sharpness.get) == names["sharpest"]
    unchanged = [name for name in heads if to_zero[name] > 0.1 and to_mean[name] < 0.01]
    assert unchanged == [names["constant"]]
    assert [name for name in heads if to_mean[name] > 0.1] == [names["matters"]]


def test_a_number_may_come_from_a_calculation_with_numpy_or_pytorch():
    source = solution_text(find_exercise("predict_attention").source)
    source += "import numpy as np\nimport torch\nlargest_entropy = np.log(8)\n"
    source += "largest_scaled = torch.tensor(0.32)\nnum_parameters = np.array(624)\n"
    questions = make_questions(find_exercise("predict_attention"), 0, graded=True)
    assert check_here(questions, source).passed
    assert not check_here(questions, source + "cost = np.array([4, 4])\n").passed
