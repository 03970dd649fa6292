"""attnlab patch: what it prints, writes and refuses is what the library says."""

import json

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import attnlab
from attnlab.edits.effects import Metric, PatchTarget
from tests.pretrained.speaking import saved

CLEAN = "the cat sat on the mat and the dog sat on the"
CORRUPTED = "the dog sat on the mat and the dog sat on the"
TEXTS = (CLEAN, CORRUPTED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, opened_once):
    parent = tmp_path_factory.mktemp("patch")
    saved("gpt2", parent / "gpt2")
    return parent


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_patch_is_that_of_python_and_has_a_page(run, tmp_path):
    found = attnlab.patch_all(attnlab.load("gpt2"), *TEXTS)
    status, out, _ = run("patch gpt2", *TEXTS, "--out", tmp_path / "out")
    assert status == 0
    assert str(found) in out
    page = f"page     {tmp_path / 'out' / 'page.html'}"
    assert out.splitlines()[-2:] == [page, f"look at  attnlab open {tmp_path / 'out'}"]
    assert "layers.0.residual_before, position 1 '␣cat / ␣dog'" in out
    page = (tmp_path / "out" / "page.html").read_text()
    for words in ("Which part carries the answer?", found.measured, "replaces the stream before"):
        assert words.replace("'", "&#39;") in page or words in page
    assert json.loads((tmp_path / "out" / "patches.json").read_text()) == found.to_mapping()
    status, _, err = run("patch gpt2", *TEXTS, "--out", tmp_path / "out")
    assert (status, "is there already" in err) == (3, True)


def test_options_reach_the_library(run):
    model = attnlab.load("gpt2")
    metric = Metric("logit_difference", target="Mary", others="John")
    noise = attnlab.patch_all(
        model, *TEXTS, "heads", metric=metric, direction="noise", each_position=True
    )
    more = "--what heads --positions --direction noise --answer Mary --wrong John --json"
    assert json.loads(run(f"patch gpt2 '{CLEAN}' '{CORRUPTED}' {more}")[1]) == noise.to_mapping()
    receiver, sender = PatchTarget("layers.1.attention", 2), PatchTarget("layers.0.attention", 1)
    paths = attnlab.patch_paths(model, *TEXTS, senders=sender, receivers=receiver, into="value")
    more = "--what paths --senders 0.1 --receivers 1.2 --into value --json"
    found = json.loads(run(f"patch gpt2 '{CLEAN}' '{CORRUPTED}' {more}")[1])
    assert found["patches"][0]["effect"] == pytest.approx(float(paths.effects[0]))
    assert found["patches"][0]["place"]["receiver"]["head"] == 2


def test_pairs_of_a_file_are_counted_and_named(run, folder):
    (folder / "pairs.csv").write_text(
        "clean,corrupted,answer\n"
        f"{CLEAN},{CORRUPTED},Mary\n"
        "the cat\n"
        f"{CLEAN},the cat,\n"
        "the cat sat on the,the dog sat on the,\n"
    )
    status, out, _ = run("patch gpt2 --pairs pairs.csv")
    assert status == 0
    assert "2 pairs patched, 2 refused" in out
    assert "refused: pair 2: it has more or fewer than 3 cells" in out
    assert "refused: pair 3: patching needs two texts of equally many tokens" in out
    assert "each patch is of all positions" in out
    found = json.loads(run("patch gpt2 --pairs pairs.csv --json")[1])
    assert found["answers"][0][0] == "␣Mary"
    assert [refusal["pair"] for refusal in found["refused"]] == [2, 3]
    assert all(row["low"] <= row["effect"] <= row["high"] for row in found["patches"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "type a clean and a corrupted text after the model"),
        (f"'{CLEAN}' '{CORRUPTED}' --pairs pairs.csv", "leave those on the command line out"),
        (f"'{CLEAN}' '{CORRUPTED}' --senders 0.1", "go with --what paths"),
        (f"'{CLEAN}' '{CORRUPTED}' --what mlps --positions", "--positions is for heads"),
        (f"'{CLEAN}' '{CORRUPTED}' --what paths --receivers 9.9", "9.9"),
        (f"'{CLEAN}' 'the cat'", "two texts of equally many tokens"),
        (f"'{CLEAN}' '{CORRUPTED}' --answer 'no such token'", "a target is one"),
    ],
)
def test_what_cannot_be_patched_is_wrong_usage(refused, words, told):
    refused(f"patch gpt2 {words}", 2, told)
