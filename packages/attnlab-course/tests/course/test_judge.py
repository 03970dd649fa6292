"""Answers beside what was expected, and mistakes told by their names."""

import math

import pytest
import torch

from attnlab_course.cases import make_questions
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text, with_line
from attnlab_course.compare import Other, difference, is_same, read_answer
from attnlab_course.exercise import join_mistakes, single_mistakes
from attnlab_course.feedback import feedback_lines, mistake_hint
from attnlab_course.judge import FOLLOWS, check_here, judge
from attnlab_course.mistakes import with_mistake
from attnlab_course.sandbox.replies import Reply, ask_names, cannot_run
from attnlab_course.sandbox.student_code import MOST_NUMBERS, decode, encode
from attnlab_course.sandbox.worker import Limits
from tests.sampling import sampled

from .classroom import exercises_in, questions_of

RIGHT = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)


def plain_attention(query, key, value, mask=None):
    """As a student may write it."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) / query.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf"))
    highest = scores.amax(-1, keepdim=True)
    grown = (scores - highest.clamp(min=-1e30)).exp()
    weights = grown / grown.sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.bmm(weights, value), weights


def outcome_of(function, questions=None):
    questions = questions or questions_of("attention")
    return judge(questions, ask_names({"attention": function}, questions.encoded))


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (RIGHT.tolist(), "answer: expected a tensor, got [[1, 2], [3, 4]]"),
        (RIGHT.numpy(), "answer: expected a tensor, got a NumPy array"),
        (RIGHT[0], "answer: expected shape (2, 2), got (2,)"),
        (RIGHT.float(), "answer: expected float64, got float32"),
        (RIGHT * math.nan, "answer: expected finite numbers, got [[nan, nan], [nan, nan]] (2×2)"),
        (RIGHT + 1, "expected  [[1., 2.], [3., 4.]] (2×2)\n  got       [[2., 3.], [4., 5.]]"),
        (None, "answer: expected a tensor, got None"),
        (object(), "answer: expected a tensor, got a object"),
        (RIGHT + 1e-9, None),
    ],
)
def test_a_difference_is_told_in_the_order_type_shape_dtype_values(got, words):
    found = difference(RIGHT, read_answer(encode(got)), 1e-6)
    assert found == words or words in found.words


def test_a_difference_says_where_it_is_largest_where_the_first_is_and_how_many_are_right():
    got = RIGHT + torch.tensor([[0.0, 0.5], [0.0, 2.0]])
    *_, most, first = difference(RIGHT, got, 1e-6).words.splitlines()
    assert most == "  they differ by 2 at most, at [1, 1]"
    assert first == "  2 of 4 are right; the first wrong one is at [0, 1]"
    assert "are right" not in difference(RIGHT, RIGHT + 1, 1e-6).words


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("weights @ value", "answer: expected 2 results (output, weights), got one tensor, [[["),
        ("None", "answer: expected 2 results (output, weights), got None"),
        ("weights @ value + 1, weights", "output:\n  expected  "),
        ("weights @ value, weights.sum()", "weights: expected shape (1, 1, 1), got ()"),
    ],
)
def test_results_have_the_names_of_the_statement(returned, words):
    attention = find_exercise("attention")
    source = solution_text(attention.source).replace("weights @ value, weights", returned)
    outcome = check_here(questions_of("attention"), source)
    assert outcome.checks[0].failure.words.startswith(words)
    is_missing = "is `return` missing?" in "\n".join(feedback_lines(attention, outcome))
    assert is_missing is (returned == "None")
    for result in outcome.checks:
        if result.check.name == "gradients" and result.is_wrong:
            assert "output" not in result.failure.words


def test_lists_texts_and_mappings_are_compared_by_place():
    assert difference(["a", 1], ["a", 1], 0) is None
    assert difference(["a", 1], ["a", 2], 0).words.startswith("answer[1]")
    assert difference({"x": True}, {"x": 1}, 0).words == "answer['x']: expected True, got 1"
    assert difference({"x": 1}, {"y": 1}, 0).words == "answer: expected the keys x; got y"
    shorter = difference((1, 2), [1], 0).words
    assert shorter.startswith("answer: expected [1, 2] (2 values), got [1]")
    assert difference([None, 2], [7, 2], 0) is None


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2**70, 1.5, math.inf, "é", [1, [2.0]], {"a": [1], 2: "b"}, RIGHT,
     RIGHT.float(), RIGHT.bool(), RIGHT.long(), RIGHT.numpy(), torch.tensor(1.0)],
)  # fmt: skip
def test_values_come_back_as_they_were_sent(value):
    assert is_same(read_answer(encode(value)), value, 0)
    if not isinstance(value, int):
        assert is_same(decode(encode(value)), value, 0)


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"kind": "array"},
        {"kind": "array", "of": "torch", "dtype": "object", "shape": [1], "data": ""},
        {"kind": "array", "of": "torch", "dtype": "float64", "shape": [9], "data": "AAAA"},
        {"kind": "array", "of": "torch", "dtype": "float64", "shape": [-1, -1], "data": ""},
        {"kind": "array", "of": "torch", "dtype": "float64", "shape": [0] * 99, "data": ""},
        {"kind": "dict", "items": [[1, 2, 3]]},
        {"kind": "figure", "axes": 3},
        {"kind": "dict", "items": [[{"kind": "list", "items": []}, 1]]},
        {"kind": "list", "items": 5},
        {"kind": "int", "text": "9" * 9999},
        [1],
    ],
)
def test_an_answer_of_no_known_form_is_a_wrong_answer_and_no_error(damaged):
    nested = {"kind": "list", "items": [1, {"kind": "dict", "items": [["a", damaged]]}]}
    for each in (damaged, nested):
        assert difference(RIGHT, read_answer(each), 1e-6) is not None
        assert not is_same([RIGHT], read_answer(each), 1e-6)
    assert isinstance(read_answer(damaged), Other)


def test_values_nested_too_deep_are_no_plain_value_and_never_overflow():
    deep = 1
    for _ in range(2000):
        deep = {"kind": "list", "items": [deep]}
    assert read_answer(deep) == Other("damaged answer")
    assert read_answer(deep["items"][0]) == Other("damaged answer")


def test_integers_too_large_for_an_array_are_compared():
    assert difference(2**70, 2**70, 0) is None
    assert "they differ" not in difference(1, 2**70, 0).words
    assert not is_same(2**70, 2**70 + 1, 0)


def test_a_wrong_answer_is_told_its_mistake_where_it_is_a_known_one():
    unscaled = outcome_of(
        lambda q, k, v, mask=None: plain_attention(q * q.size(-1) ** 0.5, k, v, mask)
    )
    assert unscaled.mistake.name == "no scaling"
    moved = outcome_of(lambda q, k, v, mask=None: plain_attention(q + 1.2345, k, v, mask))
    assert not moved.passed
    assert moved.mistake is None


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda q, k, v, mask=None: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda q: q, "TypeError"),
        (lambda q, k, v, mask=None: (q,), "answer: expected"),
    ],
)
def test_what_a_student_raises_is_told_and_ends_nothing(function, words):
    outcome = outcome_of(function)
    assert words in outcome.checks[0].failure.words
    assert outcome.points == 0


def test_the_same_seed_asks_the_same_and_another_asks_something_else():
    attention = find_exercise("attention")
    same, again, other = (make_questions(attention, seed).encoded for seed in (1, 1, 2))
    assert same == again
    assert same != other


def test_what_is_graded_later_is_counted_and_not_shown(tmp_path):
    double = exercises_in(tmp_path)["double"]
    questions = make_questions(double, 0)
    outcome = judge(questions, ask_names({"double": lambda number: 2 * number}, questions.encoded))
    assert outcome.waiting == 1
    assert outcome.passed
    assert not outcome.solved
    held_back = "  1 check not run yet: it is held back for the grading"
    assert feedback_lines(double, outcome)[-1] == held_back
    whole = outcome_of(plain_attention)
    assert whole.solved
    assert whole.points == sum(each.check.points for each in whole.checks)


def test_feedback_shows_the_smallest_case_with_its_inputs_and_the_mistake():
    attention = find_exercise("attention")
    source = with_mistake(attention, attention.mistake("no scaling"))
    outcome = check_here(make_questions(attention, 0), source)
    text = "\n".join(feedback_lines(attention, outcome))
    assert "query = [" in text
    assert "expected  [" in text
    assert "got       [" in text
    assert attention.mistake("no scaling").says in text


def test_a_check_that_says_nothing_yet_accuses_of_nothing():
    """An answer that leaves its inputs alone is not told that it changes them."""
    attention = find_exercise("attention")
    outcome = outcome_of(lambda q, k, v, mask=None: (v, q))
    (inputs,) = [each for each in outcome.checks if each.check.name == "inputs"]
    assert inputs.is_open
    assert not inputs.passed
    lines = feedback_lines(attention, outcome)
    (line,) = [line for line in lines if "leaves its inputs" in line]
    assert line.startswith("  – inputs")
    assert line.endswith("(it counts once a check of results before it passes)")
    assert not any("it counts once" in other for other in lines if other != line)


def test_a_slip_costs_the_points_of_one_check_and_another_beside_it_its_own():
    attention = find_exercise("attention")
    slip = with_mistake(attention, attention.mistake("inverted mask"))
    outcome = check_here(questions_of("attention"), slip)
    kinds = {each.check.name: each.failure and each.failure.kind for each in outcome.checks}
    assert kinds["mask"] == ""
    assert {kinds[name] for name in ("mask per batch", "dead rows", "large scores")} == {FOLLOWS}
    assert attention.points - outcome.points == 2
    text = "\n".join(feedback_lines(attention, outcome))
    first = (
        "attention: 3 of 8 checks pass, 1 fails; 4 more, marked –, fail by the same mistake, which "
    )
    assert text.startswith(f"{first}costs nothing more\n")
    assert text.count("the same mistake") == 1
    assert text.count("\n  – ") == 4

    beside = slip.replace("scores = query @", "query = query.float()\n    scores = query @")
    outcome = check_here(questions_of("attention"), beside.replace("@ value", "@ value.float()"))
    failed = [each.check.name for each in outcome.checks if each.is_wrong]
    assert failed == ["mask", "dtype"]
    assert outcome.unexplained == ("dtype",)
    text = "\n".join(feedback_lines(attention, outcome))
    assert "Something else is wrong, too: see dtype." in text
    assert text.count("query = ") == 2  # a case of the mistake, and one of the dtype
    assert "attention with float64" in text.partition("✗ dtype")[2]


def with_two(name, first, second):
    """Return the solution with two mistakes, of which the second is found after the first."""
    exercise = find_exercise(name)
    return with_mistake(exercise, join_mistakes(exercise.mistake(first), exercise.mistake(second)))


@pytest.mark.parametrize(
    ("name", "first", "second", "counted"),
    [
        ("attention", "no scaling", "inverted mask", ["values", "mask"]),
        ("multi_head", "merged without turning", "mask unused", ["values", "mask"]),
        ("next_token_loss", "not shifted", "padding 0 taken for none", ["values", "padding"]),
        ("attention_dropout", "no scaling", "not made larger", ["values", "shares"]),
        ("layer_norm", "no parameters", "eps outside", ["parameters", "eps"]),
    ],
)
def test_two_mistakes_in_one_answer_are_both_named_and_each_costs_its_own_check(
    name, first, second, counted, monkeypatch
):
    exercise, questions = find_exercise(name), questions_of(name)
    source = with_two(name, first, second)
    outcome = check_here(questions, source)
    assert set(single_mistakes(outcome.mistake.name)) == {first, second}
    assert [each.check.name for each in outcome.checks if each.is_wrong] == counted
    lines = feedback_lines(exercise, outcome)
    (words,) = [line for line in lines if "Two things are wrong." in line]
    for mistake in (first, second):
        assert exercise.mistake(mistake).says in words
    assert mistake_hint(exercise, outcome.mistake.name, source, 0)

    monkeypatch.setattr("attnlab_course.mistakes._programs_of_two", lambda _: {})
    without = check_here(questions, source)
    assert without.mistake is None or len(single_mistakes(without.mistake.name)) == 1


def test_a_mistake_beside_one_that_is_not_known_leaves_the_points_of_what_is_right():
    """Neither the padding nor the gradient depends on the shift or on the divisor."""
    source = solution_text(find_exercise("next_token_loss").source)
    for old, new in {
        "logits[:, :-1]": "logits",
        "tokens[:, 1:]": "tokens",
        "max(int(counts.sum()), 1)": "len(tokens)",
    }.items():
        source = source.replace(old, new)
    questions = questions_of("next_token_loss")
    outcome = check_here(questions, source)
    assert outcome.mistake is None
    assert {each.check.name for each in outcome.checks if each.passed} >= {"padding", "gradients"}
    assert outcome.points == 5
    counted = source.replace("losses[counts].sum()", "losses.sum()")  # with its padding
    failed = [each.check.name for each in check_here(questions, counted).checks if each.is_wrong]
    assert "padding" in failed


@pytest.mark.parametrize(
    ("name", "slip", "part"),
    [
        ("softmax", ("grown / total", "0.7 * grown / total"), "grown = torch.exp(x - top)"),
        ("causal_heads", ("/ math.sqrt(size)", "* 0.7"), "@ split(key).transpose(-2, -1)"),
        ("torch_transformer", ("/ math.sqrt(keys.shape[1])", "* 0.7"), "queries @ keys.T"),
    ],
)
def test_gradients_are_judged_where_the_values_are_wrong(name, slip, part):
    source = solution_text(find_exercise(name).source).replace(*slip)

    def checks(source):
        outcome = check_here(questions_of(name), source)
        return {each.check.name: each.passed for each in outcome.checks}

    assert not checks(source)["values" if name != "torch_transformer" else "no positions"]
    assert checks(source)["gradients"]
    assert part in source
    assert not checks(source.replace(part, f"{part}.detach()"))["gradients"]


@pytest.mark.parametrize(
    "name", ["softmax", "causal_heads", "torch_transformer", "next_token_loss"]
)
@pytest.mark.parametrize("line", ["return {}", "return 2 * {}", "return 0 * {}", "return {}.sum()"])
def test_the_gradient_of_an_answer_that_computes_nothing_gives_no_point(name, line):
    first = {"softmax": "x", "causal_heads": "x", "torch_transformer": "seq"}.get(name, "logits")
    source = with_line(find_exercise(name).source, line.format(first))
    assert check_here(questions_of(name), source).points == 0


def test_of_a_mistake_alone_one_case_is_shown_and_of_one_error_everywhere_too():
    attention = find_exercise("attention")
    slip = with_mistake(attention, attention.mistake("inverted mask"))
    fails = "def attention(*anything):\n    raise ValueError('no')\n"
    for source in (slip, fails):
        outcome = check_here(questions_of("attention"), source)
        assert "\n".join(feedback_lines(attention, outcome)).count("query = ") == 1


NOTHING_COMPUTED = """
def attention(query, key, value, mask=None):
    return query @ key
"""


def test_an_answer_that_ends_in_an_error_everywhere_has_a_named_mistake_and_no_points(monkeypatch):
    questions = questions_of("attention")
    outcome = check_here(questions, NOTHING_COMPUTED)
    assert outcome.mistake.name == "without key.transpose(-2, -1)"
    assert outcome.points == 0
    monkeypatch.setattr("attnlab_course.judge._is_computed", lambda *_: True)
    assert check_here(questions, NOTHING_COMPUTED).points > 5  # without the rule


def scaled_wrongly(change):
    """Return the solution with a slip that has no name, changed in one more place."""
    source = solution_text(find_exercise("attention").source)
    old, new = change
    assert old in source
    return source.replace("/ math.sqrt(query.shape[-1])", "* 0.7").replace(old, new)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (("weights @ value, weights", "(weights @ value), weights"), None),
        (("scores.masked_fill(~mask, -math.inf)", "scores - 4 * ~mask"), "mask"),
        (("weights.masked_fill(~mask, 0.0)", "weights"), "dead rows"),
        (("    weights = torch", "    scores = scores.detach()\n    weights = torch"), "gradients"),
        (("weights @ value, weights", "(weights @ value).float(), weights"), "dtype"),
        (("mask is not None:\n", "mask is not None and mask.ndim == 2:\n"), "mask per batch"),
    ],
)
def test_masks_dtypes_and_gradients_are_judged_even_where_the_values_are_wrong(change, name):
    """All but the first of the changes are planted faults."""
    outcome = check_here(questions_of("attention"), scaled_wrongly(change))
    assert outcome.mistake is None
    failed = {each.check.name for each in outcome.checks if not each.passed}
    properties = {"mask", "mask per batch", "dead rows", "gradients", "dtype", "inputs"}
    assert (failed & properties) >= {name} - {None}
    if name in (None, "dtype", "gradients", "mask per batch"):
        assert failed - {"large scores"} == {"values", name} - {None}


def masked_wrongly(before, after=lambda weights, mask: weights):
    """Return attention that masks its scores in its own way."""

    def attention(query, key, value, mask=None):
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if mask is None:
            weights = scores.softmax(-1)
        else:
            weights = after(before(scores, mask).softmax(-1), mask)
        return weights @ value, weights

    return attention


@pytest.mark.parametrize(
    "how",
    [
        lambda scores, mask: scores + mask * -1e9,
        lambda scores, mask: torch.where(mask, torch.tensor(-1e30), scores),
    ],
)
def test_a_mask_read_the_wrong_way_round_is_named_in_whichever_way_it_is_applied(how):
    """It is named beside another fault, too: here weights are rounded where scores are large."""

    def rounded(weights, mask):
        return weights.round(decimals=1) if (weights == 1).any() else weights

    for attention in (masked_wrongly(how), masked_wrongly(how, rounded)):
        assert outcome_of(attention).mistake.name == "inverted mask"


def test_an_error_about_booleans_is_not_taken_for_one_about_shapes():
    """`1 - mask` fails wherever there is a mask, as does a mask put on the wrong axis."""
    solution = solution_text(find_exercise("cross_attention").source)
    source = solution.replace("~source_mask", "(1 - source_mask)")
    outcome = check_here(questions_of("cross_attention"), source)
    assert "bool tensor" in outcome.checks[2].failure.words
    assert outcome.mistake is None


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(problem="it took too long"), "took too long"),
        (cannot_run({"error": "SyntaxError", "message": "bad", "line": 3}), "bad (line 3)"),
    ],
)
def test_a_reply_of_no_answers_gives_no_points(reply, words):
    outcome = judge(questions_of("attention"), reply)
    assert words in outcome.broken
    assert outcome.points == 0
    assert not outcome.passed


def test_parameters_of_other_names_are_told_in_plain_words():
    source = """
from torch import nn

class FeedForward(nn.Module):
    def __init__(self, *args, **settings):
        super().__init__()
        self.linear1 = nn.Linear(args[0], 3)
    def forward(self, x):
        return x
"""
    exercise = find_exercise("feed_forward")
    outcome = check_here(make_questions(exercise, 0), source)
    text = "\n".join(feedback_lines(exercise, outcome))
    words = text if "asked for" in text else outcome.checks[0].failure.words
    assert "unexpected: linear1.weight" in words
    assert "missing: " in words


@pytest.fixture
def check_softmax(worker):
    """Check a program for softmax in a worker; return the outcome and the lines of feedback."""

    def check(body, **limits):
        source = f"import torch\ndef softmax(x, dim=-1):\n    {body}\n"
        questions = make_questions(find_exercise("softmax"), 0)
        reply = worker.ask(source, "softmax.py", questions.encoded, limits=Limits(**limits))
        outcome = judge(questions, reply)
        return outcome, "\n".join(feedback_lines(questions.exercise, outcome))

    return check


def test_what_a_failing_answer_prints_is_shown_below_its_case(check_softmax):
    _, text = check_softmax("print('seen', tuple(x.shape)); return x")
    assert "it printed:" in text
    assert "seen (" in text


def test_a_name_that_is_nearly_right_is_told():
    questions = questions_of("attention")
    outcome = judge(questions, ask_names({"atttention": plain_attention}, questions.encoded))
    assert outcome.checks[0].failure.words == "there is no attention; did you mean atttention?"
    assert not outcome.is_blank


TOO_LARGE = {
    "one array": f"torch.zeros({MOST_NUMBERS + 1})",
    "a list": "[0] * 300_000",
    "arrays together": f"[torch.zeros({MOST_NUMBERS})] * 3",
    "arrays that memory does not hold": f"[torch.zeros({MOST_NUMBERS})] * 40",
}


@pytest.mark.parametrize("what", sampled(TOO_LARGE, 2))
def test_an_answer_that_is_too_large_says_how_large_it_may_be_and_what_to_do(what, check_softmax):
    _, text = check_softmax(f"return {TOO_LARGE[what]}", memory_bytes=2**27)
    assert "the answer is too large: an array may have 1,000,000 numbers" in text
    assert "all answers together 12 MB" in text
    assert "return what is asked for and no more" in text
    assert "MemoryError" not in text


def test_a_program_that_takes_too_much_memory_is_told_how_much_it_may_take(check_softmax):
    outcome, _ = check_softmax("return [0] * 10**11")
    words = outcome.checks[0].failure.words
    assert words.startswith("MemoryError; it may take 2 GB in all; make its arrays and lists")


SLIPS = {
    "only reshaped": (
        "multi_head",
        "vectors.view(batch, length, self.heads, size).transpose(1, 2)",
        "vectors.reshape(batch, self.heads, length, size)",
        "(weights @ value).transpose(1, 2).reshape(batch, length, width)",
        "(weights @ value).view(x.shape)",
    ),
    "True means hidden": (
        "causal_mask",
        "mask.tril(diagonal=keys - queries)",
        "torch.ones(queries, keys).triu(1) == 1",
        "masked_fill(~mask",
        "masked_fill(mask",
    ),
    "matrices turned": ("causal_heads", "x @ matrix.T", "x @ matrix", "@ output.T", "@ output"),
    "mean of squares": (
        "layer_norm",
        "x.var(dim=-1, keepdim=True, correction=0)",
        "x.pow(2).mean(-1, keepdim=True) - mean.pow(2)",
    ),
    "mean of means": (
        "next_token_loss",
        "losses[counts].sum() / max(int(counts.sum()), 1)",
        "torch.stack([r[c].sum() / max(int(c.sum()), 1) for r, c in zip(losses, counts)]).mean()",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named_in_other_words_than_the_courses_and_in_two_places(name):
    exercise, *pieces = SLIPS[name]
    source = solution_text(find_exercise(exercise).source)
    for old, new in zip(pieces[::2], pieces[1::2], strict=True):
        assert old in source
        source = source.replace(old, new)
    outcome = check_here(make_questions(find_exercise(exercise), 1, graded=True), source)
    assert outcome.mistake is not None
    assert outcome.mistake.name == name
