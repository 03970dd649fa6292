"""Proofs of learned models: bounds of every part, certificates, counter-examples, resumption."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.population.blocks import MemoryBlocks
from attnlab.experiments.proofs import certify_run
from attnlab.models import Decoder, DecoderConfig, generate
from attnlab.models.storage import describe_model
from attnlab.programs import compile_program, library, prove_program, prove_task
from attnlab.programs.check import Bounded, Rounding, bounded_logits, check, read_answers
from attnlab.programs.proof_inputs import TaskInputs
from attnlab.tasks.sequences import SequenceTask

from .test_certificates import change, checked, forged

SORT = SequenceTask()
KINDS = [
    {"norm_place": "pre", "activation": "gelu"},
    {"norm_place": "post", "norm": "rms", "bias": False},
    {"norm_place": "none", "final_norm": False, "tie_output": False},
    {"projections": "gated", "rank": 3, "bias": False},
    {"projections": "strict", "rank": 2, "temperature": 0.5, "positions": "none"},
    {"norm": "rms", "tie_output": False, "num_layers": 2},
]


def decoder(seed=0, dtype=torch.float32, **kind):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        own = {"vocab_size": 4, "max_length": 7, "d_model": 6, "num_heads": 2, "d_ff": 8}
        model = Decoder(DecoderConfig(**{**own, "positions": "learned", **kind}))
        for weight in model.parameters():  # biases and gains too
            torch.nn.init.normal_(weight, std=0.7)
    return model.to(dtype).eval()


def bounds(model, rows):
    weights = {key: value.double().numpy() for key, value in model.state_dict().items()}
    return bounded_logits(weights, describe_model(model), rows.numpy())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_formulas_and_their_bounds_are_those_of_the_model(kind):
    rows = SORT.rows(SORT.all_prompts())
    for seed in range(5):
        model = decoder(seed, **kind)
        exact, bound = bounds(model, rows)
        with torch.no_grad():
            found = model(rows).double().numpy()
            in_64 = model.double()(rows).numpy()
        assert (np.abs(found - exact) <= bound).all()
        assert np.abs(in_64 - exact).max() < 1e-12
        _, less = bounds(model, rows)  # planted: float64's roundoff does not cover float32
        assert (np.abs(found - exact) > less).any()


@pytest.mark.parametrize("name", ["norm", "softmax", "product", "add", "feed_forward"])
def test_a_part_without_its_bound_is_noticed(name, monkeypatch):
    """Planted: a part whose bound is nothing, in a model that amplifies what comes in."""
    made = getattr(Rounding, name)

    def forgetful(self, *given):
        found = made(self, *given)
        return found._replace(error=np.zeros_like(found.error))

    rows = SORT.rows(SORT.all_prompts())
    model = decoder(activation="gelu", num_layers=2)
    _, before = bounds(model, rows)
    monkeypatch.setattr(Rounding, name, forgetful)
    _, after = bounds(model, rows)
    assert after.max() < before.max()


def bounded(random, shape, size, error):
    return Bounded(random.normal(0, size, shape), error * random.random(shape))


def moved(random, given):
    """Some exact numbers within a bound, half of them at its edge."""
    by = random.uniform(-1, 1, given.error.shape)
    by = np.where(random.random(by.shape) < 0.5, np.sign(by), by)
    return Bounded(given.value + by * given.error, np.zeros_like(given.error))


ONE, TWO = (2, 1, 3, 4), (2, 1, 4, 5)
FORMULAS = {
    "product": (lambda f, x, y: f.product(x, y), ONE, TWO),
    "add": (lambda f, x, y: f.add(x, y), ONE, ONE),
    "scores": (lambda f, x, y: f.scores(x, y), ONE, ONE),
    "softmax": (lambda f, x: f.softmax(x), ONE),
    "linear": (lambda f, x: f.linear("x", x), (2, 3, 4)),
    "norm": (lambda f, x: f.norm("x", x), (2, 3, 4)),
    "feed_forward": (lambda f, x: f.feed_forward("f", x), (2, 3, 4)),
    "heads_of": (lambda f, x: f.heads_of("p", x), (2, 3, 4)),
    "attention": (lambda f, x: f.attention("a", x), (2, 3, 4)),
}


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("name", FORMULAS)
def test_each_formula_bounds_what_its_input_may_change(name, kind):
    """Whatever lies within the bounds that come in comes out within the bound, near its edge."""
    formula, *shapes = FORMULAS[name]
    activation = "gelu" if kind == "layer" else "relu"
    config = {"norm": kind, "activation": activation, "temperature": 0.5, "projections": "gated"}
    config |= {"num_heads": 2, "d_model": 4}
    random, closest = np.random.default_rng(0), 0.0
    for _ in range(100):
        weights = {"x.weight": (4,), "x.bias": (4,)}
        if name == "linear":
            weights["x.weight"] = (4, 4)
        for part in ("f.inner", "f.outer", "a.output"):
            weights |= {f"{part}.weight": (4, 4), f"{part}.bias": (4,)}
        for part in ("p", "a.query", "a.key", "a.value"):
            weights |= {f"{part}.a": (2, 4, 3), f"{part}.b": (2, 3, 2), f"{part}.base": (2, 4, 2)}
        made = {key: random.normal(size=shape) for key, shape in weights.items()}
        formulas = Rounding(made, config, 2.0**-53)
        error = 10 ** random.uniform(-4, -0.5)
        given = [bounded(random, shape, 2.0, error) for shape in shapes]
        value, bound = formula(formulas, *given)
        inside, _ = formula(formulas, *(moved(random, each) for each in given))
        assert (np.abs(inside - value) <= bound + 1e-14).all()  # of the moves
        closest = max(closest, float((np.abs(inside - value) / bound).max()))
    assert closest > (0.9 if name in ("product", "add", "linear", "heads_of") else 0.2)


def test_a_lead_is_sure_only_beyond_both_bounds():
    logits, bound = np.array([[3.0, 1.0, 0.0]]), np.full((1, 3), 0.75)
    answers, sure = read_answers(logits, bound, None, 0)
    assert (answers.tolist(), sure.tolist()) == ([0], [0.5])


def test_rounding_itself_is_bounded_where_nothing_comes_in():
    """In float32, on numbers without error; a sum of n is off by up to n roundoffs."""
    unit, exact = 2.0**-24, Bounded(np.ones((1, 2, 3, 4)), np.zeros((1, 2, 3, 4)))
    weights = {"x.weight": np.ones(4), "x.bias": np.ones(4)}
    formulas = Rounding(weights, {"norm": "layer", "activation": "gelu"}, unit)
    spread = Bounded(exact.value + np.arange(4), exact.error)
    square = Bounded(np.ones((4, 4)), np.zeros((4, 4)))
    assert formulas.product(exact, square).error.min() > 16 * unit
    assert formulas.scores(exact, exact).error.min() > 12 * unit
    assert formulas.softmax(spread).error.max() > 3 * unit
    assert formulas.norm("x", spread).error.min() > 10 * unit
    far = Bounded(spread.value + 1000, spread.error)  # a variance of what is far from 0
    assert formulas.norm("x", far).error.max() > 25_000 * unit
    assert formulas.add(exact, exact).error.min() >= 2 * unit
    formulas = Rounding({"x.weight": np.ones((1, 4)), "x.bias": np.zeros(1)}, {}, unit)
    assert formulas.linear("x", exact).error.min() > 4 * unit


NN = torch.nn.functional
IN_BOTH = {
    "linear": (lambda x, w: NN.linear(x, w, w[:, 0]), lambda f, x: f.linear("x", x)),
    "softmax": (lambda x, _: NN.softmax(x, -1), lambda f, x: f.softmax(x)),
    "layer": (
        lambda x, w: NN.layer_norm(x, x.shape[-1:], *w[:2], 1e-5),
        lambda f, x: f.norm("x", x),
    ),
    "rms": (lambda x, w: NN.rms_norm(x, x.shape[-1:], w[0], 1e-6), lambda f, x: f.norm("x", x)),
    "gelu": (lambda x, _: NN.gelu(x), lambda f, x: f.feed_forward("x", x)),
}


def in_formulas(name, x, other):
    weights = {"x.weight": other, "x.bias": other[:, 0]}
    if name in ("layer", "rms"):
        weights = {"x.weight": other[0], "x.bias": other[1] * (name == "layer")}
    eye = np.eye(x.shape[-1])
    weights |= {"x.inner.weight": eye, "x.outer.weight": eye}
    formulas = Rounding(weights, {"norm": name, "activation": "gelu"}, 2.0**-24 + 2.0**-53)
    return IN_BOTH[name][1](formulas, Bounded(x, np.zeros_like(x)))


@pytest.mark.parametrize("name", IN_BOTH)
def test_what_torch_computes_lies_within_the_bound(name):
    """On numbers of all sizes: a tiny share, too, whose key is far below the highest score."""
    random = np.random.default_rng(0)
    for _ in range(200):
        size = 10 ** random.uniform(-3, 1.5, 3)
        width = random.integers(2, 12)
        x = random.normal(random.normal(0, size[0]), size[1], (1, 3, width)).astype(np.float32)
        other = random.normal(0, size[2], (4, width)).astype(np.float32)
        value, bound = in_formulas(name, x.astype(np.float64), other.astype(np.float64))
        found = IN_BOTH[name][0](*map(torch.from_numpy, (x, other)))
        found = found.double().numpy().reshape(value.shape)
        assert (np.abs(found - value) <= bound).all()


def test_trained_sorters_are_proved_with_certificates(sorters, tmp_path):
    out = tmp_path / "proofs"
    assert main(["prove", str(sorters.folder), "--out", str(out), "--float64"]) == 0
    assert sorted(path.name for path in out.iterdir()) == list("012")
    for folder in (out / "0", out / "2"):
        status, words = checked(folder)
        assert (status, "27 inputs of 3 tokens: holds" in words) == (0, True), words
    change_any(out / "0", -1)
    assert "DIFFERS: failures, outputs, weights, margin, sure;" in checked(out / "0")[1]
    forged(out / "0")
    assert "DIFFERS: failures, outputs, margin, sure;" in checked(out / "0")[1]


def test_the_reader_is_as_sure_as_the_proof(sorters, tmp_path):
    """In float32, where rounding is seen; the reader's sums are shorter, and it a little surer."""
    proofs = attnlab.prove(sorters, out=tmp_path).proofs
    sure = {name: proof for name, proof in proofs.items() if proof.is_sure}
    for name, proof in sure.items():
        found, rounding = check(tmp_path / name)[1], proof.margin - proof.sure
        assert -1e-4 < found - proof.sure < 1e-4 + rounding / 2
    assert max(proof.margin - proof.sure for proof in sure.values()) > 0.01


def change_any(folder, by):
    """Multiply one matrix of a decoder."""
    change(folder, by, "layers.0.feed_forward.outer.weight")


def test_what_is_proved_is_what_is_generated(sorters):
    """Judged on whole rows, letter by letter; generation must come to the same."""
    for name in ("0", "2"):
        model = sorters.model(name)
        prompts = torch.cat((SORT.all_prompts(), torch.zeros(27, 1, dtype=torch.int64)), 1)
        found = generate(model, prompts, 3, forbidden=[0]).tokens[:, -3:]
        assert prove_task(model, SORT).holds == torch.equal(found, SORT.answer(SORT.all_prompts()))


def test_one_that_fails_gives_its_first_counterexample(sorters, capsys):
    name = "embedding.positions.weight"
    positions = sorters.weights[name].clone()
    positions[2] = 0  # of the third seed
    block = replace(sorters.blocks[0], weights={**sorters.weights, name: positions})
    broken = replace(sorters, blocks=MemoryBlocks(block), folder=None)
    found = attnlab.prove(broken, dtype=torch.float64)
    assert (list(found.failed), len(found.proved), found.holds) == (["2"], 2, False)
    assert str(found).startswith("sorting: 2 of 3 models proved on all 27 inputs; 1 fail")
    proof = found.failed["2"]
    wrong = proof.counterexample
    rows = SORT.rows(SORT.parse("".join(wrong.tokens)).unsqueeze(0))[:, :-1]
    logits = broken.model(2)(rows)[0, 3 + wrong.position, 1:]
    assert "abc"[int(logits.argmax())] == wrong.got
    assert sorted(wrong.tokens)[wrong.position] == wrong.expected != wrong.got
    assert 0 < proof.failures <= 27


def test_prove_ends_in_one_verdict_with_its_exit_status(sorters, monkeypatch, capsys):
    """Proved; right, but not by more than rounding can change; wrong."""
    command = ["prove", str(sorters.folder / "1")]
    assert main([*command, "--float64"]) == 0
    printed = capsys.readouterr().out
    assert "sort, 3 letters: proved on all 27 inputs of 3 tokens" in printed
    assert attnlab.prove(sorters.folder / "1", dtype=torch.float64).is_sure
    assert re.search(r"\n  margin        left after rounding: [\d.]+ \(float64\)\n", printed)
    with monkeypatch.context() as patch:
        patch.setattr("attnlab.programs.check._ROUNDOFF", {"float32": 1e-4, "float64": 1e-4})
        assert main(command) == 1
        printed = capsys.readouterr()
        assert "right on all 27 inputs of 3 tokens, but not certified: rounding" in printed.out
        assert "margin        -" not in printed.out
        assert "after rounding: -" not in printed.out
        again = f"attnlab prove {sorters.folder / '1'} --float64"
        assert printed.out.rstrip().endswith(f"rounding is less in float64, so type: {again}")
        assert main(["prove", str(sorters.folder)]) == 1
        printed = capsys.readouterr()
        assert "3 right, but not certified" in printed.out
        assert printed.out.rstrip().endswith(f"attnlab prove {sorters.folder} --float64")
    answer = SequenceTask.answer
    monkeypatch.setattr(SequenceTask, "answer", lambda *given: answer(*given).flip(-1))
    assert main([*command, "--float64"]) == 1
    printed = capsys.readouterr().out
    assert "of 27 inputs fail" in printed
    assert "first failure" in printed
    assert "certified" not in printed
    assert main(["prove", str(sorters.folder), "--float64"]) == 1


@pytest.mark.slow
def test_a_larger_sorter_is_proved_on_all_its_inputs(tmp_path):
    """Five of eight letters: 32,768 inputs, with a certificate that NumPy checks again."""
    size = {"letters": 8, "length": 5, "d_model": 32, "num_heads": 4, "num_layers": 2, "d_ff": 64}
    training = {"recipe": "fast", "steps": 3_000, "learning_rate": 3e-3, "weight_decay": 0.01}
    report = attnlab.run("sorting", projections="dense", **size, **training, out=tmp_path / "run")
    proof = attnlab.prove(report, dtype=torch.float64)
    assert (proof.inputs, proof.is_sure) == (32_768, True)
    certify_run(report, proof, tmp_path / "proof")
    assert "32,768 inputs of 5 tokens: holds" in checked(tmp_path / "proof")[1]


@pytest.mark.parametrize("number", [40, pytest.param(1_500, marks=pytest.mark.slow)])
def test_no_mutated_sorter_gets_a_false_certificate(sorters, number):
    random = np.random.default_rng(0)
    sure = 0
    for count in range(number):
        model = sorters.model(count % 3).double()
        weights = list(model.parameters())
        chosen = weights[random.integers(len(weights))].data.view(-1)
        chosen[random.integers(len(chosen))] += random.normal() * 10.0 ** random.integers(-3, 2)
        proof = prove_task(model, SORT)
        letters = model(SORT.rows(SORT.all_prompts())[:, :-1])[:, 3:, 1:].argmax(-1) + 1
        is_right = torch.equal(letters, SORT.answer(SORT.all_prompts()))
        assert is_right or not proof.is_sure
        sure += proof.is_sure
    assert number // 10 < sure < number


@pytest.mark.parametrize("rule", [("add", 2, 2), ("induction", 3, 3), ("reverse", 2, 3)])
def test_each_task_is_asked_on_its_whole_domain(rule):
    task = SequenceTask(*rule)
    model = decoder(vocab_size=1 + task.letters, max_length=task.row_length)
    questions = TaskInputs(model, task, 1_000)
    prompts = np.concatenate([ids for ids, _ in questions.inputs_in_parts()])
    assert np.array_equal(prompts, task.all_prompts().numpy())
    assert prove_task(model, task).inputs == task.num_prompts


def test_a_domain_that_is_too_large_is_searched_and_not_proved(sorters):
    proof = prove_task(sorters.model(0), SORT, max_inputs=26)
    assert (proof.inputs, proof.searched, proof.is_sure) == (0, 500, False)
    assert "drawn at random; no proof" in str(proof)


@pytest.mark.parametrize(
    ("subject", "task", "words"),
    [
        (decoder(), None, "say what is right"),
        (compile_program(library.hist("ab"), 2).model, None, "does not know what its ids mean"),
        (decoder(), SequenceTask("sort", 4, 3), "has 5 tokens"),
        (decoder(positions="rotary"), SORT, "this model has positions rotary"),
        (decoder(), library.hist("abc"), "compared with a compiled program"),
        (compile_program(library.hist("ab"), 2), SORT, "is proved of a decoder"),
        (compile_program(library.hist("ab"), 2), None, "the Program"),
    ],
)
def test_what_cannot_be_proved_is_told_why(subject, task, words):
    with pytest.raises(WrongUsage, match=words):
        attnlab.prove(subject, task)


def interrupted(model, program, state, after):
    def stop(done, total):
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prove_program(model, program, progress=stop, state=state)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_proof_goes_on_where_it_was_interrupted(tmp_path, monkeypatch, is_right):
    monkeypatch.setattr("attnlab.programs.proof._SECONDS_BETWEEN_SAVES", 0.0)
    program, state = library.sort("ab"), tmp_path / "proof.json"
    model = compile_program(program, 7)
    if not is_right:
        with torch.no_grad():
            model.model.embedding.positions.weight[3] += 1
    whole = prove_program(model, program)
    if not is_right:  # none shorter fails
        assert prove_program(model, program, longest=len(whole.counterexample.tokens) - 1).holds
    interrupted(model, program, state, after=30)
    kept = state.read_text()
    assert json.loads(kept)["tally"]["parts"] == 4  # lengths 1 to 4
    with pytest.raises(CouldNotRun, match="belongs to another proof"):
        prove_program(compile_program(program, 6), program, state=state)
    state.write_text(kept.replace('"sure"', '"certain"'))
    with pytest.raises(CouldNotRun, match="damaged"):
        prove_program(model, program, state=state)
    state.write_text(kept)
    asked = []
    again = prove_program(model, program, progress=lambda done, _: asked.append(done), state=state)
    assert again == whole
    assert again.holds == is_right
    assert asked[0] == 30
    assert not state.exists()


@pytest.mark.parametrize("bits", [["--float64"], []], ids=["sure", "not_sure"])
def test_the_proof_of_a_learned_model_goes_on_too(sorters, bits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("attnlab.programs.proof._SECONDS_BETWEEN_SAVES", 0.0)
    if not bits:
        monkeypatch.setattr("attnlab.programs.proof.ModelProof.is_sure", False)
    out = tmp_path / "proof"
    command = ["prove", str(sorters.folder / "1"), "--out", str(out), *bits]
    with monkeypatch.context() as patch:
        patch.setattr("attnlab.programs.proof._SavedTally.remove", stopped)
        assert main(command) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert sorted(each.name for each in out.iterdir()) == ["proof.json", "unfinished"]
    assert main([*command, "--resume"]) == int(not bits)
    assert ("proved on all 27 inputs" in capsys.readouterr().out) == bool(bits)
    assert out.exists() == bool(bits)
    assert main([*command, "--resume"]) == 3
    assert main([*command[:2], "--resume"]) == 2


def stopped(kept):
    raise KeyboardInterrupt
