"""Lenses: what would be said half-way, and a logit taken apart."""

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.look import readout
from attnlab.look.lens import Lens, direct_logits, head_lens, logit_lens
from attnlab.parts.norms import LayerNorm, RMSNorm
from attnlab.seeds import generator
from attnlab.sites import hooks_of, installed
from tests.edits.effects.checks import check_attribution, close
from tests.hooks import Change
from tests.random_models import KINDS, given, new_model, run
from tests.sampling import sampled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", sampled(range(12), 1))
def test_the_shares_of_all_parts_sum_to_the_logit(seed, kind):
    check_attribution(seed, kind)


@pytest.mark.parametrize("seed", sampled(range(8), 2))
def test_a_difference_of_logits_is_taken_apart_likewise(seed):
    each = given(seed, "decoder")
    labels, others = each.labels[:, 0], (each.labels[:, 0] + 3) % 11
    found = direct_logits(*each.whole, target=labels, others=others, position=1)
    logits, rows = run(each)[:, 1], torch.arange(each.num_rows)
    close(found.logits, logits[rows, labels] - logits[rows, others], torch.float64)
    assert found.error < 1e-12 * max(1.0, float(logits.abs().max()))


def silenced(site, head):
    """Take one head out of the sum, and nothing else along with it."""
    return Change(site, lambda value: value.index_fill(1, torch.tensor(head), 0.0))


@pytest.mark.parametrize("seed", sampled(range(6), 1))
def test_without_norms_the_last_layers_heads_have_their_whole_effect_as_their_share(seed):
    """Where nothing comes after a head but the sum, its share is what taking it out takes away."""
    each = given(seed, "decoder", norm_place="none", final_norm=False, num_layers=1)
    for block in each.model.layers:
        torch.nn.init.zeros_(block.feed_forward.outer.weight)
    found = direct_logits(*each.whole, target=each.labels[:, -1])
    for writer, share in zip(found.writers, found.shares, strict=True):
        if writer.head is not None:
            with installed(each.model, silenced(f"{writer.part}.heads", writer.head)):
                left = run(each)[torch.arange(each.num_rows), -1, each.labels[:, -1]]
            close(found.logits - left, share, torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", sampled(range(6), 1))
def test_the_last_stage_of_the_lens_is_the_models_own_answer(seed, kind):
    each = given(seed, kind)
    found = logit_lens(*each.whole)
    logits = run(each)
    close(found.logits[-1], logits if logits.dim() == 2 else each.last(logits), torch.float64)
    layers = each.model.config.num_layers
    assert len(found.sites) == 1 + layers
    assert found.sites[0].endswith("embedding")
    ones = torch.ones(1 + layers, each.num_rows).double()
    assert torch.allclose(found.probabilities.sum(-1), ones)


def test_positions_may_differ_from_row_to_row():
    each = given(1, "padded decoder")
    last = (each.labels != -100).sum(1) - 1
    found = logit_lens(*each.whole, position=last)
    close(found.logits[-1], run(each)[torch.arange(each.num_rows), last], torch.float64)


@pytest.mark.parametrize("seed", sampled(range(4), 1))
def test_what_a_head_says_by_itself_holds_its_share_of_every_logit(seed):
    each = given(seed, "decoder")
    lens, labels = head_lens(*each.whole), each.labels[:, 0]
    found = direct_logits(*each.whole, target=labels)
    shares = found.shares[[writer.head is not None for writer in found.writers]]
    close(lens.logits[..., torch.arange(each.num_rows), labels], shares, torch.float64)
    parts, table = found.table()
    assert parts == [f"layers.{i}.attention" for i in range(each.model.config.num_layers)]
    assert torch.allclose(table.flatten(), shares.mean(1))
    assert str(lens.heads[0]) == "head 0.0"
    assert hooks_of(each.model) == []


NAMES = ["a", "b", "c", "d", "e", "f", " g", "\n", ""]  # and none for 9 and 10


def shown(token, value, names=None):
    if names is None or token >= len(names):
        return f"{token} {value}"
    return f"{names[token] if token < 6 else repr(names[token])} {value}"


@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_the_lens_prints_the_likeliest_tokens_by_their_names(rows, names):
    each = given(2, "decoder", num_layers=2)
    tokens = each.inputs[:1].repeat(rows, 1)
    tokens[:, 0] = torch.arange(rows)
    found = logit_lens(each.model, tokens, vocabulary=names)
    title, *lines = str(found).splitlines()
    assert title.endswith({1: "1 input", 2: "2 inputs", 9: "the first 6 of 9 inputs"}[rows])
    assert [line.split()[0] for line in lines] == found.sites
    for line, probabilities in zip(lines, found.probabilities, strict=True):
        chosen = probabilities[:6].topk(3 if rows == 1 else 1)
        pairs = zip(
            chosen.values.flatten().tolist(), chosen.indices.flatten().tolist(), strict=True
        )
        cells = [shown(token, f"{value:.2f}", names) for value, token in pairs]
        assert "".join(line.split()[1:]) == "".join("".join(cells).split())


@pytest.mark.parametrize("num_layers", [1, 4])
def test_what_is_printed_of_a_logit_taken_apart_sums_to_it(num_layers):
    each = given(2, "decoder", num_layers=num_layers)
    found = direct_logits(*each.whole)
    title, _, *lines = str(found).splitlines()
    assert f"{float(found.logits.mean()):.4g}" in title
    assert len(lines) <= 11
    total = sum(float(line.split()[0]) for line in lines)
    assert total == pytest.approx(float(found.logits.mean()), abs=1e-2)


def test_what_has_no_read_out_is_refused():
    each = given(0, "decoder")
    for call, words in (
        (lambda: logit_lens(torch.nn.Linear(2, 2), torch.zeros(1, 2)), "which has no read-out"),
        (lambda: head_lens(*each.whole, vocabulary=7), "a vocabulary is"),
        (lambda: logit_lens(new_model("encoder"), torch.zeros(1, 2).long()), "without classes"),
        (lambda: logit_lens(*each.whole, position=99), "position must be from"),
        (lambda: logit_lens(*each.whole, position="last"), "position is an integer"),
        (lambda: logit_lens(*each.whole, position=torch.tensor([0.5])), "position is an integer"),
        (lambda: direct_logits(*each.whole, target=99 + 0 * each.labels[:, 0]), "from 0 to 10"),
    ):
        with pytest.raises(WrongUsage, match=words):
            call()


def test_a_deep_lens_shows_stages_from_the_first_to_the_last_at_the_prompt():
    sites = ["embedding", *(f"layers.{layer}.residual_after" for layer in range(40))]
    deep = Lens(sites, torch.randn(41, 1, 5), "abcde", ", last position")
    shown = repr(deep)
    assert "layers.39.residual_after" in shown
    assert "embedding" in shown
    assert shown.splitlines()[-1] == "11 of 41 stages; print() has all"
    assert all(site in str(deep) for site in sites)
    assert "stages; print" not in repr(Lens(sites[:5], deep.logits[:5], "abcde"))


@pytest.mark.parametrize("lens", [logit_lens, head_lens, direct_logits])
def test_dropout_and_a_position_of_an_encoder_are_refused(lens):
    each = given(4, "decoder", dropout=0.3)
    with pytest.raises(WrongUsage, match=r"call model\.eval\(\) first"):
        lens(each.model.train(), each.inputs)
    each = given(2, "encoder")
    for position in (0, 99, torch.tensor([-1])):
        with pytest.raises(WrongUsage, match="an encoder reads out the mean over its positions"):
            lens(*each.whole, position=position)


@pytest.mark.parametrize("site", ["layers.0.attention.output", "layers.1.residual_after", "logits"])
@pytest.mark.parametrize("lens", [head_lens, direct_logits])
def test_what_does_not_sum_to_the_logits_is_refused(site, lens):
    """An edit of a head is taken apart with it; one of the stream is not."""
    each = given(4, "decoder", num_layers=2)
    with installed(each.model, silenced("layers.0.attention.heads", 1)):
        assert direct_logits(*each.whole).error < 1e-12 * float(run(each).abs().max())
    doubled = Change(site, lambda value: 2.0 * value)
    with installed(each.model, doubled), pytest.raises(WrongUsage, match="do not sum"):
        lens(*each.whole)
    assert hooks_of(each.model) == []


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_a_norm_is_held_as_it_is_where_the_sum_has_no_mean(norm, width):
    """Of a sum of mean 0 the two norms make the same; of its parts they do not."""
    function = norm(width).double()
    written = torch.randn(3, 2, 1, width, generator=generator(0, "tests", "held")).double()
    written[0] -= written.sum(0).mean(-1, keepdim=True)
    bias = function(torch.zeros_like(written[0]))
    power = written.sum(0).square().mean(-1, keepdim=True) + function.epsilon
    parts = written - written.mean(-1, keepdim=True) if norm is LayerNorm else written
    with torch.no_grad():
        found = readout._held(function, written, function(written.sum(0)) - bias, bias)
    close(found, parts / power.sqrt(), torch.float64)


def test_values_are_kept_where_the_model_is(monkeypatch):
    """What is recorded stays on the device of what it is multiplied with."""
    each = given(4, "decoder")
    asked = []
    real = readout.record
    monkeypatch.setattr(
        readout,
        "record",
        lambda *given, **told: asked.append(told["keep_on"]) or real(*given, **told),
    )
    logit_lens(*each.whole)
    assert asked == [next(each.model.parameters()).device]


def test_shares_are_the_same_however_many_parts_are_read_at_once(monkeypatch):
    each = given(4, "decoder")
    whole = direct_logits(*each.whole).shares
    monkeypatch.setattr(readout, "_AT_ONCE", 3 * each.num_rows * 11)
    close(direct_logits(*each.whole).shares, whole, whole.dtype)
