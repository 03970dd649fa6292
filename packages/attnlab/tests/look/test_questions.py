"""Questions: every kind of model is asked alike."""

from dataclasses import replace

import pytest
import torch

from attnlab.design import design_for
from attnlab.errors import WrongUsage
from attnlab.experiments.handmade import HandmadeConfig, workshop
from attnlab.experiments.lookup.traces import ask_source
from attnlab.look.questions import Classification, Continuation, Translation, recorded
from attnlab.look.recording import Recording, record
from attnlab.tasks import lookup
from tests.random_models import new_model

WIDTHS = {"vocab_size": 5, "d_model": 6, "num_heads": 2}
NAMES = ("S", "a", "b", "c", "d")


def continuation():
    model = new_model("decoder", **WIDTHS)
    return Continuation(model, torch.tensor([[3, 1, 2, 0]]), 4, NAMES, [0], 3)


def translation():
    model = new_model("encoder-decoder", 1, **WIDTHS)
    return Translation(
        model, torch.tensor([[1, 2, 3]]), ["p", "q", "r"], torch.tensor([[0]]), 4, NAMES
    )


def verdict():
    model = new_model("encoder", 2, num_classes=2, **WIDTHS)
    return Classification(model, torch.tensor([[1, 4]]), ["[odd]", "d"], ["no", "yes"])


def shared_ids():
    """A question in which two words have one id."""
    model = new_model("encoder", 2, num_classes=2, **WIDTHS)
    tokens = torch.tensor([[1, 2, 1]])
    return Classification(model, tokens, ["[foo]", "good", "[bar]"], ["no", "yes"])


def vectors(text="CLS CAC"):
    config = HandmadeConfig()
    return workshop.ask(design_for("copy_first", config.tolerance).model(), config, text)


QUESTIONS = {
    "continuation": continuation,
    "translation": translation,
    "verdict": verdict,
    "vectors": lambda: vectors("unique CAC"),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_one_pass_shows_what_a_trace_shows(kind):
    question = QUESTIONS[kind]()
    arguments, options, words = question.pass_inputs()
    trace = question.trace()
    with record(question.model, "*weights") as recording, torch.no_grad():
        question.model(*arguments, **options)
    for head in trace.attention:
        weights = recording[head.site][0, head.head].tolist()
        assert len(head.rows) == len(weights)
        for row, expected in zip(head.rows, weights, strict=True):
            assert row == pytest.approx(expected[: len(row)], abs=1e-6)
    for stack in words.keys() & {"", "encoder"}:
        assert len(words[stack]) == arguments[0].shape[1]
    assert trace.tokens[: len(words.get("", ()))] == words.get("", ())


@pytest.mark.parametrize("kind", ["continuation", "translation"])
def test_a_question_gone_on_with_after_its_own_choices_has_the_same_answer(kind):
    question = QUESTIONS[kind]()
    whole = question.trace()
    choices = [step.choice for step in whole.steps]
    for done in range(4):
        rest = question.after(choices[:done]).trace()
        assert rest.tokens == whole.tokens
        assert rest.input == whole.input
        for one, other in zip(rest.steps, whole.steps[done:], strict=True):
            assert one.position == other.position
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)


def test_other_choices_lead_elsewhere():
    question = continuation()
    tokens = question.trace().tokens
    other = next(name for name in NAMES[1:] if name != tokens[4])
    assert question.after([other]).trace().tokens[:5] == (*tokens[:4], other)


@pytest.mark.parametrize(
    ("kind", "choices"), [("continuation", "abcd"), ("verdict", ["no"]), ("vectors", ["once"])]
)
def test_there_is_nothing_after_the_last_step(kind, choices):
    with pytest.raises(WrongUsage, match="there is none left"):
        QUESTIONS[kind]().after(list(choices))


def test_a_handmade_head_answers_at_every_position_that_counts():
    trace = vectors("unique CAC").trace()
    assert trace.tokens == ("CLS", "C", "A", "C")
    choices = [(step.place, step.choice) for step in trace.steps]
    assert choices == [(1, "repeated"), (2, "once"), (3, "repeated")]
    copied = vectors("CAB").trace()
    assert [step.choice for step in copied.steps] == ["C", "C", "C"]
    assert [head.site for head in copied.attention] == ["weights"]
    assert all(row[0] > 0.99 for row in copied.attention[0].rows)
    assert "place" in copied.to_mapping()["steps"][0]
    assert continuation().trace().to_mapping()["steps"][0]["place"] is None


@pytest.mark.parametrize("text", ["", "CAD", "unique", "sorting ABC"])
def test_what_a_handmade_head_cannot_read_is_refused(text):
    with pytest.raises(WrongUsage, match="expected 1 to 4 letters from A to C"):
        vectors(text)


def test_a_choice_whose_name_two_tokens_have_is_not_guessed():
    model = new_model("decoder", vocab_size=4)
    question = Continuation(model, torch.tensor([[0]]), 2, ["a", "b", "b", "c"])
    with pytest.raises(WrongUsage, match="calls 2 tokens 'b'"):
        question.after(["b"])
    assert question.after(["c"]).prompt.tolist() == [[0, 3]]


def test_a_recording_has_the_words_of_its_question_also_when_it_is_opened_again(tmp_path):
    for each, site, words in (
        (shared_ids(), "layers.0.attention.weights", ["[foo]", "good", "[bar]"]),
        (vectors("unique CA"), "weights", ["CLS", "C", "A"]),
    ):
        recording = recorded(each)
        for found in (recording, Recording.load(recording.save(tmp_path / site))):
            assert found.tokens(site) == (words, words)
    both = recorded(translation())
    assert both.tokens("decoder.layers.0.cross_attention.weights").key == ["p", "q", "r"]
    own = both.named({"encoder": ["p"]}).tokens("encoder.layers.0.attention.weights")
    assert own.key == ["a", "b", "c"]


def test_a_choice_that_is_not_the_expected_one_is_wrong():
    question = continuation()
    chosen = [step.choice for step in question.trace().steps]
    assert not any(step.is_wrong for step in question.trace().steps)
    other = "a" if chosen[2] != "a" else "b"
    judged = replace(question, expected=[*chosen[:2], other])
    for done in range(3):
        steps = judged.after(chosen[:done]).trace().steps
        assert [step.is_wrong for step in steps] == [False, False, True, False][done:]
        assert steps[2 - done].expected == other
    steps = judged.trace().to_mapping()["steps"]
    assert [step.get("expected") for step in steps] == [*chosen[:2], other, None]
    copied = replace(vectors("CAB"), expected=["C", "A", "C"]).trace()
    assert [step.is_wrong for step in copied.steps] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "right"),
    [("CAB", "CCC"), ("identity CAB", "CAB"), ("unique CAC", ["repeated", "once", "repeated"])],
)
def test_a_handmade_question_knows_its_right_answers(text, right):
    trace = vectors(text).trace()
    assert [step.expected for step in trace.steps] == list(right)
    assert not any(step.is_wrong for step in trace.steps)


@pytest.mark.parametrize(
    ("text", "right"),
    [("NAME RED ITEM CHAIR COLOR", ["RED", "[EOS]"]), ("NAME", None), ("NAME RED RED", None)],
)
def test_a_look_up_has_a_right_answer_only_where_one_fact_stands(text, right):
    model = new_model("encoder-decoder", 3, vocab_size=len(lookup.VOCABULARY))
    assert ask_source(model, lookup.parse(text)).expected == right


def test_words_that_share_an_id_are_named_together_not_one_for_the_other():
    assert shared_ids().vocabulary == {1: "[foo] | [bar]", 2: "good"}
