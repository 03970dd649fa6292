"""A recording knows its tokens, those that look and those that are looked at."""

import copy

import pytest
import torch
from torch import nn

from attnlab import models
from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.parts.heads import multi_head_attention
from tests.random_models import new_model

SOURCE, TARGET = torch.tensor([[1, 2, 3, 0], [2, 0, 0, 0]]), torch.tensor([[4, 1], [4, 2]])
REAL = torch.tensor([[True, True, True, False], [True, False, False, False]])
NAMES = ["<pad>", "red", "blue", "green", "<start>"]
CROSS, OWN = "decoder.layers.0.cross_attention.weights", "decoder.layers.0.attention.weights"


@pytest.fixture(scope="module")
def translator():
    return new_model("encoder-decoder", vocab_size=5, d_model=8, num_heads=2)


def recorded(translator, vocabulary=None):
    with record(translator, "*", vocabulary=vocabulary) as recording:
        translator(SOURCE, TARGET, real=REAL)
    return recording


def test_queries_and_keys_have_their_own_names(translator):
    recording = recorded(translator, NAMES)
    assert recording.tokens(CROSS) == (["<start>", "red"], ["red", "blue", "green", "<pad>"])
    assert recording.tokens(CROSS, 1) == (["<start>", "blue"], ["blue", "<pad>", "<pad>", "<pad>"])
    assert recording.tokens(OWN).key == recording.tokens(OWN).query == ["<start>", "red"]
    source = ["red", "blue", "green", "<pad>"]
    assert recording.tokens("encoder.layers.0.attention.scores").key == source
    assert recording.tokens("logits").query == ["<start>", "red"]
    assert recording.tokens("encoder.embedding").query == source
    assert recording.tokens(CROSS).query is not recording.tokens(CROSS).key


def test_what_is_blocked_and_what_is_real_is_known_for_each_row(translator):
    recording = recorded(translator)
    assert recording.blocked(CROSS).tolist() == [[False, False, False, True]] * 2
    assert recording.blocked(CROSS, 1).tolist() == [[False, True, True, True]] * 2
    assert recording.blocked(OWN, 1).tolist() == [[False, True], [False, False]]
    assert recording.real(CROSS, 1) == ([True, True], [True, False, False, False])
    assert recording.real("encoder.layers.0.attention.weights", 1)[0] == [True, False, False, False]
    with pytest.raises(WrongUsage, match="have blocked keys; logits has none"):
        recording.blocked("logits")


def test_names_come_from_a_sequence_a_mapping_or_a_function(translator):
    for vocabulary in (tuple(NAMES), dict(enumerate(NAMES)), lambda token: NAMES[token]):
        found = recorded(translator, vocabulary).tokens(CROSS).key
        assert found == ["red", "blue", "green", "<pad>"]
    assert recorded(translator).tokens(CROSS) == (["4", "1"], ["1", "2", "3", "0"])
    with pytest.raises(WrongUsage, match="the vocabulary has 2 names, and none for token id 4"):
        recorded(translator, ["a", "b"]).tokens(CROSS)


def test_a_row_that_is_not_there_is_an_error(translator):
    recording = recorded(translator)
    for ask in (recording.tokens, recording.blocked, recording.real):
        for row in (2, -1, True, 0.5):
            with pytest.raises(WrongUsage, match=r"row must be from 0 to 1; got "):
                ask(CROSS, row)


def test_tokens_of_several_parts_are_joined_and_vectors_are_places():
    encoder = new_model("encoder", vocab_size=5, d_model=8)
    with record(encoder, "layers.0.attention.weights", vocabulary=NAMES) as recording:
        encoder(torch.tensor([[[1, 2], [3, 1]]]))
    assert recording.tokens("layers.0.attention.weights").key == ["red+blue", "green+red"]
    head = models.SingleHead(models.SingleHeadConfig())
    with record(head, "*") as recording:
        head(torch.eye(3).unsqueeze(0), real=torch.tensor([[True, True, False]]))
    assert recording.tokens("weights") == (["[0]", "[1]", "[2]"], ["[0]", "[1]", "[2]"])
    assert recording.real("weights")[1] == [True, True, False]


def test_a_part_that_reads_no_tokens_has_places():
    part = multi_head_attention(8, 2)
    with record(part, "*") as recording:
        part(torch.zeros(2, 3, 8), torch.zeros(2, 4, 8))
    assert recording.tokens("weights", 1) == (["[0]", "[1]", "[2]"], ["[0]", "[1]", "[2]", "[3]"])
    assert recording.edits == []
    with pytest.raises(WrongUsage, match="row must be from 0 to 1; got 5"):
        recording.tokens("weights", 5)


def test_keys_that_were_read_before_the_recording_have_places_not_wrong_names(translator):
    long = torch.tensor([[1, 2, 3, 3, 1, 2]]).expand(2, -1)
    with torch.no_grad():
        memory = translator.encode(long)
        with record(translator, CROSS) as recording:
            translator.encode(SOURCE)
            translator.decode(TARGET, memory)
    assert recording.tokens(CROSS).key == [f"[{place}]" for place in range(6)]


def test_the_model_and_its_settings_are_known(translator):
    model = recorded(translator).model
    assert model["kind"] == "encoder_decoder"
    assert model["config"]["d_model"] == 8
    part = multi_head_attention(8, 2)
    with record(part, "output") as recording:
        part(torch.zeros(1, 2, 8))
    assert recording.model == {"kind": "MultiHeadAttention"}


class Renamed(nn.Module):
    """A block whose cross-attention has a name of its own."""

    def __init__(self, translator):
        super().__init__()
        self.encoder, self.decoder = translator.encoder, translator.decoder
        self.decoder.layers[0].looks_across = self.decoder.layers[0].cross_attention
        del self.decoder.layers[0]._modules["cross_attention"]
        self.decoder.layers[0].__dict__["cross_attention"] = self.decoder.layers[0].looks_across

    def forward(self, source, target):
        return self.decoder(target, mask="causal", memory=self.encoder(source))


def test_cross_attention_is_known_by_what_it_looks_at_not_by_its_name(translator):
    """Also where as many look as are looked at, and for what passes before the attention itself."""
    model = Renamed(copy.deepcopy(translator))
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 3, 1]])
    part = "decoder.layers.0.looks_across"
    for _ in range(2):
        with record(model, f"{part}.*", vocabulary=NAMES) as recording:
            model(source, target)
        for site in ("weights", "scores", "heads", "query"):
            assert recording.tokens(f"{part}.{site}").query == ["<start>", "green", "red"]
        for site in ("weights", "scores", "key", "value"):
            assert recording.tokens(f"{part}.{site}").key == ["red", "blue", "green"]
