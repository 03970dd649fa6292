"""Texts put to pretrained models: every kind is asked, traced and edited as a run is."""

import json

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import attnlab
from attnlab.errors import WrongUsage
from attnlab.look import pretrained_questions
from attnlab.look.pretrained_questions import TextAnswer, TextChoice, TextContinuation, TextReading
from tests.pretrained.speaking import made, opened

TEXT = "John and Mary went to the"
KINDS = {
    "gpt2": TextContinuation,
    "llama": TextContinuation,
    "gpt2-bare": TextReading,
    "bert": TextReading,
    "bert-masked": TextChoice,
    "bert-judge": TextChoice,
    "bert-tags": TextChoice,
    "t5": TextAnswer,
}


def asked(kind, text=None, **options):
    usual = "john and [MASK] went" if kind == "bert-masked" else TEXT
    return attnlab.ask(opened(kind), text or usual, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_what_kind_of_question_it_is_follows_from_what_the_model_puts_out(kind):
    assert type(asked(kind)) is KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_holds_the_weights_that_a_recording_holds(kind):
    question = asked(kind, **({"steps": 3} if kind in ("gpt2", "t5") else {}))
    found = question.trace()
    recording = attnlab.recorded(question)
    assert found.attention
    for head in found.attention:
        weights = recording[head.site][0, head.head]
        sides = recording.tokens(head.site)
        assert len(sides.query) == len(head.rows) == len(weights)
        assert list(head.key_tokens or found.tokens)[: len(sides.key)] == sides.key
        for row, right in zip(head.rows, weights.tolist(), strict=True):
            assert list(row) == pytest.approx(right[: len(row)], abs=1e-6)
            assert sum(row) == pytest.approx(1.0, abs=1e-5)
    json.dumps(found.to_mapping(), allow_nan=False)


@pytest.mark.parametrize("kind", ["gpt2", "bert-masked", "bert-judge", "t5"])
def test_a_fork_silences_a_head_and_its_certificate_holds(kind):
    site = "decoder.layers.1.cross_attention" if kind == "t5" else "layers.1.attention"
    found = attnlab.fork(asked(kind), attnlab.ZeroHead(site=site, head=1))
    assert not found.certificate.failures
    assert found.certificate.edits[0].changed > 0


def check_continues_as_the_model_itself_does(question, foreign):
    prompt, steps = question.prompt, question.num_tokens
    right = foreign.generate(prompt, max_new_tokens=steps, do_sample=False, pad_token_id=0)
    names = question.vocabulary
    assert [step.choice for step in question.trace().steps] == [
        names[token] for token in right[0, prompt.shape[1] :]
    ]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_continuation_is_the_one_that_transformers_generates(kind):
    check_continues_as_the_model_itself_does(asked(kind, steps=6), opened(kind).foreign)


def test_the_check_of_continuations_finds_a_choice_of_the_unlikeliest(monkeypatch):
    logits = pretrained_questions._logits
    monkeypatch.setattr(
        pretrained_questions, "_logits", lambda model, inputs: -logits(model, inputs)
    )
    with pytest.raises(AssertionError):
        check_continues_as_the_model_itself_does(asked("gpt2", steps=6), opened("gpt2").foreign)


def test_an_answer_is_the_one_that_transformers_generates():
    question = asked("t5", steps=5)
    inputs = {name: each for name, each in question.inputs.items() if name != "decoder_input_ids"}
    right = opened("t5").foreign.generate(**inputs, max_new_tokens=5, do_sample=False)[0, 1:]
    assert [step.choice for step in question.trace().steps] == [
        question.vocabulary[token] for token in right
    ]


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_a_question_goes_on_after_choices_as_it_would_have(kind):
    question = asked(kind, steps=4)
    whole = question.trace()
    rest = question.after([step.choice for step in whole.steps[:2]]).trace()
    assert [step.choice for step in rest.steps] == [step.choice for step in whole.steps[2:]]
    assert rest.tokens == whole.tokens
    assert rest.input == whole.input
    with pytest.raises(WrongUsage, match="4 steps"):
        question.after(["John"] * 4)


def test_a_trace_keeps_the_likeliest_candidates_and_the_right_one():
    step = asked("gpt2", target="drink").trace().steps[0]
    assert len(step.candidates) <= pretrained_questions.CANDIDATES + 1
    assert step.expected in step.candidates
    likeliest = list(step.probabilities[: pretrained_questions.CANDIDATES])
    assert likeliest == sorted(likeliest, reverse=True)


def test_a_target_says_what_is_right_in_the_tokens_of_the_text():
    assert asked("gpt2", target="store.").trace().steps[0].expected == "␣store"
    assert asked("bert-judge", target="good").trace().steps[0].expected == "good"
    assert asked("bert-masked", target="Mary").trace().steps[0].expected == "mary"


def test_a_mask_is_filled_where_it_stands_and_tags_are_given_to_words():
    masks = asked("bert-masked", "[MASK] and [MASK]").trace().steps
    assert [step.place for step in masks] == [1, 3]
    assert "Linear" not in repr(asked("bert-masked", "john and mary"))
    assert type(asked("bert-masked", "john and mary")) is TextReading
    trace = asked("bert-tags").trace()
    assert [trace.tokens[step.place] for step in trace.steps] == TEXT.lower().split()


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("gpt2", {"steps": -1}, "steps must be"),
        ("gpt2", {"target": " "}, "target is empty"),
        ("gpt2", {"steps": 60}, "reads at most 40"),
        ("bert", {"target": "good"}, "answers with vectors"),
        ("bert-judge", {"steps": 2}, "no steps to count"),
        ("bert-judge", {"target": "fine"}, "bad, good, odd"),
        ("bert-masked", {"target": "john mary"}, r"one \[MASK\] for each word"),
    ],
)
def test_what_cannot_be_asked_gets_a_sentence(kind, options, told):
    with pytest.raises(WrongUsage, match=told):
        asked(kind, **options)


def test_attention_that_would_fill_the_memory_is_left_out_of_a_trace(monkeypatch):
    monkeypatch.setattr(pretrained_questions, "MAX_WEIGHTS", 10)
    trace = asked("gpt2").trace()
    assert trace.attention == ()
    assert trace.steps


@pytest.mark.parametrize(
    ("kind", "text"),
    [("gpt2", "John and Mary"), ("bert-masked", "the [MASK] sat"), ("bert-judge", "a warm film")],
)
def test_a_question_shows_its_text_its_answer_and_how_sure_the_model_is(kind, text):
    foreign, tokenizer = made(kind)
    question = attnlab.ask(attnlab.load(foreign, tokenizer=tokenizer), text)
    (step,) = question.trace().steps
    lines = dict(line.split(maxsplit=1) for line in repr(question).splitlines()[1:])
    assert lines["text"] == text
    assert lines["answer"] == step.choice
    assert lines["probability"] == f"{step.share:.3f}"
    assert f">{step.choice}</td>" in question._repr_html_()
