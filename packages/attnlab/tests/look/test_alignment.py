import pytest
import torch

from attnlab.look import alignment
from attnlab.look.alignment import align, distances, find_groups, medoid, shuffled, to_marks


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_heads(count, seed=0, sharpness=3.0):
    scores = sharpness * torch.randn(count, 4, 5, 5, generator=generator(seed))
    return to_marks(scores.softmax(-1))


def two_kinds(count, seed=0):
    """Half of the heads look at their own place, half at the one before, with a little noise."""
    own = torch.eye(5).expand(count, 4, 5, 5).clone()
    own[count // 2 :] = torch.eye(5).roll(-1, 1)
    return to_marks((5 * own + torch.randn(own.shape, generator=generator(seed))).softmax(-1))


def test_distance_is_nothing_between_equals_and_one_where_no_key_is_shared():
    rows = [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7], [0.5, 0.0, 0.5, 0.0]]
    marks, _ = to_marks(torch.tensor(rows)[:, None, None])
    apart = distances(marks, marks)
    assert apart[0, 0] == pytest.approx(0.0, abs=1e-3)  # a root of a rounding
    assert apart[0, 1] == 1.0
    assert apart[0, 2] == pytest.approx((1 - 0.5) ** 0.5)


def test_rows_that_must_be_what_they_are_tell_heads_apart_from_nobody():
    # the first token sees itself alone
    heads = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]], [[[1.0, 0.0], [0.0, 1.0]]]])
    marks, places = to_marks(heads)
    assert marks.shape == (2, 1, 2)
    assert places.tolist() == [1]
    assert to_marks(heads[:, :, :1])[0].shape == (2, 1, 2)  # unless there are no others


def test_rows_without_weight_tell_heads_apart_from_nobody():
    dead = torch.tensor([[[[0.0, 0.0], [0.5, 0.5]]], [[[0.0, 0.0], [0.25, 0.75]]]])
    marks, places = to_marks(dead)
    assert marks.shape == (2, 1, 2)
    assert places.tolist() == [1]
    in_one = torch.tensor([[[[0.0, 0.0], [0.5, 0.5]]], [[[0.5, 0.5], [0.25, 0.75]]]])
    assert to_marks(in_one)[1].tolist() == [0, 1]  # one head has weight there


def test_alignment_undoes_a_permutation_of_heads():
    marks, _ = random_heads(3)
    order = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]
    members = torch.stack([marks[list(each)] for each in order])
    found = align(members)
    straight = members[torch.arange(4).unsqueeze(1), found]
    assert all(torch.equal(each, straight[0]) for each in straight)


def test_alignment_that_keeps_every_head_in_its_place_is_caught(monkeypatch):
    monkeypatch.setattr(alignment, "assign", lambda costs: list(range(len(costs))))
    with pytest.raises(AssertionError):
        test_alignment_undoes_a_permutation_of_heads()


def test_two_kinds_of_heads_are_found_as_two_groups():
    groups = find_groups(*two_kinds(40), generator())
    assert len(groups.centers) == 2
    assert groups.of[:20].unique().tolist() != groups.of[20:].unique().tolist()
    assert len(groups.of[:20].unique()) == len(groups.of[20:].unique()) == 1
    assert groups.separation > groups.chance + 0.2


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_not_read_as_groups(seed):
    groups = find_groups(*random_heads(60, seed), generator(seed))
    assert len(groups.centers) == 1
    assert groups.separation == 0.0


def test_groups_held_against_no_chance_would_be_read_into_noise(monkeypatch):
    monkeypatch.setattr(alignment, "shuffled", lambda marks, *_: marks[:1].expand_as(marks))
    with pytest.raises(AssertionError):
        test_noise_is_not_read_as_groups(0)


def test_one_odd_head_does_not_hide_the_two_kinds():
    marks, places = two_kinds(40)
    marks[0] = to_marks(torch.eye(5).roll(-2, 1).expand(1, 4, 5, 5))[0]
    groups = find_groups(marks, places, generator(), most=2)
    assert torch.bincount(groups.of).tolist() == [21, 19]
    assert len(groups.of[1:20].unique()) == len(groups.of[20:].unique()) == 1


@pytest.mark.parametrize("count", [1, 2, 19])
def test_of_few_heads_there_is_one_group(count):
    groups = find_groups(*random_heads(count), generator())
    assert len(groups.centers) == 1
    assert groups.tried == {}
    assert groups.of.tolist() == [0] * count


def test_shuffled_heads_do_at_each_query_what_some_head_does_there_on_all_inputs():
    marks, places = random_heads(6)
    mixed = shuffled(marks, places, generator())
    for query in range(5):
        own, new = marks[:, places == query].flatten(1), mixed[:, places == query].flatten(1)
        assert sorted(map(tuple, own.tolist())) == sorted(map(tuple, new.tolist()))
    assert not torch.equal(marks, mixed)


def test_the_medoid_is_nearest_to_all_others():
    line = torch.tensor([0.0, 1.0, 5.0])
    assert medoid((line - line.unsqueeze(1)).abs()) == 1
