"""Adapters: a transformer written elsewhere is held to the checks, and its mistakes are caught."""

import ast
from functools import cache
from pathlib import Path

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab_course.adapters import SHIM, adapted_exercises, adapter_template
from attnlab_course.catalog import exercise_names, find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.judge import judge
from attnlab_course.mistakes import with_mistake
from attnlab_course.sandbox.replies import ask_names
from attnlab_course.sandbox.runner import load_names
from tests.sampling import sampled

from .classroom import questions_of

HONEST = Path(__file__).with_name("other_course.py").read_text()
ADAPTED = [
    "softmax",
    "attention",
    "token_embedding",
    "attention_dropout",
    "training_step",
    "next_token_loss",
    "learning_rate",
    "rms_norm",
    "swiglu",
    "rotary_positions",
    "causal_heads",
]


def connected(names):
    """Return names with those that the shim makes, as the worker has them."""
    return {**names, **load_names(SHIM, "shim.py")["adapt"](names)}


def outcome_of(name, source, seed=0):
    """Check a file of adapters for an exercise."""
    exercise = find_exercise(name)
    names = connected(load_names(exercise.with_given(source), "adapters.py"))
    return outcome_with(name, names, seed)


def outcome_with(name, names, seed=0):
    questions = questions_of(name, seed)
    return judge(questions, ask_names(names, questions.encoded), skip_missing=True)


def test_a_file_is_read_for_its_names_and_not_run():
    assert adapted_exercises(f"raise SystemExit\n{HONEST}") == ADAPTED
    assert adapted_exercises("from mine import run_silu") == ["swiglu"]
    assert adapted_exercises("if True:\n    learning_rate, x = 1, 2") == ["learning_rate"]
    assert adapted_exercises("def helper(softmax): ...") == []


def test_a_file_that_is_no_python_is_refused():
    with pytest.raises(WrongUsage, match="expected a file of Python"):
        adapted_exercises("def softmax(:")


def test_of_one_name_the_exercise_is_meant_that_the_arguments_fit():
    assert adapted_exercises("def attention(q, k, v, mask=None): ...") == ["attention"]
    both = ["attention", "attention_dropout"]
    assert adapted_exercises("def attention(q, k, v, mask=None, dropout=0.0): ...") == both
    assert adapted_exercises("from mine import attention") == ["attention"]


@pytest.mark.parametrize("seed", sampled(range(10), 1))
@pytest.mark.parametrize("name", ADAPTED)
def test_right_functions_behind_adapters_pass(name, seed):
    outcome = outcome_of(name, HONEST, seed)
    failed = [result for result in outcome.checks if not result.passed]
    assert (outcome.broken, failed) == (None, [])
    assert outcome.passed
    assert len(outcome.checks) >= 2


def test_what_a_contract_leaves_open_is_not_asked():
    asked = {check.check.name for check in outcome_of("attention", HONEST).checks}
    assert "dead rows" not in asked
    assert "mask" in asked
    asked = {check.check.name for check in outcome_of("next_token_loss", HONEST).checks}
    assert asked.isdisjoint({"padding", "padding 0", "only padding", "floor", "no chance"})
    asked = {check.check.name for check in outcome_of("swiglu", HONEST).checks}
    assert "parameters" not in asked


def test_adapters_that_are_not_written_yet_are_blank():
    source = "def run_softmax(in_features, dim):\n    raise NotImplementedError"
    outcome = outcome_of("softmax", source)
    assert outcome.is_blank
    assert not outcome.passed


def test_an_answer_of_which_nothing_can_be_asked_does_not_pass():
    class CannotTell(Exception):
        pass

    def attention(*given, **settings):
        raise CannotTell

    outcome = outcome_with("attention", {"attention": attention})
    assert not outcome.passed
    assert outcome.broken == "this adapter gives no answer to any of its checks"


def test_a_missing_part_is_left_out_but_a_missing_answer_is_wrong():
    right = load_names(solution_text(find_exercise("attention").source))["attention"]
    part = {"attention": lambda *given, **settings: (right(*given, **settings)[0], None)}
    none = {"attention": lambda *given, **settings: None}
    assert outcome_with("attention", part).passed
    outcome = outcome_with("attention", none)
    assert not outcome.passed
    questions = questions_of("attention")
    assert not judge(questions, ask_names(part, questions.encoded)).passed


def test_a_mistake_is_named_without_the_part_that_is_missing():
    source = HONEST.replace(" / math.sqrt(q.shape[-1])", "")
    assert outcome_of("attention", source).mistake.name == "no scaling"
    assert not outcome_of("attention_dropout", source).passed
    assert not outcome_of("causal_heads", source).passed


def filled(module, state):
    module.to(next(iter(state.values())).dtype).load_state_dict(state)
    return module


def as_halves(rotate):
    """Put rotation of halves behind an adapter of neighbors, in place where it is in place."""

    def run(d_k, theta, max_seq_len, x, positions):
        order = torch.arange(d_k).view(-1, 2).T.flatten()
        given = x[..., order]
        turned = rotate(given, int(positions[0]), theta)
        x.copy_(given[..., order.argsort()])
        return turned[..., order.argsort()]

    return run


def as_rows(loss):
    """Put the loss of next tokens behind an adapter of single ones."""

    def run(inputs, targets):
        logits = torch.cat([inputs, inputs[:1]])[None]
        return loss(logits, torch.cat([targets[:1], targets])[None])

    return run


def as_moments(rate):
    def run(it, highest, lowest, warmup, cycle):
        return rate(
            it - 1 if 0 < it <= warmup else it, highest, warmup, cycle + 1, lowest / highest
        )

    return run


BEHIND = {
    "softmax": lambda own: {"run_softmax": own["softmax"]},
    "attention": lambda own: {
        "run_scaled_dot_product_attention": lambda *given: own["attention"](*given)[0]
    },
    "rms_norm": lambda own: {"run_rmsnorm": lambda d, eps, w, x: own["normalize_rms"](x, w, eps)},
    "rotary_positions": lambda own: {"run_rope": as_halves(own["rotate"])},
    "swiglu": lambda own: {
        "run_silu": own["swish"],
        "run_swiglu": lambda d, f, gate, down, up, x: filled(
            own["SwiGLU"](d, f), {"gate.weight": gate, "down.weight": down, "up.weight": up}
        )(x),
    },
    "token_embedding": lambda own: {
        "run_embedding": lambda size, d, table, ids: (
            filled(own["TokenEmbedding"](size, d), {"embedding.weight": table})(ids) / d**0.5
        )
    },
    "learning_rate": lambda own: {"run_get_lr_cosine_schedule": as_moments(own["learning_rate"])},
    "next_token_loss": lambda own: {"run_cross_entropy": as_rows(own["next_token_loss"])},
    "causal_heads": lambda own: {
        "run_multihead_self_attention": lambda d, heads, q, k, v, o, x: own["causal_heads"](
            x, q, k, v, o, heads
        )
    },
}
"""The course's own solutions, right or wrong, behind the adapters of the other course."""

OUTSIDE = {
    "softmax": {"NaN where nothing is left"},
    "attention": {"NaN in dead rows"},
    "rotary_positions": {"narrow angles"},  # in half precision
    "token_embedding": {"scaled in place", "padding row"},  # each call has a new module there
    "learning_rate": {
        "climbs a step too long",  # where both meet at the peak there
        "divides by zero",  # a descent without steps
    },
    "next_token_loss": {
        "padding counted",
        "padding in the divisor",
        "padding 0 taken for none",
        "division by zero",
    },
}
"""Mistakes that the adapters' contracts leave no room for: they cannot be made behind them."""


@cache
def behind(name, mistake=None):
    exercise = find_exercise(name)
    source = with_mistake(exercise, mistake) if mistake else solution_text(exercise.source)
    return connected(BEHIND[name](load_names(source)))


@pytest.mark.parametrize("seed", sampled(range(3), 1))
@pytest.mark.parametrize("name", BEHIND)
def test_every_mistake_that_can_be_made_behind_an_adapter_is_caught(name, seed):
    assert outcome_with(name, behind(name), seed).passed
    mistakes = find_exercise(name).parts.mistakes
    passed = [each for each in mistakes if outcome_with(name, behind(name, each), seed).passed]
    assert {mistake.name for mistake in passed} == OUTSIDE.get(name, set())


CLIP = "        for g in gradients:\n            g.mul_(max_l2_norm / (norm + 1e-6))\n"


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (CLIP, "        pass\n", "no clipping"),
        ("    if norm > max_l2_norm:", "    if True:", None),  # caught, and has no name
        (CLIP, "        for g in gradients:\n            g.clamp_(-max_l2_norm, max_l2_norm)\n",
         "values clipped"),
        (CLIP, "        for g in gradients:\n            g.mul_(min(1, max_l2_norm / g.norm()))\n",
         "clipped one by one"),
    ],
)  # fmt: skip
def test_mistakes_of_clipping_are_named(old, new, name):
    assert HONEST.count(old) == 1
    outcome = outcome_of("training_step", HONEST.replace(old, new))
    assert not outcome.passed
    assert (outcome.mistake and outcome.mistake.name) == name


def test_names_of_the_course_need_no_adapter_and_what_is_given_is_given():
    exercise = find_exercise("generate")
    source = ast.parse(solution_text(exercise.source))
    model = next(node for node in source.body if getattr(node, "name", "") == "TableModel")
    source.body.remove(model)
    own = ast.unparse(source)
    assert "TableModel" not in own
    assert adapted_exercises(own) == ["generate"]
    assert outcome_of("generate", own).passed
    assert find_exercise("softmax").with_given(own) == own


def test_the_template_has_a_stub_for_each_exercise_with_code():
    template = adapter_template()
    code = [name for name in exercise_names() if find_exercise(name).parts.kind == "code"]
    assert adapted_exercises(template) == code
    stubs = [node for node in ast.parse(template).body if hasattr(node, "name")]
    assert len({node.name for node in stubs}) == len(stubs)
    assert all(ast.get_docstring(node) for node in stubs)
    assert "#   query: (" in template
    assert all(outcome_of(name, template).is_blank for name in ("attention", "training_step"))


def test_the_worker_runs_adapters_in_a_process_of_their_own(worker):
    for name in ("attention", "training_step"):
        questions = questions_of(name)
        source = questions.exercise.with_given(HONEST)
        reply = worker.ask(source, "adapters.py", questions.encoded, shim=SHIM)
        assert judge(questions, reply, skip_missing=True).passed
