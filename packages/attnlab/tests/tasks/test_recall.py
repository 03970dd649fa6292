import pytest
import torch

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.tasks.recall import Facts, RecallTask

FACTS = Facts(torch.tensor([[2, 0]]), torch.tensor([[1, 3]]), torch.tensor([[1]]))


def test_the_same_facts_are_written_in_three_ways():
    loose, bound, ordered = (
        RecallTask(variant, num_facts=2, num_keys=4, num_values=4)
        for variant in ("loose", "bound", "ordered")
    )
    assert ordered.source_words(ordered.source(FACTS)[0]) == ["k3", "v2", "k1", "v4"]
    assert loose.source(FACTS).tolist() == ordered.source(FACTS).tolist()
    assert bound.source(FACTS).tolist() == [[[2, 5], [0, 7]]]
    assert bound.source_words(bound.source(FACTS)[0]) == ["k3:v2", "k1:v4"]
    assert ordered.words(ordered.questions(FACTS)[0]) == ["k1"]
    assert ordered.words(ordered.answers(FACTS)[0]) == ["v4"]


@pytest.mark.parametrize("number", [1, 8, 32])
def test_keys_and_values_of_a_sample_are_distinct(number):
    facts = RecallTask("bound", num_facts=number).sample(200, seeds.generator(0))
    for row in (*facts.keys.tolist(), *facts.values.tolist()):
        assert len(set(row)) == number
        assert 0 <= min(row) <= max(row) < 32


@pytest.mark.parametrize("number", [1, 8, 32])
def test_training_never_shows_a_held_out_pair_and_shows_all_others(number):
    task, generator = RecallTask("bound", num_facts=number), seeds.generator(0)
    seen = torch.zeros(32, 32, dtype=torch.bool)
    for _ in range(max(1, 400 // number)):
        facts = task.sample_training(64, generator)
        seen[facts.keys, facts.values] = True
        assert facts.which.sort(-1).values.tolist() == [list(range(number))] * 64
    keys, values = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    held_out = task.is_held_out(keys, values)
    assert int(held_out.sum()) == 64  # one in 16
    assert not bool((seen & held_out).any())
    assert bool((seen | held_out).all())


def test_held_out_questions_ask_only_held_out_pairs_all_of_them():
    task = RecallTask("bound")
    facts = task.sample_held_out(3_000, seeds.generator(0))
    keys, values = (part.gather(1, facts.which) for part in facts[:2])
    assert len(keys) == 3_000
    assert bool(task.is_held_out(keys, values).all())
    assert len(torch.unique(keys * 32 + values)) == 64
    assert len(torch.unique(facts.which)) == 8
    for row in (*facts.keys[:200].tolist(), *facts.values[:200].tolist()):
        assert len(set(row)) == 8


def test_a_reader_of_loose_words_can_be_right_one_time_in_k_and_no_more():
    # Whatever is answered from the set of values, such as always the smallest, is right once in k.
    for number in (2, 4, 8):
        task = RecallTask("loose", num_facts=number)
        facts = task.sample(40_000, seeds.generator(number))
        right = (
            (facts.values.amin(-1, keepdim=True) + task.num_keys == task.answers(facts))
            .double()
            .mean()
        )
        assert abs(float(right) - task.chance) < 0.012  # five standard deviations


def test_typed_facts_are_read_in_any_of_the_usual_forms():
    task = RecallTask("bound", num_facts=2)
    for text in ("k3 v7 k9 v1", "K3:V7, K9:V1", "k3=v7; k9=v1"):
        assert task.parse(text).tolist() == [[2, 38], [8, 32]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RecallTask("lose"), "there is no variant 'lose'; did you mean 'loose'"),
        (lambda: RecallTask(num_facts=0), "num_facts must be an integer of at least 1; got 0"),
        (lambda: RecallTask(num_facts=33, num_keys=64, num_values=64), "at most 32; got 33"),
        (lambda: RecallTask(num_facts=9, num_values=8), "at least num_facts.* got 8 and 9"),
        (lambda: RecallTask().parse("k1 v1 k2"), "expected a value after each key; 'k2' has none"),
        (lambda: RecallTask().parse("k1 k2"), "from v1 to v32 as word 2 .* got 'k2'"),
        (lambda: RecallTask().parse("k33 v1"), "from k1 to k32 as word 1 .* got 'k33'"),
        (lambda: RecallTask().parse(""), "expected a key from k1 to k32 as word 1"),
        (lambda: RecallTask().parse("k1 v1 " * 33), "at most 32 facts; got 33"),
        (
            lambda: RecallTask(num_facts=1, num_keys=1, num_values=1).sample_training(
                4, seeds.generator(0)
            ),
            "no 1 facts without a held-out pair were found among 1 keys and 1 values",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()


def test_held_out_pairs_that_occur_in_training_are_caught(monkeypatch):
    def careless(self, batch_size, generator):
        facts = self.sample(batch_size, generator)
        return facts._replace(which=torch.arange(self.num_facts).expand(batch_size, -1))

    monkeypatch.setattr(RecallTask, "sample_training", careless)
    with pytest.raises(AssertionError):
        test_training_never_shows_a_held_out_pair_and_shows_all_others(8)
