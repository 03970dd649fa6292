"""Hand-written language models, as a reader of the docs writes them: what works, and what every
refusal tells to do."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from tests.pretrained.written import (
    Attention,
    Block,
    Reader,
    SoftmaxAttention,
    TokensReader,
)

WIDTH = 16
IDS = torch.tensor([[3, 1, 2, 0, 5, 7]])
TEXTS = ["abcdef", "fedcba", "aabbcc", "ccbbaa", "ababab", "bcbcbc"]


class CausalAttention(Attention):
    """Attention to earlier tokens alone."""

    def mix(self, query, key, value):
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def block(attention=CausalAttention):
    return Block(attention())


class LogitsReader(TokensReader):
    """The same, its logits named."""

    def forward(self, tokens):
        return {"logits": self.unembedding(self.read(tokens))}


class DictsReader(Reader):
    """The same without a class of blocks: its forward calls their parts."""

    def __init__(self):
        super().__init__([block, block])
        parts = ("norm", "attention", "norm_2", "mlp")
        blocks = [{name: getattr(block, name) for name in parts} for block in self.layers]
        self.layers = nn.ModuleList(map(nn.ModuleDict, blocks))

    def read(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.layers:
            x = x + block["attention"](block["norm"](x))
            x = x + block["mlp"](block["norm_2"](x))
        return self.norm(x)


def corpus(texts):
    return attnlab.Corpus(texts, encode=lambda text: [ord(letter) - 96 for letter in text])


def loaded(kind):
    name = "input_ids" if kind is Reader else "tokens"
    return attnlab.load(kind([block, block]), example={name: IDS})


@pytest.mark.parametrize("kind", [Reader, LogitsReader])
def test_a_census_reads_an_own_model_by_its_own_inputs(kind):
    texts = [*TEXTS, "abc", "dcba"]
    result = attnlab.census(loaded(kind), corpus(texts), effects=8)
    assert result.counts["texts read"] == 8
    assert len(result.effects) == 16
    # Each text is read with texts of its own length alone: without padding.
    row, *_ = attnlab.census(loaded(kind), corpus(["abc", "dcbaa"]), effects=0).table()
    three, *_ = attnlab.census(loaded(kind), corpus(["abc"]), effects=0).table()
    five, *_ = attnlab.census(loaded(kind), corpus(["dcbaa"]), effects=0).table()
    assert row["first"] * 6 == pytest.approx(three["first"] * 2 + five["first"] * 4, rel=1e-4)


def test_effects_on_texts_that_cannot_be_padded_say_what_to_do():
    with pytest.raises(WrongUsage, match=r"two texts of one length.* attention_mask.*effects=0"):
        attnlab.census(loaded(TokensReader), corpus(["abc", "abcd"]), effects=2)
    model = loaded(TokensReader)
    with pytest.raises(WrongUsage, match=r"takes no mask of padding.* attention_mask"):
        model(IDS, real=IDS > 0)


def test_blocks_that_are_dicts_of_parts_are_layers_of_one_stack():
    model = attnlab.load(DictsReader(), example={"input_ids": IDS})
    assert list(attnlab.record(model, IDS, "*.weights")) == [
        "layers.0.attention.weights",
        "layers.1.attention.weights",
    ]
    of_blocks = attnlab.record(loaded(Reader), IDS)
    for site, values in attnlab.record(model, IDS).items():
        assert torch.equal(values, of_blocks[site])
    assert attnlab.census(model, corpus(TEXTS), heads=["1.3"], effects=0).heads == ("1.3",)
    with pytest.raises(WrongUsage, match=r"residual_before.*class of blocks"):
        attnlab.patch_all(model, IDS, IDS.roll(1, 1))


class SoftmaxOfItsOwn(SoftmaxAttention):
    """The plainest attention: a product, a mask, a softmax, a product."""

    def weights(self, query, key):
        later = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
        return (query @ key.mT / 2).masked_fill(later, float("-inf")).softmax(-1)


def test_a_softmax_of_its_own_is_told_how_queries_are_seen():
    model = attnlab.load(Reader([lambda: block(SoftmaxOfItsOwn)] * 2))
    several = torch.cat((IDS, IDS.roll(1, 1)))
    for call in (
        lambda: attnlab.pattern_effects(model, several, controls=["shuffled"]),
        lambda: attnlab.why(model, IDS, head="0.0", query=3, key=1),
        lambda: attnlab.circuits(model),
    ):
        with pytest.raises((WrongUsage, CouldNotRun), match="scaled_dot_product_attention"):
            call()


class Letters(nn.Module):
    """A model with attnlab's own attention in it, as docs/build.md has it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.unembedding = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 10)
        self.attention = attnlab.multi_head_attention(WIDTH, num_heads=4)
        self.eval()

    def forward(self, tokens):
        stream = self.embedding(tokens)
        return self.unembedding(stream + self.attention(stream, mask="causal").output)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: attnlab.logit_lens(model, IDS),
        lambda model: attnlab.direct_logits(model, IDS),
        lambda model: attnlab.why(model, IDS, head="attention.0", query=2, key=1),
        lambda model: attnlab.patch_all(model, IDS, IDS.roll(1, 1)),
        attnlab.load,
    ],
)
def test_what_needs_the_stream_of_an_own_model_says_how_it_is_seen(call):
    with pytest.raises(WrongUsage, match=r"scaled_dot_product.*attnlab\.load.*docs/build\.md"):
        call(Letters())


def test_an_own_model_generates_as_its_own_loop_does():
    model, tokens = Letters(), IDS
    for _ in range(3):
        tokens = torch.cat((tokens, model(tokens)[:, -1:].argmax(-1)), 1)
    assert torch.equal(attnlab.generate(model, IDS, 3).tokens, tokens)
    named = loaded(LogitsReader)
    assert attnlab.generate(named, IDS, 3).tokens.shape == (1, 9)
    with pytest.raises(WrongUsage, match=r'forward returns \{"logits"'):
        attnlab.generate(loaded(TokensReader), IDS, 3)


def test_an_own_model_is_not_saved_but_its_weights_are(tmp_path):
    with pytest.raises(CouldNotRun, match=r"torch\.save\(model\.state_dict"):
        attnlab.save_model(Letters(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda: attnlab.why(None, IDS, head="0.0", query=1, key=0),
        lambda: attnlab.circuits(None),
        lambda: attnlab.logit_lens(None, IDS),
        lambda: attnlab.save_model(None, "nowhere"),
        lambda: attnlab.generate(None, IDS, 3),
        lambda: attnlab.census(None, corpus(TEXTS)),
    ],
)
def test_what_is_no_model_is_refused(call):
    with pytest.raises(WrongUsage, match=r"model.*got a NoneType"):
        call()


def test_an_id_beyond_the_vocabulary_is_told_with_the_sizes_of_the_tables():
    for model in (Letters(), loaded(Reader)):
        with pytest.raises(WrongUsage, match=r"ids from 3 to 100.* has 10"):
            attnlab.record(model, torch.tensor([[3, 100]]))
    with pytest.raises(WrongUsage, match=r"up to 20 positions.*positions has 12"):
        attnlab.record(loaded(Reader), torch.ones(1, 20, dtype=torch.long))


def test_a_class_in_the_place_of_a_model_is_refused():
    with pytest.raises(WrongUsage, match=r"load\(Letters\(\.\.\.\)\)"):
        attnlab.load(Letters)


def test_a_pattern_gets_a_pattern_as_its_suggestion():
    with pytest.raises(WrongUsage, match=r"did you mean 'layers\.\*\.attention\.weights'"):
        attnlab.record(loaded(Reader), IDS, "layers.*.attn.weights")


def test_an_own_model_is_named_once_and_its_output_not_called_vectors():
    model = loaded(Reader)
    assert repr(attnlab.record(model, IDS)).startswith("Recording of Reader: ")
    assert "logits or vectors" in repr(model)


@pytest.mark.parametrize(
    ("module", "name", "known"),
    [("plot", "heds", "'heads'"), ("edits", "MeanAblate", "'Mean")],
)
def test_unknown_names_of_plot_and_edits_get_a_suggestion(module, name, known):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean {known}"):
        getattr(getattr(attnlab, module), name)


class NamedReader(LogitsReader):
    """The same, which names its output embedding, too."""

    def get_output_embeddings(self):
        return self.unembedding


def test_an_own_model_with_named_logits_is_read_as_a_pretrained_one():
    model = loaded(NamedReader)
    logits = model(IDS)[:, -1]
    assert torch.allclose(attnlab.logit_lens(model, IDS).logits[-1], logits, atol=1e-5)
    assert attnlab.direct_logits(model, IDS).error < 1e-4
    assert len(attnlab.circuits(model).heads) == 8
    assert attnlab.patch_all(model, IDS, IDS.roll(1, 1)).effects.shape[0] == 12


def test_a_printed_recording_shows_all_kinds_of_sites():
    shown = repr(attnlab.record(loaded(NamedReader), IDS))
    for kind in ("embedding", "query, key, value, heads", "residual_after", "output", "logits"):
        assert kind in shown
    both = attnlab.EncoderDecoder(attnlab.EncoderDecoderConfig(num_layers=2)).eval()
    shown = repr(attnlab.record(both, (IDS, IDS[:, :2])))
    assert "more line" not in shown
    for kind in ("decoder.layers.*.cross_attention.query", "encoder.embedding", "logits"):
        assert kind in shown


def test_examples_of_a_census_print_as_a_table_with_their_texts():
    model = loaded(Reader)
    result = attnlab.census(model, corpus(TEXTS), heads=["0.2"], effects=0)
    shown = repr(result.deciles("0.2"))
    assert shown.splitlines()[1].split() == ["tenth", "value", "query", "key", "row", "text"]
    assert len(shown.splitlines()) == 2 + len(TEXTS)
    first = result.examples("0.2")[0]
    assert " ".join(first.tokens[:3]) in repr(result.examples("0.2"))
