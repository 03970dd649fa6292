"""What a head takes from each key sums to what it writes, and to its share of a logit."""

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.heads import attentions, layer_name
from attnlab.look.readout import HeadPieces
from tests.look.test_circuits import small
from tests.look.test_score_terms import forget_norms
from tests.pretrained.speaking import opened
from tests.pretrained.trying import tried
from tests.random_models import new_model
from tests.sampling import sampled

TOKENS = torch.tensor([[1, 4, 2, 7, 5, 3]])
_LENS = ("gpt2", "gemma2", "gpt_oss", "t5", "llama", "olmo2", "qwen3", "bart")
_BODIES = ("albert", "clip")


def share_of_head(model, inputs, head, target, query):
    shares = attnlab.direct_logits(model, inputs, target=target, position=query)
    names = list(map(str, shares.writers))
    return float(shares.shares[names.index(f"head {head}"), 0])


@pytest.mark.parametrize("config", [{}, {"norm_place": "post"}, {"num_kv_heads": 2}], ids=str)
def test_each_key_adds_its_weight_times_its_value_through_the_output(config):
    model = small(**config)
    sources = attnlab.why(model, TOKENS, head="1.3", query=4, target=7)
    recording, attention = attnlab.record(model, TOKENS), model.layers[1].attention
    weights = recording["layers.1.attention.weights"][0, 3, 4]
    shared = 3 // (4 // attention.layout.num_kv_heads)
    value = recording["layers.1.attention.value"][0, shared]
    matrix = attention.output.weight[:, 12:16].detach()
    torch.testing.assert_close(sources.written, weights[:, None] * value @ matrix.T)
    torch.testing.assert_close(sources.weights, weights)
    whole = matrix @ recording["layers.1.attention.heads"][0, 3, 4]
    torch.testing.assert_close(sources.output, whole)
    assert float(sources.shares.sum()) == pytest.approx(1.0, abs=1e-6)
    share = share_of_head(model, TOKENS, "1.3", 7, 4)
    assert float(sources.logits.sum()) == pytest.approx(share, abs=1e-5)
    assert sources.keys == list("142753")
    assert sources.query == (4, "5")


def test_a_logit_is_called_by_the_token_that_was_taken_for_it():
    model = opened("gpt2")
    sources = attnlab.why(model, "John and Mary went to the", head="1.0", target="store")
    assert sources.target == "␣store"  # a word after a blank, as the text goes on
    assert "logit of '␣store' " in str(sources)
    number = int(model.inputs(" store")["input_ids"][0, 0])
    assert attnlab.why(model, "John and Mary", head="1.0", target=number).target == "␣store"


@pytest.mark.parametrize("name", sampled([*_LENS, *_BODIES], [*_LENS[:4], "albert"]))
def test_the_keys_of_a_family_sum_to_what_its_head_writes(name):
    model, inputs = tried(name).model, tried(name).first_row
    part = attentions(model)[-1]
    head, target = f"{layer_name(part)}.1", 5 if name in _LENS else None
    sources = attnlab.why(model, inputs, head=head, query=2, target=target)
    assert float(sources.shares.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(sources.norms.max()) > 0
    if target is not None:
        share = share_of_head(model, inputs, head, target, 2)
        size = max(1.0, float(sources.logits.abs().max()))
        assert abs(float(sources.logits.sum()) - share) <= 1e-5 * size


def test_cross_attention_takes_from_the_source():
    config = {"vocab_size": 9, "max_length": 8, "d_model": 16, "num_heads": 2, "num_layers": 1}
    model = new_model("encoder-decoder", **config)
    inputs = torch.tensor([[3, 1, 4, 1]]), torch.tensor([[0, 2]])
    sources = attnlab.why(model, inputs, head="cross 0.1", target=3)
    assert sources.keys == ["3", "1", "4", "1"]
    share = share_of_head(model, inputs, "cross 0.1", 3, -1)
    assert float(sources.logits.sum()) == pytest.approx(share, abs=1e-6)
    with pytest.raises(WrongUsage, match="does not write to the stream of the logits"):
        attnlab.why(model, inputs, head="encoder 0.1", query=1, target=3)


def test_what_an_edit_leaves_is_taken_apart_and_an_edited_head_is_not():
    model = small()
    plain = attnlab.why(model, TOKENS, head="1.0")
    with attnlab.edit(model, attnlab.CutEdge(query=5, key=2, layer=1, head=0)):
        cut = attnlab.why(model, TOKENS, head="1.0")
    assert float(plain.norms[2]) > 0 == float(cut.norms[2])
    with attnlab.edit(model, attnlab.ZeroHead(layer=1, head=0)), pytest.raises(WrongUsage):
        attnlab.why(model, TOKENS, head="1.0")


def lose_a_piece(monkeypatch):
    plain = HeadPieces.apart
    monkeypatch.setattr(HeadPieces, "apart", lambda self, alone: plain(self, alone)[:-1])


@pytest.mark.parametrize("fault", [lose_a_piece, forget_norms])
def test_a_fault_ends_in_an_error_and_not_in_other_numbers(monkeypatch, fault):
    fault(monkeypatch)
    with pytest.raises((WrongUsage, CouldNotRun)):
        attnlab.why(small(), TOKENS, head="1.3", target=7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": 11}, "from 0 to 10"),
        ({"target": "a"}, "names of its tokens"),
        ({"target": 1, "key": 0}, "target= without one"),
        ({"against": 0}, "against= goes with a key="),
    ],
)
def test_what_cannot_be_asked_is_said(given, words):
    with pytest.raises(WrongUsage, match=words):
        attnlab.why(small(), **{"inputs": TOKENS, "head": "1.1", **given})


def test_a_model_that_answers_once_for_all_positions_names_no_logit():
    model = new_model("encoder", vocab_size=9, d_model=16, num_heads=2, num_layers=1, num_classes=2)
    assert attnlab.why(model, TOKENS, head="0.1").logits is None
    with pytest.raises(WrongUsage, match="all positions together"):
        attnlab.why(model, TOKENS, head="0.1", target=1)


def test_sources_are_shown_drawn_and_written():
    sources = attnlab.why(small(), TOKENS, head="1.1", target=7)
    title, columns, first, *_ = str(sources).splitlines()
    assert title.startswith("head 1.1 at query 5 '3': norm ")
    assert columns.split() == ["key", "weight", "norm", "share", "logit"]
    assert str(sources).splitlines()[-1].startswith("norm: the size of what a key adds")
    largest = int(sources.logits.abs().argmax())
    assert first.split()[0] == str(largest)
    (table,) = sources.number_tables()
    assert table.columns[:2] == ["weight", "share"]
    sums = [sum(column) for column in zip(*table.values, strict=True)]
    assert sums[:2] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert table.rows[2] == "2·2"
    assert sources.to_mapping()["weights"] == sources.weights.tolist()
    assert "other key" not in str(sources)
    longer = attnlab.why(small(max_length=20), torch.arange(16).unsqueeze(0) % 10, head="1.1")
    assert "4 other keys together" in str(longer)
