import itertools

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.tasks.vectors import PADDING, VectorTask, vector_task

RULES = ("identity", "copy_first", "unique")


def expected(rule, letters):
    """Solve a task letter by letter, as a person would."""
    if rule == "identity":
        return list(letters)
    if rule == "copy_first":
        return [letters[0]] * len(letters)
    return [1.0 if letters.count(letter) == 1 else -1.0 for letter in letters]


@pytest.mark.parametrize(
    ("rule", "number"), [("identity", 1092), ("copy_first", 120), ("unique", 120)]
)
def test_the_inputs_are_all_sequences_up_to_the_longest_each_once(rule, number):
    task = vector_task(rule)
    texts = [task.text(ids) for group in task.inputs_by_length() for ids in group]
    wanted = [
        ("CLS " if rule == "unique" else "") + "".join(letters)
        for length in range(1, task.longest + 1)
        for letters in itertools.product("ABC", repeat=length)
    ]
    assert texts == wanted
    assert len(texts) == task.num_inputs == number


@pytest.mark.parametrize("rule", RULES)
def test_the_targets_are_what_a_person_would_write(rule):
    task = vector_task(rule)
    for group in task.inputs_by_length():
        targets = task.target(group)
        for ids, target in zip(group, targets, strict=True):
            answers = expected(rule, task.text(ids).removeprefix("CLS "))
            rows = target[1:] if task.has_cls else target
            found = (
                rows.flatten().tolist()
                if rule == "unique"
                else ["ABC"[row.argmax()] for row in rows]
            )
            assert found == answers


def test_cac_is_repeated_unique_repeated():
    task = vector_task("unique")
    assert task.target(task.parse("CAC").unsqueeze(0)).flatten().tolist() == [0, -1, 1, -1]


def test_right_keys_are_where_the_answer_stands():
    def keys(rule, text):
        task = vector_task(rule)
        return task.right_keys(task.parse(text).unsqueeze(0))[0].int().tolist()

    assert keys("identity", "ABA") == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert keys("copy_first", "ABA") == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert keys("unique", "ABA")[1:] == [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("unique", [[[5.0], [out]] for out in (1, 0, -1, float("nan"))]),
        (
            "identity",
            [[[1.0, 0, 0]], [[0.5, 0.5, 0]], [[float("nan"), 0, 0]], [[1.0, float("nan"), 0]]],
        ),
    ],
)
def test_zero_and_ties_and_nan_are_never_clear(rule, rows):
    task = vector_task(rule)
    clear = [task.clearance(torch.tensor([row]), task.parse("A").unsqueeze(0)) for row in rows]
    assert [bool((each > 0).all()) for each in clear] == [True, False, False, False]


@pytest.mark.parametrize("rule", RULES)
def test_drawn_inputs_are_inputs_of_the_task_padded_at_the_end(rule):
    task = vector_task(rule)
    known = {task.text(ids) for group in task.inputs_by_length() for ids in group}
    drawn = task.sample(2_000, torch.Generator().manual_seed(0))
    assert {task.text(ids) for ids in drawn} <= known
    lengths = (drawn != PADDING).sum(-1) - int(task.has_cls)
    assert (task.counted(drawn).sum(-1) == lengths).all()
    assert torch.bincount(lengths)[1:].min() > 2_000 / task.longest * 0.8
    assert (drawn.sort(-1, descending=True).values[:, -1] == PADDING).any()
    assert not (drawn[:, :1] == PADDING).any()
    assert task.vectors(drawn)[drawn == PADDING].abs().max() == 0
    assert task.target(drawn)[~task.counted(drawn)].abs().max() == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vector_task("identiy"), "did you mean 'identity'"),
        (lambda: VectorTask("uniqe"), "did you mean 'unique'"),
        (lambda: VectorTask("identity", letters=1), "letters must be an integer of at least 2"),
        (lambda: VectorTask("identity", letters=27), "at most 26"),
        (lambda: VectorTask("identity", longest=1), "longest must be an integer of at least 2"),
        (lambda: VectorTask("identity", letters=26, longest=10**9), "more than 200,000 inputs"),
        (lambda: VectorTask("identity", letters=3, longest=12), "more than 200,000 inputs"),
        (lambda: vector_task("copy_first").parse("ABCD"), "from A to C.* got 'ABCD'"),
        (lambda: vector_task("copy_first").parse(""), "1 to 4 letters"),
        (lambda: vector_task("unique").parse("AAAAA"), "1 to 4 letters"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()
