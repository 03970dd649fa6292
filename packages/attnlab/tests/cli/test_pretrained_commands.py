"""look, edit, trace and doctor on pretrained models: what they print is what the library says."""

import json
import logging
import shutil

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import attnlab
from attnlab.cli import answers, look, site_facts
from attnlab.experiments import model_loader
from tests.pretrained.speaking import saved

TEXT = "John and Mary went to the"


@pytest.fixture(scope="module")
def models(tmp_path_factory, sorter, opened_once):
    """A folder with a decoder, an encoder–decoder, a judge and a run."""
    parent = tmp_path_factory.mktemp("work")
    for kind in ("gpt2", "t5", "bert", "bert-judge"):
        saved(kind, parent / kind)
    shutil.copytree(sorter, parent / "runs" / "sorting")
    return parent


@pytest.fixture(autouse=True)
def _elsewhere(models, monkeypatch):
    monkeypatch.chdir(models)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_many_heads_are_one_table_that_fits_the_terminal(run, monkeypatch):
    for width in (60, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        status, out, _ = run("look t5 'the cat sat' --steps 2")
        assert status == 0
        assert "decoder.layers.*.cross_attention.weights" in out
        *table, hint = out.splitlines()
        assert max(map(len, table)) <= max(width, 90)  # lines of words wrap at a terminal's edge
        assert hint.startswith("one of them: attnlab look t5 'the cat sat' --head '")
        assert ("attention sink" in out) == ("f67" in out)


def check_habits(measured, weights):
    inner = weights[2:]
    assert measured["first"] == pytest.approx(float(inner[:, 0].mean()))
    diagonal = [float(weights[query, query - 1]) for query in range(2, len(weights))]
    assert measured["previous"] == pytest.approx(sum(diagonal) / len(diagonal))
    assert measured["self"] == pytest.approx(float(weights.diagonal()[2:].mean()))


def test_what_a_head_mostly_does_is_the_mean_of_its_weights(run):
    _, out, _ = run("look gpt2", TEXT, "--json")
    recording = attnlab.recorded(attnlab.ask("gpt2", TEXT))
    for site, facts in json.loads(out).items():
        for head in facts["heads"]:
            check_habits(head["places"], recording[site][0, head["head"]])


def test_the_check_of_habits_finds_a_mean_over_the_wrong_queries(monkeypatch, run):
    habits = site_facts.habits
    monkeypatch.setattr(
        site_facts, "habits", lambda weights, is_self: habits(weights[1:, 1:], is_self=is_self)
    )
    with pytest.raises(AssertionError):
        test_what_a_head_mostly_does_is_the_mean_of_its_weights(run)


def test_a_long_input_says_what_is_going_on_and_how_to_summarize_it(run, monkeypatch):
    _, short, quiet = run("look gpt2", TEXT)
    monkeypatch.setattr(look, "_LONG", 5)
    _, out, err = run("look gpt2", TEXT)
    assert out == short
    assert "6 words: every weight of every head is computed" in err
    assert "attnlab look gpt2 --document FILE --out DIR" in err
    assert "every weight" not in quiet


def test_edit_and_trace_answer_as_the_library_does(run):
    cut = ["--cut-edge", "the-Mary", "--zero-head", "1.1"]
    status, out, _ = run("edit gpt2", TEXT, *cut, "--steps", "3", "--target", "store", "--json")
    found = json.loads(out)
    edits = (attnlab.ZeroHead(layer=1, head=1), attnlab.CutEdge(query="the", key="Mary"))
    right = attnlab.fork(attnlab.ask("gpt2", TEXT, steps=3, target="store"), *edits)
    assert status == 0
    assert found["after"]["steps"] == json.loads(json.dumps(right.after.to_mapping()["steps"]))
    status, out, _ = run("trace gpt2", TEXT, "--steps", "3", "--target", "store", "--json")
    assert json.loads(out)["steps"] == json.loads(json.dumps(right.before.to_mapping()["steps"]))
    _, out, _ = run("trace gpt2", TEXT, "--head", "0.3")
    assert "  0.3 " in out
    assert "  0.2 " not in out


def test_an_encoder_that_chooses_nothing_says_so(run):
    status, out, _ = run("edit bert", TEXT, "--zero-head", "1.1")
    assert status == 0
    assert "no token is chosen" in out
    assert "changed by" in out
    assert "it reads the input and chooses no token" in run("trace bert", TEXT)[1]


def test_a_page_is_written_without_a_figure_for_each_of_many_heads(run, tmp_path):
    status, _, _ = run(f"look t5 'the cat sat' --out {tmp_path / 'out'}")
    assert status == 0
    assert (tmp_path / "out" / "view.html").is_file()
    figures = list((tmp_path / "out" / "figures").iterdir())
    assert len(figures) == 3  # all heads together, in three forms


def test_the_doctor_tells_the_seams_and_what_can_be_seen(run):
    status, out, _ = run("doctor t5 --json")
    found = json.loads(out)
    model = attnlab.load("t5")
    assert status == 0
    assert [each["attention"] for each in found["attentions"]] == [
        "encoder.layers.*.attention",
        "decoder.layers.*.attention",
        "decoder.layers.*.cross_attention",
    ]
    assert all(each["heads"] == 4 and each["calls"] == [1] for each in found["attentions"])
    assert found["attentions"][0]["made"] == max(each.made for each in model.backends[:2])
    assert "decoder.layers.*.cross_attention.weights" in found["sites"]
    _, out, _ = run("doctor gpt2")
    assert "layers.*.attention: 2 layers of 4 heads" in out
    assert "residual stream: in every block the stream before and what its parts add" in out
    assert "missing" not in out
    assert "fast path" not in out


def test_the_doctor_tells_how_far_torch_s_fast_path_is(run, monkeypatch):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    model = attnlab.load(
        torch.nn.TransformerEncoder(layer, 2).eval(), example=(torch.randn(2, 5, 16),)
    )
    monkeypatch.setattr("attnlab.cli.model_doctor.open_model", lambda name, head: model)
    _, out, _ = run("doctor gpt2")
    assert "torch's fast path, which a call without gradients takes, cannot be hooked" in out
    assert f"{model.fast_path:.2g} apart" in " ".join(out.split())


@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("look nowhere a", 3, "no run called nowhere"),
        ("look nowhere.gguf a", 3, "there is no run, folder or file 'nowhere.gguf'"),
        ("look sortin cab", 3, "did you mean 'sorting'"),
        ("look bert-juge a", 3, "or file 'bert-juge'. Did you mean bert-judge?"),
        ("look runs/sortin cab", 3, "or file 'runs/sortin'. Did you mean runs/sorting?"),
        ("look gpt2", 2, "type an input after the model"),
        ("look gpt2 ' '", 2, "the text is empty"),
        (f"look gpt2 {'the cat ' * 40}", 2, "reads at most 40"),
        (f"look gpt2 {'the cat ' * 600}", 2, "reads at most 40"),
        ("look gpt2 a --head 0.9", 2, "no head 0.9"),
        ("look gpt2 a --head 0.1 --site *", 2, "give one of them"),
        ("look gpt2 a --site *nothing", 2, "no site of this model matches"),
        (f"edit gpt2 {TEXT!r} --cut-edge the-cat", 2, "its tokens are 'John', '␣and'"),
        (f"edit gpt2 {TEXT!r} --zero-head 0.9", 2, "out of range"),
        (f"edit bert-judge {TEXT!r} --zero-head 0.1 --target nice", 2, "bad, good, odd"),
        (f"edit t5 {TEXT!r} --zero-head 0.1", 2, "'encoder 0.0', 'decoder 0.0', 'cross 0.0'"),
        (f"trace bert-judge {TEXT!r} --steps 2", 2, "no steps to count"),
        ("trace sorting cab --steps 2", 2, "for pretrained models only"),
        ("look sorting cab --ends-in none", 2, "--ends-in: for pretrained models only"),
        ("doctor --ends-in none", 2, "--ends-in is for a model"),
        ("doctor sorting", 2, "attnlab show sorting"),
        ("doctor gpt2 --ends-in nothing", 2, "there is no head 'nothing'"),
    ],
)
def test_mistakes_get_one_sentence_and_a_status(refused, typed, status, told):
    refused(typed, status, told)


def test_a_long_text_is_shown_by_its_ends_and_head_by_head_in_rows(run, monkeypatch):
    monkeypatch.setattr(answers, "_MAX_WORDS", 10)
    monkeypatch.setattr(look, "_MAX_WEIGHTS", 100)
    text = " ".join(["the cat"] * 9)
    _, out, _ = run("trace gpt2", text)
    assert "the ␣cat ␣the ␣cat ␣the ␣cat ␣the ␣cat … ␣the ␣cat → " in out
    _, out, _ = run("look gpt2", text, "--head", "0.1")
    assert out.count("␣cat (") + out.count("the (") == 18
    found = json.loads(run("look gpt2", text, "--head", "0.1", "--json")[1])
    (head,) = found.pop("layers.0.attention.weights")["heads"]
    assert (found, head["head"], "rows" in head) == ({}, 1, False)


def test_a_model_without_a_tokenizer_is_told_what_a_person_who_types_can_do(refused, models):
    folder = models / "silent"
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(models / "gpt2" / name, folder)
    (folder / "texts.txt").write_text("the cat sat\n")
    for typed in (
        "look silent a",
        "trace silent a",
        "edit silent a --zero-head 0.1",
        "search silent --corpus silent/texts.txt",
    ):
        refused(typed, 3, "Put the tokenizer's files beside the weights")


def test_what_the_library_says_is_passed_on_only_while_it_opens(run, monkeypatch):
    log, opened = logging.getLogger("attnlab.pretrained.somewhere"), model_loader.load_pretrained

    def opening(*arguments, **options):
        log.info("a file is spread out")
        return opened(*arguments, **options)

    monkeypatch.setattr(model_loader, "load_pretrained", opening)
    status, _, err = run("look gpt2 'the cat'")
    assert status == 0
    assert "a file is spread out" in err
    assert not log.isEnabledFor(logging.INFO)


def test_a_census_is_counted_in_shares_and_added_up_with_effects(run, refused, models):
    texts = [f"the cat sat on the mat {number}" for number in range(9)]
    (models / "many.txt").write_text("\n".join(texts))
    for share in (1, 2):  # nine texts are one block, so the second share is empty
        status, out, _ = run(f"census gpt2 --corpus many.txt --shard {share}/2 --out s{share}")
        assert status == 0
        assert ("no text" in out) == (share == 2)
    status, out, _ = run("census merge s1 s2 --out both --model gpt2 --effects 3")
    assert status == 0
    assert "largest effects first" in out
    kinds = attnlab.open("both").kinds()
    assert all(f"{count} × {kind}" in out for kind, count in kinds.items())
    assert "caution: 3 texts" in out
    assert "both/page.html" in out
    status, out, _ = run("census gpt2 --corpus many.txt --estimate --price 0.5 --effects 0")
    assert status == 0
    assert "a billion tokens: " in out
    assert " at 0.5 an hour" in out
    status, out, _ = run("census gpt2 --corpus many.txt --effects 0 --json")
    assert len(json.loads(out)["heads"]) == 8
    for typed, told in (
        ("census gpt2 --corpus many.txt --shard 3/2", "up to 7/7"),
        ("census gpt2 --corpus many.txt --out both", "holds a census already"),
        ("census gpt2 --corpus many.txt --workers 2", "need --out"),
        ("census gpt2 --corpus many.txt --resume", "--resume needs --out"),
        ("census merge --out x", "got none"),
    ):
        refused(typed, 2, told)
