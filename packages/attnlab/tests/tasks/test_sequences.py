import itertools
import math

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.tasks import sequences
from attnlab.tasks.sequences import SEPARATOR, SequenceTask

TASKS = [
    SequenceTask("sort", letters=3, length=3),
    SequenceTask("sort", letters=1, length=2),
    SequenceTask("reverse", letters=4, length=2),
    SequenceTask("copy", letters=2, length=5),
    SequenceTask("add", letters=3, length=2),
    SequenceTask("induction", letters=3, length=4),
]
EACH_TASK = pytest.mark.parametrize(
    "task", TASKS, ids=lambda task: f"{task.rule}-{task.letters}-{task.length}"
)


def by_hand(task, prompt):
    """Compute the answer as a person would, with plain Python."""
    if task.rule == "sort":
        return sorted(prompt)
    if task.rule == "reverse":
        return prompt[::-1]
    if task.rule == "copy":
        return list(prompt)
    if task.rule == "add":
        number = [
            int("".join(str(letter - 1) for letter in half), task.letters)
            for half in (prompt[: task.length], prompt[task.length :])
        ]
        total, digits = sum(number), []
        for _ in range(task.length + 1):
            digits.append(total % task.letters + 1)
            total //= task.letters
        return digits[::-1]
    last = max(i for i in range(len(prompt) - 1) if prompt[i] == prompt[-1])
    return [prompt[last + 1]]


@EACH_TASK
def test_every_answer_is_what_plain_python_says(task):
    prompts = task.all_prompts()
    assert len(prompts) == task.num_prompts == len({tuple(p) for p in prompts.tolist()})
    assert task.answer(prompts).tolist() == [by_hand(task, prompt) for prompt in prompts.tolist()]
    rows = task.rows(prompts)
    assert rows.shape == (task.num_prompts, task.row_length)
    assert (rows[:, task.prompt_length] == SEPARATOR).all()


@EACH_TASK
def test_samples_are_uniform_over_the_domain(task):
    drawn = task.sample(200 * task.num_prompts, torch.Generator().manual_seed(0)).tolist()
    counts = {tuple(prompt): 0 for prompt in task.all_prompts().tolist()}
    for prompt in drawn:
        counts[tuple(prompt)] += 1  # a prompt outside the domain would be a KeyError
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    freedom = max(len(counts) - 1, 1)
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


@EACH_TASK
def test_the_loss_floor_is_the_entropy_of_the_best_predictor(task):
    # The best causal predictor knows, after each prefix, how often each token follows it in the
    # domain.
    rows = task.rows(task.all_prompts()).tolist()
    follows: dict[tuple, dict[int, int]] = {}
    for row, end in itertools.product(rows, range(1, task.row_length)):
        counts = follows.setdefault(tuple(row[:end]), {})
        counts[row[end]] = counts.get(row[end], 0) + 1
    nats = 0.0
    for row, end in itertools.product(rows, range(1, task.row_length)):
        counts = follows[tuple(row[:end])]
        nats -= math.log(counts[row[end]] / sum(counts.values()))
    best = nats / len(rows) / (task.row_length - 1)
    assert task.loss_floor == pytest.approx(best, abs=1e-12)
    if task == SequenceTask():
        assert best == pytest.approx(2 * math.log(3) / 6)


def test_typed_prompts_are_read_and_wrong_ones_told_what_is_expected():
    task = SequenceTask()
    assert task.parse("C, a b").tolist() == [3, 1, 2]
    assert task.text(task.parse(task.example)) == task.example
    for wrong in ("", "ab", "abcd", "abz", "ab1", "äbc"):
        with pytest.raises(WrongUsage, match="expected 3 letters from a to c, such as 'cba'; got"):
            task.parse(wrong)


def test_an_induction_prompt_must_repeat_its_last_letter():
    task = SequenceTask("induction", letters=4, length=4)
    assert task.text(task.parse("abda")) == "abda"
    with pytest.raises(WrongUsage, match="the last letter to occur among the others"):
        task.parse("abcd")
    assert task.parse(task.example) is not None


def test_a_domain_too_large_to_list_is_sampled():
    task = SequenceTask("sort", letters=26, length=12)
    with pytest.raises(WrongUsage, match="evaluate a sample"):
        task.all_prompts()
    prompts, are_all = task.prompts_to_evaluate(100, torch.Generator().manual_seed(0))
    assert (len(prompts), are_all) == (100, False)
    assert SequenceTask().prompts_to_evaluate(100, torch.Generator())[1] is True


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rule": "srot"}, "did you mean 'sort'"),
        ({"letters": 27}, "at most 26"),
        ({"letters": 0}, "letters must be an integer of at least 1"),
        ({"rule": "induction", "length": 1}, "length must be an integer of at least 2"),
        ({"rule": "add", "letters": 1}, "add needs at least 2 letters"),
    ],
)
def test_impossible_tasks_are_refused(fields, message):
    with pytest.raises(WrongUsage, match=message):
        SequenceTask(**fields)


def test_every_rule_is_tried_here_and_said_in_words():
    from attnlab.experiments.words import read_words

    said = read_words("attnlab.experiments.sorting")["tasks"]
    assert set(sequences._RULES) == {task.rule for task in TASKS} == set(said)


def test_an_answer_of_another_length_than_is_said_is_named(monkeypatch):
    monkeypatch.setitem(sequences._RULES, "sort", lambda task, prompts: prompts[:, :1])
    with pytest.raises(WrongUsage, match=r"answers with 1 letters, and .* says 3"):
        SequenceTask("sort", letters=3, length=3).answer(torch.ones(2, 3, dtype=torch.int64))
