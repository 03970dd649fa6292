"""Controls: what each does, and that the test tells heads that work from heads that only look
so."""

import importlib
from functools import cache

import pytest
import torch

from attnlab.draw.number_tables import tables_report
from attnlab.edits import RedirectToFirst, SetPattern, UniformPattern, ZeroHead
from attnlab.edits.application import edit
from attnlab.edits.effects import (
    CONTROLS,
    PatchTarget,
    SignificanceRule,
    SweepOptions,
    pattern_effects,
)
from attnlab.edits.effects.baseline import HeadPatterns, pattern_of, run_plain
from attnlab.edits.effects.controls import PATTERN_CONTROLS, _shuffled
from attnlab.edits.effects.metrics import Metric, prepare_metric
from attnlab.edits.sources import other_rows
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call
from attnlab.look.recording import record
from attnlab.models import Decoder, DecoderConfig
from attnlab.parts.masks import padding_mask
from attnlab.seeds import generator, isolated
from attnlab.sites import explicit_attention
from tests.edits.effects.checks import close, one_by_one
from tests.random_models import given, run
from tests.sampling import sampled

FEW = SignificanceRule(draws=50)


@pytest.mark.parametrize("seed", sampled([1, 2, 3, 4, 7, 9, 10, 11, 12, 14, 15], 2))
def test_controls_that_are_edits_give_what_the_edits_give(seed):
    """The controls that are edits too give what these give one by one."""
    each = given(seed)
    kinds = {"uniform": UniformPattern, "first": RedirectToFirst, "zeroed": ZeroHead}
    found = pattern_effects(*each.whole, **each.loss, controls=tuple(kinds), rule=FEW)
    assert bool(((found.largest > 0) & (found.largest <= 1) & (found.entropy >= 0)).all())
    places = [{"site": head.path, "head": head.head} for head in found.heads]
    edits = [kind(**place) for place in places for kind in kinds.values()]
    with explicit_attention(each.model):
        after = one_by_one(each, edits, "loss", target=each.labels)
    close(found.effects.flatten(0, 1) + found.before, after, torch.float64)


def test_what_stands_at_padding_changes_no_control_and_no_loss():
    tokens, lengths = torch.arange(24).view(4, 6) % 11, [6, 4, 3, 5]
    blank = torch.arange(6) >= torch.tensor(lengths)[:, None]
    model = given(5, "padded decoder").model
    found = []
    for filler in (0, 7):
        inputs = {"tokens": tokens.masked_fill(blank, filler), "mask": padding_mask(lengths, 6)}
        found.append(pattern_effects(model, inputs, metric="loss", target=tokens, rule=FEW))
    close(found[0].before, found[1].before, torch.float64)
    close(found[0].effects, found[1].effects, torch.float64)


@pytest.mark.parametrize("seed", sampled([1, 2, 3, 7, 9], 1))
def test_each_other_control_is_its_definition(seed):
    """Patterns made here of plain weights, set by an edit, give what the control gives."""
    each, names = given(seed, "padded decoder"), ["mean", "value_zeroed", "frozen", "shuffled"]
    told = {**each.loss, "rule": FEW, "seed": seed}
    found = pattern_effects(*each.whole, controls=names, **told)
    sites = [f"layers.{n}.attention.call" for n in range(9)]
    base = run_plain(each.model, Call.of(each.inputs), sites)
    own = prepare_metric(Metric("loss", each.labels), run(each))
    for head, effects in zip(found.heads, found.effects, strict=True):
        whole = pattern_of(base.calls[head.path])
        weights, allowed = whole.weights[:, head.head], whole.allowed[:, head.head]
        real = weights.masked_fill(~allowed.any(-2).unsqueeze(-1), 0.0)  # without padded queries
        draw = {name: generator(seed, "effects", name, 1, str(head)) for name in names}
        donors = other_rows(len(real), draw["frozen"])
        patterns = {
            "mean": HeadPatterns.renormalized(real.mean(0).expand_as(weights), allowed),
            "value_zeroed": weights.masked_fill(weights == weights.amax(-1, keepdim=True), 0.0),
            "frozen": HeadPatterns.renormalized(real[donors], allowed),
            "shuffled": _shuffled(
                weights.unsqueeze(1), allowed.unsqueeze(1), draw["shuffled"]
            ).squeeze(1),
        }
        for name, effect in zip(names, effects, strict=True):
            pattern = whole.weights.clone()
            pattern[:, head.head] = patterns[name]
            put = SetPattern(site=head.path, pattern=pattern)
            with explicit_attention(each.model), edit(each.model, put, certify=False):
                close(effect + found.before, own(run(each), run(each))[0], torch.float64)


@pytest.mark.parametrize("seed", sampled(range(3), 1))
def test_shuffled_weights_are_the_same_weights_on_allowed_keys(seed):
    each = given(seed, "padded decoder")
    sites = ["layers.0.attention.call"]
    call = run_plain(each.model, Call.of(each.inputs), sites).calls["layers.0.attention"]
    pattern = pattern_of(call)
    found = _shuffled(pattern.weights, pattern.allowed, generator(seed, "shuffle"))
    assert bool((found[~pattern.allowed] == 0).all())
    assert torch.equal(found.sort(-1).values, pattern.weights.sort(-1).values)


def test_every_donor_is_another_input_and_gives_once():
    for number in range(2, 9):
        donors = other_rows(number, generator(number, "donors"))
        assert sorted(donors.tolist()) == list(range(number))
        assert bool((donors != torch.arange(number)).all())


def test_patterns_keep_to_allowed_keys_and_sum_to_one():
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    allowed = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    expected = torch.tensor([[0.625, 0.375, 0], [0.5, 0.5, 0], [0, 0, 0]])
    assert torch.allclose(HeadPatterns.renormalized(weights, allowed), expected)


@cache
def planted(seed=0):
    """A decoder of four heads that answers with the token before the last, and only two of them
    have to do with it.

    Head 0 looks at the token before, sharply, and says it: pretty and needed. Head 1 looks just so,
    and its words are lost. Head 2 looks evenly at everything, and says a constant that the answer
    needs: plain and needed. Head 3 looks evenly, and says nothing.
    """
    letters, length, width = 6, 5, 8
    bare = {"norm_place": "none", "final_norm": False, "positions": "none", "bias": False}
    sizes = {"vocab_size": letters, "max_length": length, "d_model": 4 * width, "num_heads": 4}
    with isolated(seed, "tests", "planted"):
        model = Decoder(DecoderConfig(**sizes, **bare, tie_output=False))
    block = model.layers[0]
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        # Channels 0-5: the token; 6: one; 8-12: the place, told by the tokens themselves (letter +
        # 6 · place).
        model.embedding.tokens = torch.nn.Embedding(letters * length, 4 * width)
        model.embedding.vocab_size = letters * length
        torch.nn.init.zeros_(model.embedding.tokens.weight)
        for token in range(letters * length):
            letter, place = token % letters, token // letters
            for channel in (letter, 6, 8 + place):
                model.embedding.tokens.weight[token, channel] = 1.0
        for head in (0, 1):
            for place in range(1, length):
                block.attention.query.weight[head * width + place, 8 + place] = 30.0
                block.attention.key.weight[head * width + place, 8 + place - 1] = 1.0
            for letter in range(letters):
                block.attention.value.weight[head * width + letter, letter] = 1.0
        block.attention.value.weight[2 * width, 6] = 1.0
        for letter in range(letters):
            block.attention.output.weight[16 + letter, letter] = 4.0
            model.head.weight[letter, 16 + letter] = 1.0
        block.attention.output.weight[22, 2 * width] = 1.0
        # without head 2 three letters are not said
        model.head.weight[:3, 6], model.head.weight[:3, 22] = -6.0, 6.0
    draws = torch.randint(letters, (40, length), generator=generator(seed, "planted inputs"))
    return model.eval(), draws + letters * torch.arange(length), draws[:, -2]


def planted_effects(rows=slice(None), seed=0, **told):
    """The effects of patterns on these rows."""
    model, tokens, labels = planted(seed)
    told = {"metric": "loss", "target": labels[rows], "seed": seed, **told}
    return pattern_effects(model, tokens[rows], **told)


@pytest.mark.parametrize("seed", sampled(range(3), 1))
def test_heads_that_work_are_told_from_heads_that_only_look_so(seed):
    found = planted_effects(seed=seed)
    part = "layers.0.attention"
    assert found.is_sharp.tolist() == [True, True, False, False]
    assert found.needed == [PatchTarget(part, 0), PatchTarget(part, 2)]
    assert found.pretty_but_idle == [PatchTarget(part, 1)]
    assert found.plain_but_needed == [PatchTarget(part, 2)]
    table = {(row["head"], row["control"]): row for row in found.rows()}
    assert table[0, "mean"]["matters"] is False  # it looks alike whatever the input
    assert table[0, "frozen"]["effect"] == pytest.approx(0.0, abs=1e-6)
    assert table[0, "uniform"]["matters"] is True
    assert table[0, "uniform"]["low"] > 0
    assert table[2, "zeroed"]["matters"] is True
    assert table[2, "uniform"]["effect"] == pytest.approx(0.0, abs=1e-6)
    assert len(table) == 4 * len(CONTROLS)


def idle_pattern(seed):
    """A decoder whose first head says the same wherever it looks, and prompts that end alike."""
    sizes = {"vocab_size": 11, "max_length": 8, "d_model": 6, "num_heads": 2, "d_ff": 24}
    with isolated(seed, "tests", "idle pattern"):
        model = Decoder(DecoderConfig(**sizes, projections="dense", positions="alibi"))
    attention = model.layers[0].attention
    with torch.no_grad():
        attention.query.weight[:3] = 0.0
        attention.value.weight[:3] = 0.0
        attention.value.bias[:3] = torch.tensor([0.7, -1.3, 0.1])
    tokens = torch.randint(11, (12, 8), generator=generator(seed, "idle pattern"))
    tokens[:, -1] = 0
    return model.eval(), tokens


def test_an_effect_below_rounding_is_none():
    """Wherever the first head looks the answer is the same."""
    for seed in range(3):
        model, tokens = idle_pattern(seed)
        found = pattern_effects(model, tokens, controls=[*PATTERN_CONTROLS, "zeroed"], seed=seed)
        assert found.effects[0, :-1].tolist() == [[0.0] * 12] * 5
        assert found.tested.p[0, :-1].tolist() == [1.0] * 5
        assert bool((found.effects[0, -1].abs() > 1e-4).any())


def test_an_effect_well_above_rounding_stays():
    """The value is moved by 1,000 roundings, which moves the logits by no more."""
    model, tokens = idle_pattern(0)
    size = 1_000 * torch.finfo(torch.float32).eps
    before = pattern_effects(model, tokens, controls=["zeroed"]).effects[0]
    with torch.no_grad():
        model.layers[0].attention.output.weight[:, :3] *= size
    found = pattern_effects(model, tokens, controls=["zeroed"]).effects[0]
    assert float(before.abs().max()) > 100 * float(found.abs().max()) > 0.0


def test_copies_of_inputs_count_once():
    """Twelve inputs among which are three different ones count as three."""
    controls = ["zeroed", "uniform"]
    found = planted_effects([0, 1, 2, 1] * 3, controls=controls)
    once = planted_effects(slice(3), controls=controls)
    assert found.distinct == 3
    assert torch.allclose(found.tested.mean, once.tested.mean, atol=1e-6)
    assert torch.equal(found.tested.p, once.tested.p)
    assert not bool(found.matters.any())
    assert found.effects.shape == (4, 2, 12)
    words = "of 12 inputs 3 are different; in the tests copies count once; 3 inputs cannot"
    assert found.caution.startswith(words)
    assert found.caution in str(found)
    _, _, notes = tables_report(found).sections
    assert found.caution in notes.text


def test_the_page_marks_what_is_significant_as_the_terminal_does():
    found = planted_effects(controls=["zeroed"])
    _, table, *_ = tables_report(found).sections
    stars = [row[-1].endswith("*") for row in table.rows]
    assert stars == found.matters[:, 0].tolist()
    assert any(stars)
    assert not all(stars)


def test_inputs_that_differ_in_their_padding_alone_are_no_copies():
    tokens = torch.tensor([[1, 2, 3]] * 3)
    real = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]]).bool()
    call = Call.of({"tokens": tokens, "real": real})
    first, second, third = call.copies().tolist()
    assert first == third != second
    assert Call.of((tokens, tokens)).copies().tolist() == [0, 0, 0]


def test_a_few_copies_among_many_inputs_are_told_of_and_judged():
    found = planted_effects([*range(30), *range(4)])
    assert found.can_tell
    words = f"of 34 inputs {found.distinct} are different; in the tests copies count once"
    assert found.caution == words
    assert "not sharp, but needed: head 0.2" in str(found)


def test_copies_of_one_input_are_refused():
    with pytest.raises(WrongUsage, match=r"needs many different inputs; got 12 copies of one\."):
        planted_effects([0] * 12)
    with pytest.raises(WrongUsage, match=r"needs many different inputs; got one\."):
        planted_effects([0])


def test_an_effect_that_is_sure_but_small_can_be_called_none():
    assert planted_effects(rule=SignificanceRule(least=1e3)).needed == []


@pytest.mark.parametrize(
    ("number", "correction"),
    [(2, "holm"), (8, "holm"), (10, "holm"), (11, "holm"), (9, "bh"), (5, "none"), (6, "none")],
)
def test_inputs_too_few_to_show_anything_give_no_verdict(number, correction):
    """Four heads under seven controls are 28 tests: at 0.05 corrected they take 11 inputs, one by
    one 6."""
    found = planted_effects(slice(number), rule=SignificanceRule(correction))
    least = 2 / 2**number * (1 if correction == "none" else 28)
    assert found.least_p == min(1.0, least)
    assert found.can_tell == (least <= 0.05)
    told = str(found)
    if found.can_tell:
        assert found.caution == ""
        assert "not shown to matter" in told
        if correction == "holm":
            assert PatchTarget("layers.0.attention", 1) in found.pretty_but_idle
        return
    assert not any(row["can_tell"] for row in found.rows())
    assert bool(found.is_sharp.any())
    assert found.pretty_but_idle == []
    assert "not shown to matter" not in told
    assert "none" not in told
    assert found.caution == told.splitlines()[-1]
    assert f"{number} inputs cannot show an" in told
    assert told.endswith(f"at least {6 if correction == 'none' else 11}")


def test_too_few_draws_to_show_anything_are_told_too():
    found = planted_effects(rule=FEW)
    assert found.pretty_but_idle == found.needed == []
    assert found.caution.endswith("give SignificanceRule(draws=559) or more")
    assert planted_effects(rule=SignificanceRule(draws=559)).can_tell


def test_the_seed_decides_what_is_drawn_and_nothing_else_does():
    each = given(2, "padded decoder")
    told = {**each.loss, "rule": FEW}
    torch.manual_seed(0)
    one = pattern_effects(*each.whole, seed=5, **told)
    torch.manual_seed(1)
    two = pattern_effects(*each.whole, seed=5, how=SweepOptions(threads=2), **told)
    other = pattern_effects(*each.whole, seed=6, **told)
    close(one.effects, two.effects, torch.float64)
    assert torch.equal(one.tested.p, two.tested.p)
    assert not torch.allclose(one.effects, other.effects)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"controls": ["unifrom"]}, "did you mean 'uniform'"),
        ({"controls": []}, "at least one control"),
        ({"rule": SignificanceRule("bonferroni")}, "no correction"),
        ({"rule": SignificanceRule(alpha="0.05")}, "alpha must be"),
        ({"rule": SignificanceRule(sharp="0.5")}, "rule= is a SignificanceRule"),
        ({"rule": None}, "rule= is a SignificanceRule"),
        ({"parts": "*.cross"}, "no site of this model matches"),
    ],
)
def test_what_makes_no_sense_is_said(told, words):
    each = given(4, "decoder")
    with pytest.raises(WrongUsage) as caught:
        pattern_effects(each.model, each.inputs.repeat(2, 1), **{"rule": FEW, **told})
    assert words in str(caught.value)


def test_nothing_is_said_of_where_heads_look_when_no_control_changed_it():
    found = planted_effects(controls=["zeroed", "value_zeroed"])
    assert found.is_sharp.tolist() == [True, True, False, False]
    assert found.pretty_but_idle == []
    assert "where they look" not in str(found)
    assert "not sharp, but needed: head 0.2" in str(found)


def test_padding_of_the_source_does_not_hide_queries_of_cross_attention():
    """As many queries as keys: nobody looks at the padded keys."""
    each = given(3, "encoder-decoder")
    source = torch.randint(11, (4, 3), generator=generator(0, "source"))
    real = torch.arange(3) < torch.tensor([3, 2, 2, 2]).unsqueeze(1)
    inputs = {"source": source, "target": source.flip(1), "real": real}
    part = "decoder.layers.0.cross_attention"
    found = pattern_effects(each.model, inputs, parts=part, controls=["zeroed"], rule=FEW)
    with record(each.model, f"{part}.weights") as recording:
        each.model(**inputs)
    assert torch.allclose(found.largest, recording[f"{part}.weights"].amax(-1).mean((0, 2)))


@pytest.mark.parametrize("controls", [["uniform"], ["mean", "uniform"]])
def test_patterns_are_made_one_head_at_a_time_and_kept_only_for_their_mean(controls, monkeypatch):
    heads, kept = [], []
    module = importlib.import_module("attnlab.edits.effects.controls")
    real, look = module.pattern_of, module._look

    def watched(call, head=None):
        heads.append(head)
        return real(call, head)

    def looked(*given, **told):
        kept.append(look(*given, **told))
        return kept[-1]

    monkeypatch.setattr(module, "pattern_of", watched)
    monkeypatch.setattr(module, "_look", looked)
    planted_effects(controls=controls, rule=FEW)
    assert None not in heads
    assert bool(kept[0][0]) == ("mean" in controls)
