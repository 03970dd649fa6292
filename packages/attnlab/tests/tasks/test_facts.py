import pytest
import torch

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.tasks import lookup as task


def test_the_vocabulary_has_the_14_words_in_their_order():
    assert task.VOCABULARY[:3] == ("[PAD]", "[SOS]", "[EOS]")
    assert task.VOCABULARY[3:] == (
        "COLOR", "NAME", "ITEM", "RED", "BLUE", "GREEN", "ALICE", "BOB", "CHAIR", "QUERY", "FIND",
    )  # fmt: skip
    assert task.FACTS == {"RED": "BLUE", "ALICE": "GREEN", "CHAIR": "RED"}


def test_there_are_72_distinct_sources_three_facts_in_24_orders():
    sources = task.all_sources()
    assert sources.shape == (72, 5)
    assert len({tuple(row) for row in sources.tolist()}) == 72
    assert {task.id_names(row)[0] for row in sources} == {"NAME"}
    assert len({tuple(sorted(row)) for row in sources.tolist()}) == 3


def test_the_answer_is_the_value_of_the_key_that_stands_there_in_any_order():
    for source in task.all_sources()[::6]:
        names = set(task.id_names(source))
        (key,) = (key for key, value in task.FACTS.items() if {key, value} <= names)
        for row in task.permutations(source):
            assert task.id_names(task.key_of(row.unsqueeze(0))) == [key]
            assert task.id_names(task.right_answer(row.unsqueeze(0))) == [task.FACTS[key]]


def test_a_source_has_120_permutations_and_the_first_is_itself():
    source = task.all_sources()[17]
    orders = task.permutations(source)
    assert len({tuple(row) for row in orders.tolist()}) == 120
    assert torch.equal(orders[0], source)


def test_samples_are_uniform_over_the_72_and_the_seeds_own():
    drawn = task.sample_sources(72_000, seeds.generator(0, "a"))
    counts = torch.unique(drawn, dim=0, return_counts=True)[1]
    assert len(counts) == 72
    assert int((counts - 1_000).abs().max()) < 160  # five standard deviations of a count
    assert torch.equal(drawn, task.sample_sources(72_000, seeds.generator(0, "a")))


def test_the_data_set_is_parted_80_10_10():
    for number, lengths in ((5_000, [4_000, 500, 500]), (19, [17, 1, 1])):
        split = task.make_split(number, seeds.generator(0))
        assert [len(part) for part in vars(split).values()] == lengths


def test_batches_are_padded_on_request_with_masks_for_both_sides():
    sources = task.all_sources()[:2]
    plain, padded = task.make_batch(sources), task.make_batch(sources, length=10)
    assert plain.source.shape == (2, 5)
    assert bool(plain.source_real.all())
    assert padded.source.shape == padded.target_input.shape == (2, 10)
    assert padded.source_real.sum(-1).tolist() == [5, 5]
    assert padded.target_real.sum(-1).tolist() == [2, 2]
    assert bool((padded.source[~padded.source_real] == task.PAD).all())
    assert bool((padded.target_output[~padded.target_real] == task.PAD).all())
    assert torch.equal(padded.target_input[:, 1], padded.target_output[:, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: task.parse("name colour red"), "there is no word 'COLOUR'; did you mean 'COLOR'"),
        (lambda: task.parse(""), "1 to 10 words, such as 'NAME COLOR RED ITEM BLUE'; got 0"),
        (lambda: task.parse("red " * 11), "got 11"),
        (lambda: task.parse("[PAD]"), r"there is no word '\[PAD\]'"),
        (lambda: task.right_answer(task.parse("bob").unsqueeze(0)), "exactly one fact .* got BOB"),
        (lambda: task.make_batch(task.all_sources(), length=4), "at least 5; got 4"),
        (lambda: task.make_split(9, seeds.generator(0)), "at least 10; got 9"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()


def test_typed_words_may_be_in_any_case_and_parted_by_commas():
    found = task.id_names(task.parse("  blue, Item  red,COLOR name "))
    assert found == ["BLUE", "ITEM", "RED", "COLOR", "NAME"]
