"""The room Models in a browser, with the server of `attnlab lab` behind it, and its answers alone.

The model is MiniLM where `examples/small_models.py minilm` fetched it, otherwise a tiny random one.
"""

import itertools
import re
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.edits import CutEdge, Edit, ZeroHead
from attnlab.edits.effects import Metric
from attnlab.errors import CouldNotRun
from attnlab.experiments.folder import list_runs
from attnlab.look.summaries import Summarize
from attnlab.pretrained.model_files import folder as opening
from attnlab_lab.server import model_answers, models
from tests.pretrained import folders
from tests.pretrained.speaking import made, saved
from tests.sampling import first_of_each, sampled

from .playing import cells, click_cell, edits, settled, tamper
from .serving import asked

MINILM = Path(__file__).parents[4] / "runs" / "models" / "minilm"
TEXT = "the cat sat on the mat and the dog sat on the cat"
MEASURES = ("first", "previous", "own", "entropy")
ONE_HEAD = 0  # the first map of the room


@pytest.fixture(scope="module")
def encoder(home: Path) -> Path:
    return MINILM if MINILM.is_dir() else saved("bert", home / "runs" / "models" / "bert")


@pytest.fixture(scope="module")
def decoder(home: Path) -> Path:
    return saved("gpt2", home / "runs" / "models" / "gpt2")


@pytest.fixture
def opened(open_room: Any, encoder: Path) -> Any:
    """Open the room with what a link says, or with the models that are there; wait until it is
    shown."""

    def open_it(page: Any = None, **link: Any) -> Any:
        shown = ".models-room .columns" if link else ".there button"
        page = open_room("models", shown, page, **link)
        return settled(page) if link else page

    return open_it


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        settled(page)


def reach(page: Any, selector: str) -> None:
    """Move the focus to an element, as a keyboard does."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"the keyboard does not reach {selector}")


def table(page: Any) -> dict[str, list[float]]:
    """The means of all heads, as the table writes them."""
    rows = page.locator(".head-table tbody tr").all_inner_texts()
    cells = [row.replace("−", "-").replace("+", "").split("\t") for row in rows]
    return {name.strip(): [float(each) for each in numbers] for name, *numbers in cells}


def status(page: Any) -> str:
    return str(page.locator("#status").inner_text())


@cache
def loaded(folder: Path) -> Any:
    """Load a model once for all that is recorded of it."""
    return attnlab.load(folder)


def recorded(folder: Path, text: str, *changes: Edit, **options: Any) -> tuple[Any, Any]:
    """Record the weights of a text under edits, in Python; return the output, too."""
    model = loaded(folder)
    arguments, named, _ = attnlab.ask(model, text).pass_inputs()
    changed = attnlab.edit(model, *changes) if changes else nullcontext()
    with changed, torch.no_grad(), attnlab.record(model, "*weights", **options) as recording:
        output = model(*arguments, **named)
    return recording, output


def check_means(found: dict[str, list[float]], folder: Path, text: str, *changes: Edit) -> None:
    """Check the means of all heads against the library's summaries of the same heads."""
    recording, _ = recorded(folder, text, *changes, reduce=Summarize())
    names = set()
    for layer, site in enumerate(recording):
        summary = recording[site]
        wanted = torch.stack([getattr(summary, each)[0].mean(-1) for each in MEASURES], -1)
        for head, row in enumerate(wanted.tolist()):
            assert found[f"{layer}.{head}"] == pytest.approx(row, rel=6e-3), (layer, head)
            names.add(f"{layer}.{head}")
    assert names == set(found)


def test_the_page_shows_what_python_computes_before_and_after(opened: Any, encoder: Path) -> None:
    page = opened(model=encoder, text=TEXT)
    check_means(table(page), encoder, TEXT)
    page.locator("canvas.heatmap").nth(ONE_HEAD).focus()
    page.keyboard.press("h")
    press(page, "ArrowDown", "ArrowDown", "ArrowRight", "x")
    assert edits(page)[0] == "Head 0.0 is knocked out."
    assert re.fullmatch(r"Head 0\.0: query 2 ‘\S+’ → key 1 ‘\S+’ is cut\.", edits(page)[1])
    changes = ZeroHead(layer=0, head=0), CutEdge(layer=0, head=0, query=2, key=1)
    check_means(table(page), encoder, TEXT, *changes)
    with pytest.raises(AssertionError):  # the check would see a page that ignores the edits
        check_means(table(page), encoder, TEXT)
    (_, was), (_, now) = recorded(encoder, TEXT), recorded(encoder, TEXT, *changes)
    cosine = float(torch.cosine_similarity(was[0].mean(0), now[0].mean(0), dim=0))
    told = re.search(r"before and after: (\S+)\. Most", page.locator(".answers").inner_text())
    assert told is not None
    assert float(told[1]) == pytest.approx(cosine, abs=2e-6)
    press(page, "z", "z")
    check_means(table(page), encoder, TEXT)


@pytest.mark.slow
def test_a_wrong_number_is_caught(context: Any, opened: Any, encoder: Path) -> None:
    def alter(told: Any) -> None:
        told["heads"][1]["after"][2] += 0.01

    page = context.new_page()
    tamper(page, "/api/models/ask", alter)
    opened(page, model=encoder, text=TEXT)
    with pytest.raises(AssertionError, match=r"\(0, 1\)"):
        check_means(table(page), encoder, TEXT)


def test_a_click_changes_the_probabilities_of_a_language_model(opened: Any, decoder: Path) -> None:
    page = opened(model=decoder, text=TEXT, look="1.2")
    canvas = page.locator("canvas.heatmap").nth(ONE_HEAD)
    recording, was = recorded(decoder, TEXT)
    last = was.shape[1] - 1
    click_cell(page, ONE_HEAD, last, 0)
    press(page, "3")
    _, now = recorded(decoder, TEXT, CutEdge(layer=1, head=2, query=last, key=0))
    rows = page.locator(".shares tbody tr").all_inner_texts()
    shown = {name: (float(a), float(b)) for name, a, b in (row.split("\t") for row in rows)}
    names = loaded(decoder).vocabulary
    both = [each[0, -1].softmax(-1) for each in (was, now)]
    wanted = {names[id] for each in both for id in each.topk(5).indices.tolist()}
    assert set(shown) == wanted
    by_name = {names[id]: [float(each[id]) for each in both] for id in range(len(both[0]))}
    for name, pair in shown.items():
        assert pair == pytest.approx(by_name[name], abs=5.1e-4)
    weight = float(recording["layers.1.attention.weights"][0, 2, last, 0])
    told = re.search(r"([\d.]+) before, 0 after", page.locator(".map-reading").first.inner_text())
    assert told is not None
    assert float(told[1]) == pytest.approx(weight, rel=1e-3)
    click_cell(page, ONE_HEAD, last, 0)  # again, which mends it
    assert edits(page) == []
    click_cell(page, ONE_HEAD, 0, 3)
    assert "nothing to cut" in status(page)
    assert "shade: square root" in page.locator(".one-map").inner_text()
    assert canvas.get_attribute("aria-label").startswith("Change of the attention weights of head")


def bars(page: Any) -> list[tuple[str, float]]:
    """The terms of a score, as the bars say them."""
    rows = page.locator(".why-part .bars li").all_inner_texts()
    told = [row.replace("−", "-").rsplit("\n", 1) for row in rows]
    return [(words.strip(), float(number)) for words, number in told]


def check_reasons(page: Any, folder: Path, query: int, key: int) -> None:
    """Ask for a square by a click, and check its terms against Python's."""
    page.get_by_role("button", name="A click says why").click()
    click_cell(page, ONE_HEAD, query, key)
    page.locator(".why-part h2").wait_for()
    settled(page)
    terms = attnlab.why(loaded(folder), TEXT, head="1.2", query=query, key=key)
    assert f"Why head 1.2 looks from {query} " in page.locator(".why-part h2").inner_text()
    score = re.search(
        r"score is (\S+), the weight (\S+)\.", page.locator(".said").first.inner_text()
    )
    assert score is not None
    numbers = [float(each.replace("−", "-")) for each in score.groups()]
    assert numbers == pytest.approx([terms.score, terms.weight], rel=1e-3)
    wanted = terms.top(12)
    shown = bars(page)
    assert [words for words, _ in shown] == [f"{one} · {two}" for one, two, _ in wanted]
    assert [number for _, number in shown] == pytest.approx([term for *_, term in wanted], rel=6e-3)
    widths = page.locator(".why-part .track i").evaluate_all(
        "bars => bars.map(bar => bar.getBoundingClientRect().width)"
    )
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0


def test_a_click_says_why_the_head_looks_there(opened: Any, decoder: Path) -> None:
    page = opened(model=decoder, text=TEXT, look="1.2")
    check_reasons(page, decoder, 5, 2)
    assert edits(page) == []
    click_cell(page, ONE_HEAD, 0, 3)  # which is masked
    page.locator(".why-part .refused", has_text="masked").wait_for()
    assert "masked" in page.locator(".why-part .refused").inner_text()
    assert page.locator(".why-part .bars").is_hidden()
    page.locator("canvas.heatmap").nth(ONE_HEAD).focus()
    press(page, "Home", "w")  # the key asks too
    assert "query" not in page.locator(".why-part .refused").inner_text()
    press(page, "[")  # another head
    assert page.locator(".why-part").is_hidden()


def test_a_wrong_term_is_caught(context: Any, opened: Any, decoder: Path) -> None:
    def alter(told: Any) -> None:
        told["terms"][1][2] *= 1.05

    page = context.new_page()
    tamper(page, "/api/models/why", alter)
    opened(page, model=decoder, text=TEXT, look="1.2")
    with pytest.raises(AssertionError):
        check_reasons(page, decoder, 5, 2)


def test_why_in_the_room_is_that_of_python(decoder: Path) -> None:
    name = str(decoder)
    status, told = asked("why_cell", name=name, text=TEXT, head="1.2", query=5, key=2)
    terms = attnlab.why(loaded(decoder), TEXT, head="1.2", query=5, key=2)
    assert status == 200
    assert [tuple(term) for term in told["terms"]] == terms.top(12)
    total = sum(term for _, _, term in told["terms"]) + told["rest"] + told["position"]
    assert total == pytest.approx(told["score"], abs=1e-5)
    assert told["others"] == terms.terms.numel() - 12
    status, told = asked("why_cell", name=name, text=TEXT, head="9.9", query=5, key=2)
    assert (status, "no head 9.9" in told["error"]) == (400, True)


def test_by_keyboard_from_nothing_and_by_its_link(context: Any, opened: Any, decoder: Path) -> None:
    page = opened()
    reach(page, "#model")
    page.keyboard.type(str(decoder))
    page.keyboard.press("Enter")
    page.wait_for_selector(".models-room .columns")
    settled(page)
    assert "is open" in status(page)
    reach(page, "#model-text")
    page.keyboard.press("Control+A")
    page.keyboard.type("the cat hz[1")  # none of these is a key of the room
    press(page, "Enter")
    assert "hz" in "".join(page.locator(".token-chip").all_inner_texts())
    assert edits(page) == []
    reach(page, ".heads-part canvas")
    press(page, "ArrowDown", "ArrowRight", "ArrowRight", "Enter")
    assert page.locator(".map h3").first.inner_text() == "Head 1.2"
    press(page, "[", "h")
    assert edits(page) == ["Head 1.1 is knocked out."]
    press(page, "z", "z", "Z", "2")
    reach(page, ".choice-bar button:last-child:not(.head-bar *)")
    press(page, "Enter")
    values = [row[3] for row in table(page).values()]
    assert values == sorted(values, reverse=True)
    page.wait_for_url("**by=entropy**")
    link = page.url
    assert {"look=1.1", "by=entropy", "changes=z1.1"} <= set(link.split("&"))
    again = context.new_page()
    again.goto(link)
    again.wait_for_selector(".models-room .columns")
    settled(again)
    assert (edits(again), table(again)) == (edits(page), table(page))
    assert [each.locator("#model-text").input_value() for each in (page, again)] == [
        "the cat hz[1"
    ] * 2
    assert again.url == link
    again.goto(f"{link},q1.1")
    again.locator(".models-room .notice").filter(has_text="which is no edit").wait_for()


def test_a_refusal_is_one_sentence_and_leaves_the_open_model(opened: Any, decoder: Path) -> None:
    page = opened(model=decoder, changes="c0.0.99.1")  # there is no such query
    assert page.locator(".models-room .notice").inner_text().count(".") <= 4
    assert "99" in page.locator(".models-room .notice").inner_text()
    page.locator("#model-text").fill(TEXT)
    page.locator("#model-text").press("Enter")
    before = table(settled(page))
    page.locator("#model-text").fill("cat " * 600)
    page.locator("#model-text").press("Enter")
    page.locator(".models-room .notice").filter(has_text="tokens").wait_for()
    page.locator("canvas.heatmap").nth(ONE_HEAD).focus()
    press(page, "h")
    assert edits(page) == ["Head 0.0 is knocked out."]
    assert page.locator(".models-room .notice").is_hidden()
    press(page, "z")
    assert table(page) == before


def test_a_wrong_path_is_told_and_the_model_that_was_open_stays(
    opened: Any, decoder: Path, tmp_path: Path
) -> None:
    (tmp_path / "os-release").symlink_to(__file__)
    page = opened(model=decoder)
    press(page, "h")
    before = table(page), edits(page), page.url
    for name, words in ("no/such-model-here", "no/such-model-here"), (tmp_path, "no config.json"):
        page.locator("#model").fill(str(name))
        page.locator("#model").press("Enter")
        told = page.locator(".models-room .notice").filter(has_text=words)
        told.filter(has_text=f"{decoder} stays open").wait_for()
    assert (table(page), edits(page), page.url) == before
    page.get_by_role("button", name="Undo").click()
    settled(page)
    assert edits(page) == []


def test_where_no_model_is_the_room_says_how_to_fetch_one_as_the_docs_do(
    open_room: Any, context: Any
) -> None:
    page = context.new_page()
    page.route("**/api/models", lambda route: route.fulfill(json=[]))
    open_room("models", ".there li", page)
    command = "python examples/small_models.py minilm"
    assert command in page.locator(".there").inner_text()
    assert command in (Path(__file__).parents[4] / "docs" / "playground.md").read_text()


def test_a_wrong_path_with_no_model_open_says_so(opened: Any) -> None:
    page = opened()
    page.locator("#model").fill("no/such-model-here")
    page.locator("#model").press("Enter")
    page.locator(".models-room .notice").filter(has_text="No model is open").wait_for()
    assert not page.locator(".one-map").is_visible()


def test_a_model_that_needs_the_memory_of_the_others_takes_it(monkeypatch: Any) -> None:
    opened = []

    def open_any(name: str) -> str:
        opened.append((name, len(model_answers._open)))
        if model_answers._open or name == "none":
            raise CouldNotRun("there is not enough memory.")
        return name

    monkeypatch.setattr(model_answers, "_open", {})
    monkeypatch.setattr(model_answers, "_open_any", open_any)
    model_answers._opened("one", 0)
    assert model_answers._opened("two", 0) == "two"
    assert opened == [("one", 0), ("two", 1), ("two", 0)]
    assert list(model_answers._open) == [("two", 0)]
    with pytest.raises(CouldNotRun):
        model_answers._opened("none", 0)


def part_of(page: Any) -> tuple[str, float]:
    """What the large map says of its last square, and the weight in it."""
    page.locator("canvas.heatmap").nth(ONE_HEAD).focus()
    page.keyboard.press("End")
    for _ in range(60):
        page.keyboard.press("PageDown")
    settled(page)
    told = page.locator(".map-reading").nth(ONE_HEAD).inner_text()
    weight = re.search(r": weight ([\d.e−]+)", told)
    assert weight is not None, told
    return told, float(weight[1].replace("−", "-"))


@pytest.mark.slow
def test_a_long_text_is_whole_in_squares_and_exact_in_part(opened: Any, tmp_path: Path) -> None:
    model, tokenizer = made("gpt2")
    config = type(model.config)(**{**model.config.to_dict(), "n_positions": 1_200})
    torch.manual_seed(0)
    type(model)(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    text = " ".join(["the cat sat on the mat"] * 160)
    page = opened(model=tmp_path)
    page.locator("#model-text").fill(text)
    page.locator("#model-text").press("Enter")
    title = page.locator(".one-map h3").nth(1)
    title.filter(has_text="tokens; above, queries").wait_for()
    settled(page)
    recording, _ = recorded(tmp_path, text)
    weights = recording["layers.0.attention.weights"][0, 0]
    length = len(weights)
    assert 600 < length <= 1_200
    assert f"All {length:,} tokens; above, queries {length - 512} to {length - 1}" in (
        title.inner_text()
    )
    told, weight = part_of(page)
    assert told.startswith(f"Query {length - 1} ")
    assert weight == pytest.approx(float(weights[-1, -1]), rel=1e-3)
    check_means(table(page), tmp_path, text)
    squares = cells(page.locator(".one-map canvas.heatmap").nth(1), 3, 3)
    size = -(-length // 64)
    for (i, j), said in zip(itertools.product(range(3), range(3)), squares, strict=True):
        spans = [f"{k * size} to {(k + 1) * size - 1}" for k in (i, j)]
        most = float(weights[i * size : (i + 1) * size, j * size : (j + 1) * size].max())
        assert said.startswith(f"Queries {spans[0]} → keys {spans[1]}: ")
        number = said.split(": ")[1].removesuffix(" at most.")
        assert most < 0.01 if number == "<.01" else float(number) == pytest.approx(most, abs=6e-3)
    canvas = page.locator(".one-map canvas.heatmap").nth(1)
    canvas.focus()
    press(page, "PageUp", *["PageUp"] * 8, "Home", "Enter")  # the beginning
    title.filter(has_text="queries 0 to 511 and keys 0 to 511").wait_for()
    told, weight = part_of(page)
    assert told.startswith("Query 511 ")
    assert weight == pytest.approx(float(weights[511, 511]), rel=1e-3)
    press(page, "x")
    assert re.fullmatch(r"Head 0\.0: query 511 ‘\S+’ → key 511 ‘\S+’ is cut\.", edits(page)[0])
    change = CutEdge(layer=0, head=0, query=511, key=511)
    check_means(table(page), tmp_path, text, change)
    press(page, "z")
    canvas.focus()
    press(page, "End", *["PageDown"] * 8, "Enter")  # the end again
    title.filter(has_text=f"keys {length - 512} to {length - 1}").wait_for()
    press(page, "h")
    check_means(table(page), tmp_path, text, ZeroHead(layer=0, head=0))


PLACES = {"bert": 0, "bert-tags": 4, "gpt2": 1, "bert-masked": 1, "bert-judge": 1, "t5": 4}


@pytest.mark.parametrize("kind", sampled(PLACES, ["bert", "gpt2"]))
def test_every_kind_of_model_answers(kind: str, tmp_path: Path) -> None:
    name, places = str(saved(kind, tmp_path / kind)), PLACES[kind]
    status, facts = asked("open_model", name=name)
    assert status == 200
    text = facts["first"]
    first, size = facts["layers"][0]
    change = [{"head": f"{first}.{size - 1}"}]
    told = asked("ask_model", name=name, text=text, edits=change)[1]
    assert len(told["places"]) == places
    assert ("cosine" in told) == (places == 0)
    assert told["has_one_answer"] == (places == 1 or kind == "t5")  # whose first token is one
    model = attnlab.load(name)
    site = {} if first == "0" else {"site": "encoder.layers.*.attention"}
    question = attnlab.ask(model, text)
    was = question.trace().steps
    with attnlab.edit(model, ZeroHead(layer=0, head=size - 1, **site)):
        now = question.trace().steps
    if kind in ("bert", "t5"):  # the first chooses nothing, the second goes on from its choices
        return
    for place in told["places"]:
        number = int(place["title"].split()[1]) if place["title"] else None
        pair = [next(s for s in steps if number in (None, s.place)) for steps in (was, now)]
        shares = [dict(zip(s.candidates, s.probabilities, strict=True)) for s in pair]
        for choice, *both in place["rows"]:
            assert both == pytest.approx([each[choice] for each in shares], abs=1e-6)


def test_a_run_s_model_answers_as_its_question_does(sorter: Path) -> None:
    status, facts = asked("open_model", name=str(sorter))
    assert (status, facts["family"], facts["layers"]) == (200, "Decoder", [["0", 2]])
    told = asked("ask_model", name=str(sorter), text=facts["first"], edits=[])[1]
    steps = attnlab.ask(sorter, facts["first"]).trace().steps
    assert len(told["places"]) == len(steps)
    for place, step in zip(told["places"], steps, strict=True):
        best = max(step.probabilities)
        assert place["rows"][0][1:] == pytest.approx([best, best], abs=1e-6)


CLEAN = "the cat sat on the mat and the dog sat on the"
CORRUPTED = "the dog sat on the mat and the cat sat on the"


@torch.no_grad()
def test_patching_in_the_room_is_that_of_python(decoder: Path) -> None:
    question = {"name": str(decoder), "clean": CLEAN, "corrupted": CORRUPTED}
    status, told = asked("patch_model", **question)
    assert status == 200
    model = loaded(decoder)
    ids = [model.inputs(text)["input_ids"] for text in (CLEAN, CORRUPTED)]
    logits = [model(each)[0, -1] for each in ids]
    answer, rival = (int(row.argmax()) for row in logits)
    assert told["probabilities"] == pytest.approx(
        [float(row.softmax(-1)[answer]) for row in logits], abs=1e-6
    )
    labels = torch.tensor([answer])
    if rival == answer:
        rival = int(logits[1].topk(2).indices[1])
    metric = Metric("logit_difference", labels, torch.tensor([rival]))
    found = attnlab.patch_all(model, CLEAN, CORRUPTED, metric=metric)
    torch.testing.assert_close(torch.tensor(told["shares"]), found.table(), check_dtype=False)
    assert told["columns"][1] == "1:␣cat / ␣dog"
    names = model.vocabulary
    assert (told["answer"], told["rival"]) == (names[answer], names[rival])
    for kind in ("heads", "attentions", "mlps"):
        _, other = asked("patch_model", **question, kind=kind)
        found = attnlab.patch_all(model, CLEAN, CORRUPTED, kind, metric=metric)
        torch.testing.assert_close(torch.tensor(other["shares"]), found.table(), check_dtype=False)
    _, other = asked("patch_model", **question, target="Mary")
    assert other["answer"].strip("␣") == "Mary"


@pytest.mark.parametrize(
    ("kind", "clean", "corrupted"),
    first_of_each(
        [
            ("bert-masked", "the cat sat on the [MASK]", "the dog sat on the [MASK]"),
            ("bert-judge", "a warm film", "a funny film"),
            ("sorter", "cab", "bab"),
        ],
        lambda case: case[0] == "sorter",
    ),
)
def test_every_model_with_one_answer_is_patched(
    kind: str, clean: str, corrupted: str, tmp_path: Path, sorter: Path
) -> None:
    name = sorter if kind == "sorter" else saved(kind, tmp_path / kind)
    status, told = asked("patch_model", name=str(name), clean=clean, corrupted=corrupted)
    assert status == 200, told
    differing = ["/" in position for position in told["columns"]]
    assert sum(differing) == 1
    # Before the first layer, the token that differs is all that the two texts differ by.
    assert told["shares"][0] == pytest.approx([float(each) for each in differing], abs=0.01)


def test_what_cannot_be_patched_is_refused_in_a_sentence(decoder: Path, tmp_path: Path) -> None:
    encoder = saved("bert", tmp_path / "bert")
    for folder, texts, sentence in [
        (decoder, (CLEAN, f"{CLEAN} mat"), "two texts of equally many tokens"),
        (decoder, (CLEAN, CLEAN), "a patch has nothing to bring"),
        (decoder, (CLEAN, CORRUPTED, "no such token"), "'no such token' is 9 tokens here"),
        (encoder, (CLEAN, CORRUPTED), "patching measures one answer to a text"),
    ]:
        named = dict(zip(("clean", "corrupted", "target"), texts, strict=False))
        status, told = asked("patch_model", name=str(folder), **named)
        assert (status, sentence in told["error"]) == (400, True), told


def test_what_cannot_be_opened_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = folders.llama(tmp_path / "code", auto_map={"AutoModel": "evil.Evil"})
    (tmp_path / "file.txt").write_text("no model")
    cases = [
        ("nobody/nothing", "is no folder here and not in the hub's cache"),
        (str(tmp_path / "nowhere"), "there is no folder or file"),
        ("sortng", "there is no run, folder or file 'sortng'."),
        (str(tmp_path / "file.txt"), "expected a model's folder"),
        (str(tmp_path), "expected a model's folder"),
        (str(code), "wants to run Python code of its own"),
        ("x" * 999, ""),
        ("a\0b", ""),
    ]
    for name, sentence in cases:
        status, told = asked("open_model", name=name)
        assert (status in (400, 409), sentence in told["error"]) == (True, True), told
        assert "\n" not in told["error"]
    sound = str(saved("bert", tmp_path / "sound"))
    with monkeypatch.context() as patch:
        patch.setattr(opening, "free_memory", lambda: 10_000)
        status, told = asked("open_model", name=sound)
    assert status == 409
    assert "there is not enough memory" in told["error"]
    assert asked("open_model", name=sound)[0] == 200
    monkeypatch.setattr(model_answers, "_MOST_TOKENS", 5)
    status, told = asked("ask_model", name=sound, text=TEXT, edits=[])
    assert (status, "attnlab look" in told["error"]) == (400, True)


def test_models_that_are_there_are_listed(tmp_path: Path, monkeypatch: Any, sorter: Path) -> None:
    runs, cache = tmp_path / "runs", tmp_path / "hub" / "models--some--small-one"
    (runs / "models").mkdir(parents=True)
    (runs / "sorter").symlink_to(sorter)
    folders.llama(runs / "models" / "llama")
    (runs / "models" / "packed").mkdir()
    (runs / "models" / "packed" / "small.gguf").write_bytes(b"GGUF")
    for each in (cache / "snapshots" / "abc", cache.with_name("models--half")):
        each.mkdir(parents=True)
    (cache / "snapshots" / "abc" / "config.json").write_text("{}")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.parent))
    monkeypatch.chdir(tmp_path)
    opened_before = [{"name": "runs/models/llama", "kind": "recent"}]
    for recent, kind in ((), "folder"), (opened_before, "recent"):
        found = models._listed(runs, recent, list_runs(runs))
        assert sorted((Path(each["name"]).name, each["kind"]) for each in found) == [
            ("llama", kind), ("small-one", "hub"), ("small.gguf", "folder"), ("sorter", "run"),
        ]  # fmt: skip
