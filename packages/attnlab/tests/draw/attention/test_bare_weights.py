"""Bare weights: each form is what it says, with its tokens."""

import numpy as np
import pytest
import torch

import attnlab
from attnlab.draw.attention.recordings import to_drawable, to_patterns
from attnlab.draw.view import view_page
from attnlab.errors import WrongUsage

WORDS = ["the", "cat", "sat"]


def weights(*axes):
    torch.manual_seed(0)
    return torch.rand(*axes).softmax(-1)


def shown(found, **options):
    return [
        (each.site, each.shape, each.query_tokens, each.key_tokens)
        for each in to_drawable(found, **options)
    ]


@pytest.mark.parametrize(
    ("found", "heads"),
    [
        (weights(3, 3), 1),
        (weights(2, 3, 3), 2),
        (weights(1, 2, 3, 3), 2),
        (weights(2, 3, 3).numpy(), 2),
        (weights(2, 3, 3).bfloat16(), 2),
        (weights(2, 3, 3).requires_grad_(), 2),
    ],
)
def test_one_attention_is_shown_with_its_tokens(found, heads):
    assert shown(found, tokens=WORDS) == [
        ("attention.weights", (heads, 3, 3), tuple(WORDS), tuple(WORDS))
    ]
    assert shown(found)[0][2] == ("0", "1", "2")


@pytest.mark.parametrize(("kind", "axes"), [(list, (2, 3, 3)), (tuple, (1, 2, 3, 3))])
def test_a_list_is_a_layer_each(kind, axes):
    layers = kind(weights(*axes) for _ in range(4))
    assert [site for site, *_ in shown(layers, tokens=WORDS)] == [
        f"layers.{n}.attention.weights" for n in range(4)
    ]
    assert len(shown(torch.stack([weights(1, 2, 3, 3)] * 4), tokens=WORDS)) == 4


def test_a_row_of_the_batch_is_that_row():
    found = weights(5, 2, 3, 3)
    (one,) = to_patterns([found], row=4)
    assert np.array_equal(one.whole(1), found[4, 1].numpy())
    with pytest.raises(WrongUsage, match="has rows 0 to 4; got row 5"):
        to_patterns([found], row=5)


def test_tokens_of_queries_and_keys_may_differ():
    assert shown(weights(1, 2, 3), tokens=(["a", "b"], WORDS))[0][2:] == (("a", "b"), tuple(WORDS))
    assert shown(weights(1, 1, 3), tokens=WORDS)[0][2:] == (
        ("sat",),
        tuple(WORDS),
    )  # a step with a cache
    assert shown(weights(3, 3), tokens=torch.tensor([7, 8, 9]))[0][2] == ("7", "8", "9")


@pytest.mark.parametrize(
    ("found", "tokens", "sentence"),
    [
        (
            weights(3, 3),
            ["a", "b"],
            r"has 3 queries and 3 keys; got tokens for 2 and 2\. Tokens are a list",
        ),
        (weights(3, 3), "the cat sat", "got tokens for 11 and 11"),
        (
            weights(3, 3),
            [1.5, 2.5, 3.5],
            "tokens are a list of texts, a pair of lists .*; got a list",
        ),
        (weights(3, 3), {"encoder": WORDS}, "for 'attention.weights' got encoder"),
        (weights(3, 3), weights(3, 3), "To compare two recordings: show"),
        (weights(3), None, r"weights are \(query, key\), .*; got shape \(3\)"),
        ([weights(3, 3)], None, r"a list of weights holds \(head, query, key\), .* got \(3, 3\)"),
        (
            torch.ones(3, 3, dtype=torch.bool),
            None,
            "must be floating-point numbers; got torch.bool",
        ),
        ([[0.5, 0.5], [1.0]], None, "the steps of"),
        ((None, None), None, "attn_implementation='eager' .* output_attentions=True"),
        (None, None, "there are no attentions here"),
        (weights(2, 4, 3, 3), None, r"may be 2 inputs or as many layers: give"),
        ("text", None, "expected a recording, weights, a pattern or a list of patterns; got a str"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(found, tokens, sentence):
    with pytest.raises(WrongUsage, match=sentence):
        to_drawable(found, tokens=tokens)


def test_pages_and_figures_of_bare_weights_have_their_tokens_and_say_odd_sums():
    figure = attnlab.plot.head(weights(3, 3), tokens=WORDS)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == WORDS
    assert attnlab.plot.difference(weights(3, 3), weights(3, 3), tokens=WORDS).axes
    assert attnlab.plot.heads([weights(2, 3, 3)] * 2).axes
    honest, scores = weights(2, 3, 3), torch.rand(2, 3, 3) * 9 + 1
    honest[0, 0] = 0  # a query that may look at nothing
    assert "not to 1" not in view_page(honest)
    assert "not to 1: scores, or weights after dropout or an edit?" in view_page(
        scores, tokens=WORDS
    )
    assert "do not sum to 1" in attnlab.plot.head(scores, 1).axes[0].get_title(loc="left")
    assert "do not sum to 1" not in attnlab.plot.head(honest, 1).axes[0].get_title(loc="left")
    broken = weights(2, 3, 3)
    broken[1, 2, 0] = float("nan")
    for draw in (view_page, lambda found: attnlab.plot.head(found, 1), attnlab.plot.heads):
        with pytest.raises(WrongUsage, match=r"the weight of query 2 on key 0 is nan"):
            draw(broken)


def test_summaries_are_shown():
    found = attnlab.Summarize(tiles=4).of_weights(weights(2, 3, 9, 9))
    (one,) = to_drawable(found, row=1, tokens=list("abcdefghi"))
    assert one.shape == (3, 9, 9)
    assert np.array_equal(one.largest, found.map_max[1].numpy())
    assert "<html" in view_page(found)


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module")
def gpt2(transformers):
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=8, vocab_size=20, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def bart(transformers):
    config = transformers.BartConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=20,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration._from_config(
        config, attn_implementation="eager"
    ).eval()


IDS = torch.tensor([[3, 5, 7]])


def test_what_hugging_face_gives_as_attentions_is_a_layer_each(gpt2):
    with torch.no_grad():
        outputs = gpt2(IDS, output_attentions=True)
    expected = [
        (f"layers.{n}.attention.weights", (2, 3, 3), tuple(WORDS), tuple(WORDS)) for n in range(2)
    ]
    assert shown(outputs.attentions, tokens=WORDS) == shown(outputs, tokens=WORDS) == expected
    assert np.array_equal(to_patterns(outputs)[1].whole(0), outputs.attentions[1][0, 0].numpy())
    with pytest.raises(WrongUsage, match="output_attentions=True"):
        to_drawable(gpt2(IDS))


def test_the_steps_of_hugging_faces_generate_are_joined(gpt2):
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    found = gpt2.generate(IDS, return_dict_in_generate=True, output_attentions=True, **options)
    with torch.no_grad():
        once = gpt2(found.sequences[:, :-1], output_attentions=True)
    for joined, whole in zip(to_patterns(found), to_patterns(once), strict=True):
        assert joined.shape == (2, 5, 5)
        assert np.allclose(np.nan_to_num(joined.whole(1)), whole.whole(1), atol=1e-6)
        assert np.isnan(joined.whole(1)[0, 1])  # later keys are masked


def test_an_encoder_decoder_has_three_kinds_of_attentions(bart):
    with torch.no_grad():
        outputs = bart(IDS, decoder_input_ids=IDS[:, :2], output_attentions=True)
    found = {
        site: each
        for site, *each in shown(outputs, tokens={"encoder": WORDS, "decoder": ["<s>", "a"]})
    }
    assert found["encoder.layers.0.attention.weights"] == [(2, 3, 3), tuple(WORDS), tuple(WORDS)]
    assert found["decoder.layers.1.attention.weights"] == [(2, 2, 2), ("<s>", "a"), ("<s>", "a")]
    assert found["decoder.layers.0.cross_attention.weights"] == [
        (2, 2, 3),
        ("<s>", "a"),
        tuple(WORDS),
    ]
    options = {"max_new_tokens": 3, "num_beams": 1, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_attentions": True}
    generated = bart.generate(IDS, **options)
    assert len(to_patterns(generated)) == 5
    with pytest.raises(WrongUsage, match="has 2 queries and 2 keys; got tokens for 3 and 3"):
        to_drawable(outputs, tokens=WORDS)
