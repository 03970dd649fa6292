import pytest
import torch

from attnlab.look import trace
from attnlab.look.trace import trace_translation
from attnlab.models import generate
from attnlab.tasks import SequenceTask
from tests.random_models import new_model

SETTINGS = {"vocab_size": 4, "d_model": 6, "num_heads": 2}


def make_translator(**settings):
    return new_model("encoder-decoder", num_layers=1, **SETTINGS, **settings)


TOKENS = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0]])


def test_a_trace_tells_what_generation_did_and_where_each_head_looked():
    decoder = new_model("decoder", **SETTINGS)
    task = SequenceTask()
    found = trace(decoder, TOKENS, 3, task.vocabulary, forbidden=[0], num_input=3)
    generation = generate(decoder, TOKENS, 3, forbidden=[0])
    for place, each in enumerate(found):
        probabilities = generation.probabilities[place]
        assert each.tokens == tuple(task.tokens(generation.tokens[place]))
        assert each.input == each.tokens[:3]
        assert [step.position for step in each.steps] == [3, 4, 5]
        for number, step in enumerate(each.steps):
            assert step.candidates == ("a", "b", "c")
            assert step.probabilities == tuple(probabilities[number, 1:].tolist())
            assert step.choice == each.tokens[4 + number]
        assert [(head.site, head.head) for head in each.attention] == [
            (f"layers.{layer}.attention.weights", head) for layer in range(2) for head in range(2)
        ]


def test_a_trace_of_a_translation_has_cross_attention_over_the_words_of_the_source():
    translator = make_translator(encoder_positions="none")
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
        cross = each.attention[2:]
        assert [(head.site, head.head) for head in cross] == [
            ("decoder.layers.0.cross_attention.weights", head) for head in range(2)
        ]
        for head in each.attention:
            assert head.key_tokens == (tuple(words) if head in cross else None)
            lengths = [4, 4, 4] if head in cross else [1, 2, 3]
            assert [len(row) for row in head.rows] == lengths
            assert all(sum(row) == pytest.approx(1, abs=1e-6) for row in head.rows)
        mapping = each.to_mapping()
        assert mapping["attention"][0]["key_tokens"] is None
        assert mapping["note"] == ""
        assert list(mapping["attention"][2]["key_tokens"]) == words


def test_a_traced_translation_ends_where_it_stopped():
    translator = make_translator()
    with torch.no_grad():
        translator.head.bias[3] += 100.0  # it says C, which stops it, and nothing else
    options = {"source_words": [["p"] * 4] * 2, "stop": 3, "candidates": [1, 3]}
    starts = torch.tensor([[0], [0]])
    for each in trace_translation(translator, TOKENS, starts, 5, "SABC", **options):
        assert each.tokens == ("S", "C")
        assert [step.choice for step in each.steps] == ["C"]
        assert each.steps[0].candidates == ("A", "C")
        assert all(len(head.rows) == 1 for head in each.attention)
