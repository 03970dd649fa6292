"""Pairs of texts: patched as hooks by hand on the plain model would, pooled with intervals."""

import copy
from dataclasses import replace
from functools import cache, partial

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from attnlab.core.stats import student_quantile
from attnlab.edits.effects import Metric, Patched, PatchTarget, patch_all, patch_paths
from attnlab.edits.effects.pairs import read_pairs
from attnlab.edits.effects.patched import Recovery
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.attach import attach
from attnlab.seeds import generator
from tests.planting import fault_tests, faults_in
from tests.pretrained.speaking import made, opened

CLEAN = [
    "the cat sat on the mat and the dog sat on the",
    "John and Mary went to the store. Mary gave a drink to",
    "the dog sat on the mat and the cat sat on the",
]
CORRUPTED = [
    "the dog sat on the mat and the dog sat on the",
    "John and Mary went to the store. John gave a drink to",
    "the dog sat on the mat and the mat sat on the",
]
ALIKE = [CLEAN[0], CLEAN[2]], [CORRUPTED[0], CORRUPTED[2]]  # of as many tokens
SHORT = ["the cat sat on a", "the cat sat on the"], ["the cat sat on the", "the dog sat on the"]


@cache
def plain():
    """A small GPT-2 in double precision, its tokenizer, and the same behind hook points."""
    foreign, tokenizer = made("gpt2")
    foreign = foreign.double().eval()
    with torch.no_grad():
        for parameter in foreign.transformer.h.parameters():
            parameter.mul_(4.0)
    return foreign, tokenizer, attach(copy.deepcopy(foreign), tokenizer=tokenizer)


def part_of_gpt2(foreign, place):
    """The module where a place of ours is, whether what it reads is meant, and the index."""
    layer, query = int(place.path.split(".")[1]), place.query
    block, at = foreign.transformer.h[layer], slice(None) if query is None else query
    if place.head is not None:
        width = foreign.config.n_embd // foreign.config.n_head
        index = (slice(None), at, slice(place.head * width, (place.head + 1) * width))
        return block.attn.c_proj, True, index
    if place.path.endswith("residual_before"):
        return block, True, (slice(None), at)
    module = block.mlp if "feed_forward" in place.path else block.attn.c_proj
    return module, False, (slice(None), at)


@torch.no_grad()
def by_hand(foreign, ids, base_ids, place):
    """Last logits of one text's run with another's value at one place: a hook that reads."""
    module, is_input, index = part_of_gpt2(foreign, place)
    kept = []

    def changed(value):
        value = value.clone()
        value[index] = kept[0][index]
        return value

    def run(tokens, read, write):
        handle = module.register_forward_hook(write)
        if is_input:
            handle.remove()
            handle = module.register_forward_pre_hook(read)
        logits = foreign(tokens, use_cache=False).logits[0, -1]
        handle.remove()
        return logits

    run(ids, lambda _, args: kept.append(args[0]), lambda _, args, out: kept.append(out))
    return run(
        base_ids, lambda _, args: (changed(args[0]), *args[1:]), lambda _, args, out: changed(out)
    )


def check_by_hand(what, direction, clean, corrupted, **options):
    """Each patch of each pair is that of the hooks, and the effects are their ratios of means."""
    foreign, tokenizer, model = plain()
    found = patch_all(model, clean, corrupted, what, direction=direction, **options)
    ids = [
        [torch.tensor([tokenizer(text)["input_ids"]]) for text in texts]
        for texts in (clean, corrupted)
    ]
    wanted, ends = torch.empty_like(found.after), torch.empty(2, len(clean), dtype=torch.float64)
    with torch.no_grad():
        for row, (one, other) in enumerate(zip(*ids, strict=True)):
            logits = [foreign(each).logits[0, -1] for each in (one, other)]
            answer = int(logits[0].argmax())
            wrong = int(logits[1].index_fill(0, torch.tensor(answer), -torch.inf).argmax())
            ends[:, row] = torch.stack([each[answer] - each[wrong] for each in logits])
            source, base = (one, other) if direction == "denoise" else (other, one)
            for number, place in enumerate(found.places):
                patched = by_hand(foreign, source, base, place)
                wanted[number, row] = patched[answer] - patched[wrong]
    torch.testing.assert_close(found.after, wanted, rtol=0, atol=1e-9)
    torch.testing.assert_close(torch.stack([found.ends.clean, found.ends.corrupted]), ends)
    shares = (wanted.mean(1) - ends[1].mean()) / (ends[0].mean() - ends[1].mean())
    effects = shares if direction == "denoise" else 1 - shares
    torch.testing.assert_close(found.effects, effects, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("what", "direction", "options"),
    [
        ("stream", "denoise", {}),
        ("mlps", "noise", {}),
        ("attentions", "denoise", {}),
        ("heads", "noise", {"each_position": True}),
    ],
)
def test_a_patch_is_that_of_a_hook_by_hand_on_the_plain_model(what, direction, options):
    check_by_hand(what, direction, *(texts[1:] for texts in SHORT), **options)


def test_pairs_of_different_lengths_are_pooled_without_positions():
    check_by_hand("heads", "noise", CLEAN, CORRUPTED)
    *_, model = plain()
    found = patch_all(model, CLEAN, CORRUPTED, "mlps")
    assert "correspond: each patch is of all positions" in str(found)
    assert {place.query for place in found.places} == {None}
    assert patch_all(model, *ALIKE, "mlps").note == ""
    for options in ({}, {"what": "heads", "each_position": True}):
        with pytest.raises(WrongUsage, match="positions of different texts do not correspond"):
            patch_all(model, CLEAN, CORRUPTED, **options)


def test_pairs_are_the_same_together_and_one_by_one():
    *_, model = plain()
    for find in (
        lambda *pair: patch_all(model, *pair, "heads"),
        lambda *pair: patch_paths(model, *pair),
    ):
        together = find(CLEAN, CORRUPTED)
        alone = [find(*pair) for pair in zip(CLEAN, CORRUPTED, strict=True)]
        for row, found in enumerate(alone):
            torch.testing.assert_close(together.after[:, row], found.after[:, 0])
            assert together.answers[row] == found.answers[0]
            assert float(together.chances.clean[row]) == pytest.approx(float(found.chances.clean))


def test_pairs_that_do_not_fit_are_refused_counted_and_named():
    *_, model = plain()
    clean = [*CLEAN, "the cat", "", CLEAN[0], CLEAN[1]]
    corrupted = [*CORRUPTED, "the cat sat", "the", CORRUPTED[0], CORRUPTED[1]]
    answers = [None, " Mary", None, None, None, None, "no such token"]
    found = patch_all(model, clean, corrupted, "heads", target=answers)
    assert len(found.ends.clean) + len(found.refused) == len(clean)
    assert [row for row, _ in found.refused] == [3, 4, 5, 6]
    reasons = ("equally many tokens", "a text is empty", "it repeats pair 1", "is 9 tokens here")
    for (_, why), reason in zip(found.refused, reasons, strict=True):
        assert reason in why
    assert "3 pairs patched, 4 refused" in str(found)
    assert "refused: pair 4: patching needs two texts" in str(found)
    assert found.answers[1][0] == "␣Mary"
    kept = patch_all(model, CLEAN, CORRUPTED, "heads", target=answers[:3])
    assert torch.equal(found.after, kept.after)

    with pytest.raises(WrongUsage, match=r"none of 2 pairs can be patched; the first: .* 2: 'the'"):
        patch_all(model, ["the cat"] * 2, ["the cat sat", "the"], "heads")
    with pytest.raises(WrongUsage, match="3 pairs need 3 targets, or one; got 2"):
        patch_all(model, CLEAN, CORRUPTED, "heads", target=[" Mary", " John"])
    same = Metric("logit_difference", target=" Mary", others=" Mary")
    with pytest.raises(WrongUsage, match="the same token"):
        patch_all(model, CLEAN[0], CORRUPTED[0], metric=same)


def test_a_masked_word_is_measured_at_its_mask_and_two_are_refused():
    model = opened("bert-masked")
    clean, corrupted = "the cat sat on the [MASK] .", "the dog sat on the [MASK] ."
    found = patch_all(model, clean, corrupted, metric="logit")
    ids = model.inputs(clean)["input_ids"]
    with torch.no_grad():
        logits = model(ids)[0, ids[0].tolist().index(model.tokenizer.mask_token_id)]
    assert float(found.ends.clean) == pytest.approx(float(logits.max()), abs=1e-5)
    assert found.answers[0][0] == model.vocabulary[int(logits.argmax())]

    with pytest.raises(WrongUsage, match="one answer to a text"):
        patch_all(model, "the [MASK] sat on the [MASK]", "the [MASK] sat on a [MASK]")


def test_patches_become_a_frame_with_a_column_for_each_part_of_a_place(monkeypatch):
    found = patch_all(opened("gpt2"), *ALIKE, "mlps")
    monkeypatch.setattr("attnlab.edits.effects.patched.frame", list)  # in the place of pandas
    rows = found.frame()
    assert [row["words"] for row in rows] == [row["words"] for row in found.rows()]
    assert {"path", "query", "effect", "low", "high"} < rows[0].keys()


def test_two_equal_texts_are_refused_in_one_sentence():
    model = opened("gpt2")
    with pytest.raises(WrongUsage, match=r"^both texts are the same: a patch has nothing"):
        patch_all(model, CLEAN[0], CLEAN[0])
    found = patch_all(model, CLEAN[:2], [CLEAN[0], CORRUPTED[1]], "heads")
    assert [(row, why.partition(":")[0]) for row, why in found.refused] == [
        (0, "both texts are the same")
    ]


def test_the_position_that_is_measured_is_said_where_there_is_one():
    model = opened("gpt2")
    found = patch_all(model, *ALIKE, "mlps")
    assert found.position == "last position '␣the'"
    assert f"{found.measured}, last position '␣the'" in str(found)
    spread = Metric("logit_difference", "Mary", "John", position=-2)
    assert (
        patch_all(model, CLEAN[1], CORRUPTED[1], metric=spread).position == "position -2 '␣drink'"
    )


def test_classes_are_answers_by_their_names():
    found = patch_all(opened("bert-judge"), "a warm film", "a funny film", "mlps")
    assert found.position == ""
    assert {*found.answers[0]} < {"bad", "good", "odd"}
    assert f"logit of '{found.answers[0][0]}' less that of" in str(found)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of 200 draws of 12 pairs whose patches go 0.4 of the way in the mean, the interval holds 0.4
    in about 95 %; were the share of each draw taken as exact, it would in 99 %."""
    draw, held, total = generator(3, "tests", "intervals"), 0, 0
    places = tuple(PatchTarget("layers.0.attention", head) for head in range(5))
    for _ in range(200):
        gaps = 3 + torch.randn(12, generator=draw, dtype=torch.float64)
        noise = 0.5 * torch.randn(5, 12, generator=draw, dtype=torch.float64)
        corrupted = torch.randn(12, generator=draw, dtype=torch.float64)
        ends, after = Recovery(corrupted + gaps, corrupted), corrupted + 0.4 * gaps + noise
        found = Patched(places, "logit", "denoise", ends, after)
        back = replace(found, direction="noise", after=ends.clean - 0.4 * gaps - noise)
        for one, other in zip(found.intervals, back.intervals, strict=True):
            assert one == pytest.approx(other)
            held += one.low <= 0.4 <= one.high
            total += 1
    assert 0.925 <= held / total <= 0.965


def test_an_interval_is_that_of_the_delta_method():
    places = (PatchTarget("layers.0.attention", 0),)
    clean, corrupted = torch.tensor([[3.0, 5.0, 4.0], [1.0, 1.0, 2.0]], dtype=torch.float64)
    after = torch.tensor([[2.0, 2.0, 3.0]], dtype=torch.float64)
    found = Patched(places, "logit", "denoise", Recovery(clean, corrupted), after)
    (interval,) = found.intervals  # changes 1, 1, 1 of gaps 2, 4, 2: a share of 3/8
    residuals = torch.tensor([1 - 3 / 8 * 2, 1 - 3 / 8 * 4, 1 - 3 / 8 * 2], dtype=torch.float64)
    reach = student_quantile(2) * float(residuals.std()) / 3**0.5 / (8 / 3)
    assert interval == pytest.approx((3 / 8, 3 / 8 - reach, 3 / 8 + reach))
    assert found.rows()[0]["low"] == interval.low
    assert (
        "low"
        not in replace(found, ends=Recovery(clean[:1], corrupted[:1]), after=after[:, :1]).rows()[0]
    )


def test_pairs_of_a_file_are_read_or_refused(tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text(
        '\ufeffid,clean,corrupted,answer\n1,"a, b",c,\n2,d,e, Mary\n3,f\n4,g,h,i,j\n5,k,l,m\n',
        encoding="utf-8",
    )
    pairs = read_pairs(file)
    assert (pairs.clean, pairs.corrupted) == (["a, b", "d", "k"], ["c", "e", "l"])
    assert (pairs.answer, pairs.wrong) == ([None, " Mary", "m"], [None] * 3)
    assert (pairs.rows, [row for row, _ in pairs.refused]) == ([0, 1, 4], [2, 3])
    file.write_text("clean,corupted\na,b\n")
    with pytest.raises(WrongUsage, match="no column 'corrupted'; did you mean 'corupted'"):
        read_pairs(file)
    file.write_text("clean,corrupted\na\n")
    with pytest.raises(WrongUsage, match="no pair: 1 rows were refused"):
        read_pairs(file)
    for content in (b"clean,corrupted\n\xff\xff,b\n", b'clean,corrupted\n"a,b\n'):
        file.write_bytes(content)
        with pytest.raises(CouldNotRun, match="cannot be read as CSV in UTF-8"):
            read_pairs(file)
    with pytest.raises(CouldNotRun, match="No such file"):
        read_pairs(tmp_path / "nowhere.csv")


CHECKS = {
    "stream": partial(check_by_hand, "stream", "denoise", *SHORT),
    "heads": test_pairs_of_different_lengths_are_pooled_without_positions,
    "refusals": test_pairs_that_do_not_fit_are_refused_counted_and_named,
    "masked": test_a_masked_word_is_measured_at_its_mask_and_two_are_refused,
    "intervals": test_intervals_hold_the_truth_as_often_as_they_say,
}
FAULTS = """
the next position is patched | edits.effects.sweep | stream
- query: Any = slice(None) if self.query is None else self.query
+ query: Any = slice(None) if self.query is None else self.query - 1
the values are those of the first layer | edits.effects.patches | heads
- base, source = pair.base.values[site], pair.source.values[site]
+ base, source = pair.base.values[site], pair.source.values[sites[0]]
places that differ pass for equal | edits.effects.patches | stream
- if not torch.equal(base[place.index], source[place.index]):
+ if not torch.equal(base[place.index][:1], source[place.index][:1]):
the ends are swapped | edits.effects.patched | stream
- low, high = self.corrupted.mean(), self.clean.mean()
+ high, low = self.corrupted.mean(), self.clean.mean()
the direction is ignored | edits.effects.patches | heads
- both = (corrupted, clean) if direction == "denoise" else (clean, corrupted)
+ both = corrupted, clean
noise is told as denoising | edits.effects.patched | heads
- return self.shares if self.direction == "denoise" else 1.0 - self.shares
+ return self.shares
pairs of other lengths come first | edits.effects.patches | heads
- order = torch.tensor(list(chain.from_iterable(group.rows for group in pairs.groups))).argsort()
+ order = torch.arange(sum(len(group.rows) for group in pairs.groups))
the clean run names the rival | edits.effects.metrics | heads
- likely = logits if rivals is None else rivals
+ likely = logits
the answer is that of the corrupted run | edits.effects.patches | stream
- reference = clean.logits
+ reference = corrupted.logits
a repeated pair counts twice | edits.effects.pairs | refusals
- if first != row:
+ if first > row:
the last token is measured where a word is masked | edits.effects.pairs | masked
- return places[0]
+ return -1
the share of a draw is taken as exact | edits.effects.patched | intervals
- values = effects + (changes - effects * gaps) / gaps.mean()
+ values = changes / gaps.mean()
the interval is that of the changes of the other direction | edits.effects.patched | intervals
- changes = self.ends.clean - self.after
+ changes = self.ends.corrupted - self.after
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS), lambda name: CHECKS[name]()
)
