"""Certificates: what they promise is checked again without torch, and mutated models get none."""

import ast
import contextlib
import copy
import functools
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tokenize
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import attnlab
from attnlab.core.store import read_tensors, write_tensors
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.proofs import prove_population
from attnlab.models import Encoder
from attnlab.models.storage import describe_model
from attnlab.programs import (
    Program,
    check_program,
    compile_program,
    language,
    library,
    open_compiled,
    prove_program,
)
from attnlab.programs.check import (
    Bounded,
    Rounding,
    bounded_logits,
    hashes_of,
    right_answers,
    written,
)
from attnlab.programs.proof import write_certificate
from attnlab.programs.proof_inputs import task_mapping
from attnlab.tasks.sequences import SequenceTask
from tests.sampling import sampled

from .oracles import ORACLES

SMALL = {
    "hist": (library.hist("ab"), ORACLES["hist"]),
    "sort": (library.sort("ab"), ORACLES["sort"]),
    "dyck_1": (library.dyck_1(), ORACLES["dyck_1"]),
    "fraction": (library.fraction_so_far("ab", "a"), ORACLES["fraction_so_far"]),
    "induction": (library.induction("ab"), ORACLES["induction"]),
    "reverse": (library.reverse("ab"), ORACLES["reverse"]),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved model with its certificate, which no test changes."""
    program = library.sort("abc")
    compiled = compile_program(program, 5)
    path = compiled.save(tmp_path_factory.mktemp("saved") / "sort")
    write_certificate(prove_program(compiled, program), path)
    return path


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "sort"))


code_of = functools.cache(lambda text: compile(text, "check.py", "exec"))


def checked(folder):
    """Run the folder's own check.py here; return its exit status and what it prints."""
    file = folder / "check.py"
    code, names = code_of(file.read_text()), {"__name__": "__main__", "__file__": str(file)}
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        mock.patch.object(sys, "argv", ["check.py", str(folder)]),
        pytest.raises(SystemExit) as ended,
        np.errstate(),
    ):
        exec(code, names)
    status = ended.value.code  # or what is printed as an error
    if isinstance(status, str):
        return 1, status
    return int(status), printed.getvalue()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_certificate_is_checked_again_with_numpy_alone(saved, threads):
    """Where torch and attnlab cannot be imported."""
    code = (
        "import sys, runpy; sys.modules['torch'] = sys.modules['attnlab'] = None; "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    found = subprocess.run(
        [sys.executable, "-c", code, saved / "check.py"],
        env={**os.environ, **limits},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "363 inputs of up to 5 tokens: holds" in found.stdout


def test_the_reader_is_short_and_shares_nothing_with_the_proof():
    words = Path(check_program.__file__).read_text()
    assert len(lines_of_code(words)) <= 128
    lines = words.splitlines()
    assert max(map(len, lines)) <= 100
    found = [line.split()[1] for line in lines if line.startswith(("import ", "from "))]
    assert found == ["hashlib", "json", "sys", "pathlib", "typing", "numpy"]


def lines_of_code(words):
    """The numbers of all lines but docstrings, comments and blanks."""
    code, docs = set(), set()
    for each in ast.walk(ast.parse(words)):
        if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            each
        ):
            docs |= set(range(each.body[0].lineno, each.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(words).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            code |= set(range(token.start[0], token.end[0] + 1))
    return code - docs


@pytest.mark.parametrize(
    ("name", "bits"), [("sort", 32), ("induction", 64), ("reverse", 32), ("fraction", 32)]
)
def test_the_reader_is_as_sure_as_the_proof(name, bits, tmp_path):
    """Two who bound the same rounding, each in its own way, agree on what is left."""
    program, _ = SMALL[name]
    compiled = compile_program(program, 6, dtype=getattr(torch, f"float{bits}"))
    proof, folder = prove_program(compiled, program, longest=4), compiled.save(tmp_path / name)
    write_certificate(proof, folder)
    status, words = checked(folder)
    assert (status, ": holds" in words) == (0, True), words
    sure, rounding = float(words.rpartition("sure by ")[2]), proof.margin - proof.sure
    assert sure == pytest.approx(proof.sure, rel=0.006, abs=1.5 * rounding)


def test_a_proof_that_forgets_rounding_does_not_pass_the_reader(tmp_path, monkeypatch):
    """Planted: the proof takes float32 for exact, and certifies what may be wrong elsewhere."""
    share = library.fraction_so_far("ab", "a").output
    program = Program(share == Fraction(1, 3), "ab", "a third")
    compiled = compile_program(program, 9, dtype=torch.float32)
    assert not prove_program(compiled, program, longest=5).is_sure
    monkeypatch.setattr("attnlab.programs.proof.check.bounded_logits", of_one_size)
    proof, folder = prove_program(compiled, program, longest=5), compiled.save(tmp_path / "third")
    write_certificate(proof, folder)
    status, words = checked(folder)
    assert (status, "DIFFERS: margin: rounding may exceed it" in words) == (1, True), words


def of_one_size(weights, model, ids):
    value, _ = bounded_logits(weights, model, ids)
    return value, np.full_like(value, 1e-4)


def test_a_model_is_read_back(folder):
    compiled = open_compiled(folder)
    assert compiled("bcab") == ["a", "b", "b", "c"]
    again = prove_program(compiled, library.sort("abc"))
    assert again.outputs == json.loads((folder / "certificate.json").read_text())["outputs"]
    assert again.is_sure


def change(folder, by, name="head.weight"):
    weights = read_tensors(folder / "model.safetensors")
    weights[name] = weights[name] * by
    write_tensors(folder / "model.safetensors", weights)


@pytest.mark.parametrize(
    ("form", "by", "is_forged", "named"),
    [
        ("symbols", 1.5, False, "DIFFERS: weights, margin, sure;"),
        ("symbols", -1, True, "DIFFERS: outputs"),
        ("symbols", math.nan, True, "DIFFERS"),
        ("one value", math.nan, True, "DIFFERS: margin"),  # one answer is possible, NaN is none
    ],
)
def test_a_certificate_for_other_weights_is_refuted(
    certified, form, by, is_forged, named, tmp_path
):
    folder = Path(shutil.copytree(certified[form], tmp_path / "copy"))
    change(folder, by)
    if is_forged:
        forged(folder)
    status, words = checked(folder)
    assert (status, named in words) == (1, True), words


def forged(folder):
    """Write the hashes that a folder has now into its certificate."""
    file = folder / "certificate.json"
    file.write_text(written({**json.loads(file.read_text()), **hashes_of(folder)}))


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("program.json", '"tolerance": 0.001', '"tolerance": 5', "meaning"),
        ("config.json", '"causal": false', '"causal": true', "config"),
        ("certificate.json", '"inputs": 363', '"inputs": 9999', "inputs"),
        ("certificate.json", '"proved_to": 5', '"proved_to": 4', "outputs"),
        ("certificate.json", '"margin": 0.9', '"margin": 1.9', "margin"),
    ],
)
def test_what_was_changed_is_named(folder, file, old, new, named):
    text = (folder / file).read_text()
    assert text.count(old) == 1
    (folder / file).write_text(text.replace(old, new))
    status, words = checked(folder)
    assert (status, named in words.partition("DIFFERS")[2]) == (1, True), words


@pytest.fixture(scope="module")
def certified(sorters, tmp_path_factory):
    """A certificate of each form: of symbols, numbers, one value, and of a trained decoder."""
    out, made = tmp_path_factory.mktemp("certified"), {}
    programs = {
        "symbols": library.sort("abc"),
        "numbers": library.fraction_so_far("ab", "a"),
        "one value": Program(language.tokens, "a", "same"),
    }
    for name, program in programs.items():
        compiled = compile_program(program, 4, dtype=torch.float32)
        made[name] = compiled.save(out / name)
        write_certificate(prove_program(compiled, program, longest=3), made[name])
    prove_population(sorters, dtype=torch.float64, out=out / "decoders")
    return {**made, "decoder": out / "decoders" / "0"}


def changes_of(value):
    """Other values of a field, the nearest of each kind among them."""
    if isinstance(value, bool):
        return [not value, int(value), None]
    if isinstance(value, int):
        return [value + 1, value - 1, -5, 0, 10**6, 10**30, float(value), str(value), None]
    if isinstance(value, float):
        return [value * (1 + 1e-12), value + 99, -value, float("nan"), float("inf"), str(value), 1]
    if isinstance(value, str):
        return [value + " ", value.upper() or "a", value[:-1] or "b", "", None, 3]
    return [0, "a, position 0: expected b; got a", False, [], {}]


def is_refused(folder, told):
    """Does the folder's own check.py say no to this certificate?"""
    text = told if isinstance(told, str) else json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    (folder / "certificate.json").write_text(text)
    return bool(checked(folder)[0])


@pytest.mark.parametrize("form", sampled(["one value", "decoder", "numbers", "symbols"], 2))
def test_a_certificate_with_any_field_changed_does_not_hold(certified, form):
    folder = certified[form]
    kept = (folder / "certificate.json").read_text()
    told = json.loads(kept)
    assert not is_refused(folder, kept)
    assert {"name", "shortest", "proved_to", "margin", "sure", "digest"} <= set(told)
    for field, value in told.items():
        others = [each for each in changes_of(value) if repr(each) != repr(value)]
        assert is_refused(folder, {**told, field: others[0]}), field  # by its digest
        for other in others if field != "digest" else ():
            near = field in ("margin", "sure") and isinstance(other, float)
            if not (near and abs(other - value) < 1e-9):
                assert is_refused(folder, written({**told, field: other})), (field, other)
        assert is_refused(folder, {key: told[key] for key in told if key != field})
        double = kept.replace("{", f'{{\n  "{field}": 7,', 1)
        assert is_refused(folder, double), field
    for more in ("searched", "longest", "note"):
        assert is_refused(folder, written({**told, more: 10**6})), more
    for text in ("", "[]", "3", "{}", kept[:-2], "null"):
        assert is_refused(folder, text), text
    assert not is_refused(folder, kept)


@pytest.mark.parametrize("form", ["symbols", "decoder"])
def test_a_folder_with_any_field_of_its_files_changed_does_not_hold(certified, form):
    folder = certified[form]
    kept = (folder / "certificate.json").read_text()
    for name in ("config.json", "program.json", "task.json"):
        if not (folder / name).exists():
            continue
        text = (folder / name).read_text()
        told = json.loads(text)
        for field in told:
            for other in (None, "other", [told[field]]):
                (folder / name).write_text(json.dumps({**told, field: other}))
                assert is_refused(folder, kept), (name, field)
        (folder / name).write_text(text)
    assert not is_refused(folder, kept)


def test_a_certificate_of_another_rule_does_not_hold(certified, tmp_path):
    """The model sorts; that it reverses is written everywhere, with the right hashes."""
    folder = tmp_path / "reverse"
    shutil.copytree(certified["decoder"], folder)
    task = (folder / "task.json").read_text().replace('"sort"', '"reverse"')
    (folder / "task.json").write_text(task)
    told = json.loads((folder / "certificate.json").read_text())
    told |= {"name": told["name"].replace("sort", "reverse"), **hashes_of(folder)}
    assert is_refused(folder, written(told))


@pytest.mark.parametrize("rule", ["sort", "reverse", "copy", "add", "induction"])
def test_the_reader_of_decoders_knows_every_rule(rule):
    task = SequenceTask(rule, letters=3, length=3)
    prompts = task.all_prompts()
    found = right_answers(task_mapping(task), prompts.numpy())
    assert np.array_equal(found, task.answer(prompts).numpy())


def test_right_by_less_than_rounding_is_not_sure(tmp_path):
    program = library.sort("abc")
    compiled = compile_program(program, 3)
    with torch.no_grad():
        compiled.model.head.weight *= 4e-15
        compiled.model.head.bias.fill_(1.0)
    proof = prove_program(compiled, program)
    assert proof.holds
    assert not proof.is_sure
    assert "rounding may exceed" in str(proof)
    with pytest.raises(CouldNotRun, match="a certificate needs a proof"):
        write_certificate(proof, compiled.save(tmp_path / "sort"))


def test_a_causal_model_and_its_fractions_are_checked_and_read_back(tmp_path):
    program = library.fraction_so_far("ab", "a")
    compiled = compile_program(program, 4, causal=True, dtype=torch.float32)
    folder = compiled.save(tmp_path / "share")
    write_certificate(prove_program(compiled, program), folder)
    assert checked(folder)[0] == 0
    again = open_compiled(folder)
    assert again.values == compiled.values
    assert again("bab") == [0, Fraction(1, 2), Fraction(1, 3)]


def test_a_share_of_nearly_all_may_still_move():
    """The rest of the weight is lost in the rounding of 1 - share, and is there all the same."""
    formulas = Rounding({}, {"causal": False}, 2.0**-24)
    shares = formulas.softmax(Bounded(np.array([[0.0, -40.0]]), np.array([[20.0, 20.0]])))
    assert shares.error[0, 0] > 0.5


@pytest.mark.parametrize(
    ("value", "error", "left"), [(0.5, 0.25, 0.0), (0.5, 0.75, 0.25), (1.25, 0.5, 0.5), (3, 1, 1)]
)
def test_a_hidden_unit_below_zero_passes_no_error_on(value, error, left):
    """It reads x - 1: of that it passes on what may lie above 0, in the proof."""
    weights = {
        "x.inner.weight": np.ones((1, 1)), "x.inner.bias": np.array([-1.0]),
        "x.outer.weight": np.ones((1, 1)), "x.outer.bias": np.zeros(1),
    }  # fmt: skip
    x = Bounded(np.full((1, 1, 1), value), np.full((1, 1, 1), error))
    found = Rounding(weights, {"activation": "relu"}, 2.0**-53).feed_forward("x", x)
    assert found.value.item() == max(value - 1, 0)
    assert found.error.item() == pytest.approx(left, abs=1e-14)


def test_a_tie_and_a_value_that_the_model_cannot_give_are_wrong():
    program = library.reverse("ab")
    compiled = compile_program(program, 2)
    with attnlab.edit(compiled.model, attnlab.ZeroHead(layer=1, head=0)):
        proof = prove_program(compiled, program)
    assert "a, position 0: expected a; got a, but not clearly" in str(proof)
    # It has no logit; the last one must not stand for it.
    compiled = compile_program(Program(language.tokens, "ab", "same"), 2)
    other = Program(language.tokens.map({"a": "a", "b": "x"}.get), "ab", "other")
    assert str(prove_program(compiled, other).counterexample) == "b, position 0: expected x; got b"


def test_an_edited_model_is_not_sure():
    """What its weights say is not what it computes."""
    program = library.fraction_so_far("ab", "a")
    compiled = compile_program(program, 3)
    with attnlab.edit(compiled.model, attnlab.edits.ScaleHead(factor=1.0, layer=0, head=0)):
        assert prove_program(compiled, program).is_sure
    with attnlab.edit(compiled.model, attnlab.edits.ScaleHead(factor=1.00001, layer=0, head=0)):
        proof = prove_program(compiled, program)
    assert (proof.holds, proof.is_sure) == (True, False)


ODD = {
    "name": (7, None),
    "alphabet": (["z", "a", "b", "c"], ["a", "a", "b"], ["a", ["b"], "c"], None),
    "values": (["a", "b"], ["a", "b", "b"], ["a", "b", {"fraction": [1, 0]}], [0, 1, 2], None),
    "numbers": ([0.0, 1.0, 2.0],),
    "longest": (50, 0, "5", True, 4.5, None),
    "tolerance": (5, 0.5, 0.0, -0.001, "0.001", float("nan"), None),
    "has_bos": (False, 1, "yes", None),
    "heads": ({"0.7": "x"}, {"9.0": "x"}, {"0.0": 3}, ["0.0"], None),
    "ways": ({"0.7": "x"}, {"0.0": 3}, ["0.0"], None),
    "error": (float("nan"), -1.0, "small", None),
    "stream": ([["bos", 0, 99]], [["bos", 2, 1]], [["bos", 0.0, 1]], [[0, 0, 1]], [["bos"]], None),
}


def test_a_program_whose_file_was_changed_is_not_opened(folder):
    told = json.loads((folder / "program.json").read_text())
    assert {"format", "config", "digest", *ODD} == set(told)
    for name, values in ODD.items():
        without = {key: value for key, value in told.items() if key != name}
        for other in (without, *({**told, name: value} for value in values)):
            (folder / "program.json").write_text(json.dumps(other))
            with pytest.raises(CouldNotRun, match=r"program\.json is (damaged|not clean JSON)"):
                open_compiled(folder)


def test_formulas_of_another_model_are_refused():
    compiled = compile_program(library.hist("ab"), 3)
    other = Encoder(replace(compiled.model.config, activation="swiglu"))
    with pytest.raises(WrongUsage, match="this model has activation swiglu"):
        prove_program(replace(compiled, model=other.double()), library.hist("ab"))
    compiled.model.half()
    with pytest.raises(WrongUsage, match="float16"):
        prove_program(compiled, library.hist("ab"))


def test_long_inputs_are_searched_and_called_so():
    program = library.hist("abc")
    compiled = compile_program(program, 9)
    proof = prove_program(compiled, program, max_inputs=1_000)
    assert (proof.proved_to, proof.inputs, proof.searched) == (5, 363, 2_000)
    assert "2,000 of 6 to 9 tokens, at random" in str(proof)
    assert proof.outputs == prove_program(compiled, program, longest=5).outputs
    assert not prove_program(compiled, program, max_inputs=1).is_sure
    with torch.no_grad():
        compiled.model.head.bias += 1  # a wide tolerance proves no other value
    assert not prove_program(replace(compiled, tolerance=9.0), program, longest=3).holds


def test_what_cannot_be_opened_is_told_in_a_sentence(folder, tmp_path):
    with pytest.raises(WrongUsage, match="from 1 to 5 tokens"):
        open_compiled(folder).ids(["aaaaaa"])
    with pytest.raises(WrongUsage, match="takes inputs of one length"):
        open_compiled(folder).ids("ab")
    with pytest.raises(WrongUsage, match="one or more of the tokens a, b, c; got 'x'"):
        open_compiled(folder)("xa")
    other = compile_program(library.reverse("abc"), 4).save(tmp_path / "other")
    (other / "program.json").write_bytes((folder / "program.json").read_bytes())
    with pytest.raises(CouldNotRun, match=r"it belongs to another config\.json"):
        open_compiled(other)
    (folder / "program.json").write_text('{"format": "attnlab program 1"}')
    with pytest.raises(CouldNotRun, match="damaged"):
        open_compiled(folder)


def shuffled(compiled, seed):
    """The same function with stream, channels and hidden units in another order."""
    random = torch.Generator().manual_seed(seed)
    found = copy.deepcopy(compiled)
    model = found.model
    config = model.config
    stream = torch.randperm(config.d_model, generator=random)
    with torch.no_grad():
        for weight in (model.embedding.tokens.weight, model.embedding.positions.weight):
            weight.copy_(weight[:, stream])
        model.head.weight.copy_(model.head.weight[:, stream])
        for layer in model.layers:
            attention = layer.attention
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            parts = [
                part[torch.randperm(config.head_width, generator=random)]
                for part in torch.arange(config.d_model).split(config.head_width)
            ]
            order = torch.cat(parts)
            for part in (attention.query, attention.key, attention.value):
                part.weight.copy_(part.weight[order][:, stream])
                part.bias.copy_(part.bias[order])
            attention.output.weight.copy_(attention.output.weight[stream][:, order])
            attention.output.bias.copy_(attention.output.bias[stream])
            hidden = torch.randperm(config.inner_width, generator=random)
            inner.weight.copy_(inner.weight[hidden][:, stream])
            inner.bias.copy_(inner.bias[hidden])
            outer.weight.copy_(outer.weight[stream][:, hidden])
            outer.bias.copy_(outer.bias[stream])
    return found


@pytest.mark.parametrize("name", SMALL)
def test_the_bound_on_rounding_covers_other_orders_of_summation(name, tmp_path):
    """That of the proof, and that of the reader."""
    program, _ = SMALL[name]
    compiled = compile_program(program, 5, dtype=torch.float32)
    weights = {key: value.double().numpy() for key, value in compiled.model.state_dict().items()}
    rows = torch.tensor(list(product(range(2), repeat=5)))
    ids = compiled.with_bos(rows)
    first = int(compiled.has_bos)
    described = describe_model(compiled.model)
    exact, bound = bounded_logits(weights, described, ids.numpy())
    exact, bound, apart = exact[:, first:], bound[:, first:], 0.0
    model = check_program.Model(compiled.save(tmp_path / name))
    again, other_bound = model.logits(ids.numpy())[:, :, first:]
    assert np.abs(again - exact).max() < 1e-9
    for seed in range(5):
        found = shuffled(compiled, seed).logits(ids).double().numpy()
        assert (np.abs(found - exact) <= bound).all()
        assert (np.abs(found - exact) <= other_bound).all()
        apart = max(apart, np.abs(found - exact).max())
    in_64 = compiled.model.double()(ids)[:, first:].detach().numpy()
    assert np.abs(in_64 - exact).max() < 1e-9
    if name in ("fraction", "hist"):  # planted: float64's roundoff does not cover float32
        _, less = bounded_logits(weights, {**described, "dtype": "float64"}, ids.numpy())
        assert less.max() < apart
        model.unit = 2.0**-53
        assert model.logits(ids.numpy())[1].max() < apart


def mutated(compiled, random):
    """Change one number of one matrix."""
    found = copy.deepcopy(compiled)
    parameters = list(found.model.parameters())
    chosen = parameters[random.integers(len(parameters))].data.view(-1)
    place = random.integers(len(chosen))
    kind = random.integers(4)
    if kind == 0:
        chosen[place] = 0
    elif kind == 1:
        chosen[place] *= random.choice([-1, 0.5, 0.9, 0.99, 1.01, 2])
    else:
        chosen[place] += random.normal() * 10.0 ** random.integers(-6, 2)
    return found


@pytest.mark.parametrize("number", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_mutated_model_gets_a_false_certificate(number):
    """Whatever is certified is right, by an oracle, in another order of summation too."""
    random = np.random.default_rng(0)
    names = list(SMALL)
    certified = refuted = 0
    models = {name: compile_program(SMALL[name][0], 3) for name in names}
    for count in range(number):
        program, oracle = SMALL[names[count % len(names)]]
        wrong = mutated(models[names[count % len(names)]], random)
        if not prove_program(wrong, program).is_sure:
            refuted += 1
            continue
        certified += 1
        other = shuffled(wrong, count)
        for length in (1, 2, 3):
            for tokens in product(program.alphabet, repeat=length):
                assert other("".join(tokens)) == oracle("".join(tokens)), (count, tokens)
    assert certified > number // 10
    assert refuted > number // 100
