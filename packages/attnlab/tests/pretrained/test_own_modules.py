"""Hand-written language models, as a reader of the docs writes them: what works, and what every
refusal tells to do."""

import attnlab
import pytest
import torch
from attnlab.errors import WrongUsage
from torch import nn

from tests.pretrained.written import Attention

WIDTH = 16
IDS = torch.tensor([[3, 1, 2, 0, 5, 7]])
TEXTS = ["abcdef", "fedcba", "aabbcc", "ccbbaa", "ababab", "bcbcbc"]


class CausalAttention(Attention):
    """Attention to earlier tokens alone."""

    def mix(self, query, key, value):
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Block(nn.Module):
    """A block that adds attention and a feed-forward part to its stream."""

    def __init__(self, attention=CausalAttention):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), attention()
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm_2(x))


class Reader(nn.Module):
    """A small language model; a subclass chooses the name of its input."""

    def __init__(self, blocks=None):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(10, WIDTH), nn.Embedding(12, WIDTH)
        self.layers = nn.ModuleList(blocks or [Block(), Block()])
        self.norm, self.unembedding = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)
        self.eval()

    def read(self, ids):
        """The stream after all blocks."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.layers:
            x = block(x)
        return self.norm(x)

    def forward(self, input_ids):
        return self.unembedding(self.read(input_ids))


class TokensReader(Reader):
    """The same with another name of its input."""

    def forward(self, tokens):
        return self.unembedding(self.read(tokens))


class LogitsReader(Reader):
    """The same, its logits named."""

    def forward(self, tokens):
        return {"logits": self.unembedding(self.read(tokens))}


def corpus(texts):
    return attnlab.Corpus(texts, encode=lambda text: [ord(letter) - 96 for letter in text])


def loaded(kind):
    name = "input_ids" if kind is Reader else "tokens"
    return attnlab.load(kind(), example={name: IDS})


@pytest.mark.parametrize("kind", [Reader, TokensReader, LogitsReader])
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
    with pytest.raises(WrongUsage, match="two texts of one length.* attention_mask.*effects=0"):
        attnlab.census(loaded(TokensReader), corpus(["abc", "abcd"]), effects=2)
    model = loaded(TokensReader)
    with pytest.raises(WrongUsage, match="takes no mask of padding.* attention_mask"):
        model(IDS, real=IDS > 0)
