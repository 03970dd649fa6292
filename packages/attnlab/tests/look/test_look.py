import pytest
import torch

from attnlab.look import record, trace
from attnlab.look.trace import trace_translation
from attnlab.models import Decoder, DecoderConfig, EncoderDecoder, EncoderDecoderConfig, generate
from attnlab.seeds import isolated
from attnlab.tasks import SequenceTask


def model(seed=0):
    with isolated(seed):
        return Decoder(
            DecoderConfig(vocab_size=4, max_length=9, d_model=6, num_heads=2, num_layers=2)
        ).eval()


TOKENS = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0]])


def test_a_trace_tells_what_generation_did_and_where_each_head_looked():
    decoder, task = model(), SequenceTask()
    found = trace(decoder, TOKENS, 3, task.vocabulary, forbidden=[0], num_input=3)
    generation = generate(decoder, TOKENS, 3, forbidden=[0])
    for each, row, probabilities in zip(
        found, generation.tokens, generation.probabilities, strict=True
    ):
        assert each.tokens == tuple(task.tokens(row))
        assert each.input == each.tokens[:3]
        assert [step.position for step in each.steps] == [3, 4, 5]
        for number, step in enumerate(each.steps):
            assert step.candidates == ("a", "b", "c")
            assert step.probabilities == tuple(probabilities[number, 1:].tolist())
            assert step.choice == each.tokens[4 + number]
        assert [(head.site, head.head) for head in each.attention] == [
            (f"layers.{layer}.attention.weights", head) for layer in range(2) for head in range(2)
        ]
        for head in each.attention:
            assert [len(row) for row in head.rows] == [1, 2, 3, 4, 5, 6]
            assert all(sum(row) == pytest.approx(1, abs=1e-6) for row in head.rows)


def test_a_traces_weights_are_those_of_the_whole_row():
    decoder = model()
    found = trace(decoder, TOKENS, 3, SequenceTask().vocabulary)[1]
    row = torch.tensor([[("SEP", "a", "b", "c").index(token) for token in found.tokens]])
    with record(decoder, "layers.0.attention.weights") as recording:
        decoder(row)
    weights = recording["layers.0.attention.weights"][0, 1]
    for query, keys in enumerate(found.attention[1].rows):
        torch.testing.assert_close(
            torch.tensor(keys), weights[query, : query + 1], atol=1e-6, rtol=0
        )


def test_a_trace_of_a_translation_has_cross_attention_over_the_words_of_the_source():
    with isolated(0):
        config = EncoderDecoderConfig(
            vocab_size=4, max_length=9, d_model=6, num_heads=2, encoder_positions="none"
        )
        translator = EncoderDecoder(config).eval()
    sources, starts, words = TOKENS, torch.tensor([[0], [0]]), ["p", "q", "r", "s"]
    found = trace_translation(translator, sources, starts, 3, "SABC", source_words=[words, words])
    generation = generate(translator.conditioned(sources), starts, 3)
    for each, row, probabilities in zip(
        found, generation.tokens, generation.probabilities, strict=True
    ):
        assert each.input == tuple(words)
        assert each.tokens == tuple("SABC"[token] for token in row)
        assert [step.position for step in each.steps] == [0, 1, 2]
        assert [step.probabilities for step in each.steps] == [
            tuple(row) for row in probabilities.tolist()
        ]
        own, cross = each.attention[:2], each.attention[2:]
        assert [(head.site, head.head) for head in cross] == [
            ("decoder.layers.0.cross_attention.weights", head) for head in range(2)
        ]
        assert all(
            head.key_tokens is None and [len(row) for row in head.rows] == [1, 2, 3] for head in own
        )
        assert all(
            head.key_tokens == tuple(words) and [len(row) for row in head.rows] == [4, 4, 4]
            for head in cross
        )
        assert all(
            sum(row) == pytest.approx(1, abs=1e-6) for head in each.attention for row in head.rows
        )
        mapping = each.to_mapping()
        assert mapping["attention"][0]["key_tokens"] is None
        assert mapping["note"] == ""
        assert list(mapping["attention"][2]["key_tokens"]) == words


def test_a_traced_translation_ends_where_it_stopped():
    with isolated(0):
        translator = EncoderDecoder(
            EncoderDecoderConfig(vocab_size=4, max_length=9, d_model=6, num_heads=2)
        ).eval()
    with torch.no_grad():
        translator.head.bias[3] += 100.0  # it says C, which stops it, and nothing else
    options = {"source_words": [["p"] * 4] * 2, "stop": 3, "candidates": [1, 3]}
    for each in trace_translation(
        translator, TOKENS, torch.tensor([[0], [0]]), 5, "SABC", **options
    ):
        assert each.tokens == ("S", "C")
        assert [step.choice for step in each.steps] == ["C"]
        assert each.steps[0].candidates == ("A", "C")
        assert all(len(head.rows) == 1 for head in each.attention)
