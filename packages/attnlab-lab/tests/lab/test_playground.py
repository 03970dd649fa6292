"""The playground: its first story, edits and links, for everyone and from everywhere."""

import gzip
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.draw.bundle import bundle
from attnlab_lab import static
from tests.sampling import sampled

from .playing import (
    MOVING,
    Open,
    answers,
    at_cell,
    check_look,
    click_cell,
    dots,
    drawn,
    edits,
    enter,
    follow,
    margin,
    press,
    rested,
    settled,
    state,
    trained,
)

AT = "at=60"  # where the training pauses: enough for whatever needs no good model
LEARNED = "at=800"  # its last step


def test_a_model_learns_every_input_without_a_click_and_another_after_it(open_lab: Open) -> None:
    page = open_lab(**MOVING)
    page.wait_for_selector(".letters")
    assert page.get_by_label("Input", exact=True).input_value() == "cab"
    assert page.locator(".letters").count() == 1
    trained(page)
    assert answers(page) == ["abc"]
    assert len(dots(page)) == 27
    assert all(dots(page).values())
    assert page.locator(".score").inner_text() == "27 of 27 inputs right: every input there is."
    assert page.locator(".prompt").inner_text() == "Click any square of a head to cut that edge."
    kinds = page.locator(".dots-part .note").inner_text()
    assert kinds == "Green: right. Red with a cross: wrong. Framed: the input that is shown."
    assert page.locator(".dot i").first.evaluate("dot => getComputedStyle(dot).transition") == "all"
    assert margin(page) > 0
    loss = page.locator(".loss-part output").inner_text()
    assert re.fullmatch(r"0\.\d{3} · step (\d+) of \1", loss)
    first = state(page)
    page.emulate_media(reduced_motion="reduce")  # the second training is not watched
    page.get_by_role("button", name="Again with seed 2").click()
    page.wait_for_selector("body[data-state=trains]")
    trained(page)
    assert page.get_by_role("button", name="Again with seed 3").is_visible()
    assert "seed=2" in page.url
    assert state(page)[4] != first[4]
    page.emulate_media(**MOVING)


def test_a_click_cuts_an_edge_and_undo_mends_it(open_lab: Open) -> None:
    page = trained(open_lab(f"#{LEARNED}"))
    whole = state(page)
    click_cell(page, 1, 3, 1)
    cut = state(page)
    assert edits(page) == ["Head 0.1: query 3 ‘SEP’ → key 1 ‘a’ is cut."]
    assert not all(dots(page).values())
    assert margin(page) < whole[2]
    assert len(answers(page)) == 2
    assert answers(page)[0] == "abc"
    assert page.locator(".map-reading").nth(1).inner_text() == "Query 3 ‘SEP’ → key 1 ‘a’: cut."
    assert "of 27 inputs right" in page.locator("#status").inner_text()
    page.get_by_label("Input", exact=True).fill("bca")
    settled(page)
    assert edits(page) == ["Head 0.1: query 3 ‘SEP’ → key 1 ‘c’ is cut."]
    page.get_by_label("Input", exact=True).fill("cab")
    settled(page)
    page.mouse.move(5, 5)
    press(page, "Undo")
    assert edits(page) == []
    assert (dots(page), margin(page)) == (whole[0], whole[2])
    press(page, "Redo")
    assert (dots(page), margin(page)) == (cut[0], cut[2])
    page.keyboard.press("z")
    settled(page)
    assert all(dots(page).values())
    page.keyboard.press("Shift+Z")
    settled(page)
    assert edits(page) == cut[3]
    press(page, "Reset")
    assert all(dots(page).values())
    press(page, "Undo")
    page.get_by_role("button", name="Remove: Head 0.1", exact=False).click()
    settled(page)
    assert edits(page) == []


PHONE = {"has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("room", ["play", "bench"])
def test_a_finger_reads_a_square_before_it_cuts(open_lab: Open, room: str) -> None:
    page = rested(open_lab(f"#room={room}&at=60", width=390, **PHONE))
    reading = page.locator(".map-reading").first
    assert reading.inner_text() == "Tap a cell to read it."
    assert not re.search("[Cc]lick|Key: ", page.locator(".prompt, .tool-part").first.inner_text())
    page.touchscreen.tap(*at_cell(page, 0, 3, 0))
    settled(page)
    assert re.match("Query 3 ‘SEP’ → key 0 ‘c’: weight", reading.inner_text())
    assert edits(page) == []
    page.touchscreen.tap(*at_cell(page, 0, 3, 0))
    settled(page)
    assert edits(page) == ["Head 0.0: query 3 ‘SEP’ → key 0 ‘c’ is cut."]
    page.touchscreen.tap(*at_cell(page, 0, 4, 1))
    assert "weight" in reading.inner_text()
    assert len(edits(settled(page))) == 1


PAUSE = """new MutationObserver((changes, observer) => {
  if (!document.querySelector('.loss-part output:not(:empty)')) return;
  document.querySelector('.run').click();
  observer.disconnect();
}).observe(document, { subtree: true, childList: true, characterData: true });"""
"""Presses Pause at the first loss that is shown, from inside: a hand may come too late."""


@pytest.mark.slow
def test_a_click_while_it_trains_pauses_and_going_on_ends_the_training(open_lab: Open) -> None:
    page = rested(open_lab(script=PAUSE, **MOVING))
    step = int(page.locator(".loss-part output").inner_text().split()[3])
    click_cell(page, 0, 3, 0)
    assert edits(page) == ["Head 0.0: query 3 ‘SEP’ → key 0 ‘c’ is cut."]
    assert f"&at={step}" in page.url
    press(page, "Reset")
    page.get_by_role("button", name="Go on").click()
    trained(page)
    assert all(dots(page).values())


@pytest.mark.parametrize(
    "link",
    sampled(
        [
            "#v=1&room=play&seed=4&in=bca&edits=c0.1.4.0,c0.0.3.2&at=60",
            "#v=1&room=bench&seed=4&in=bca&at=60"
            "&edits=f0.0.cab,s0.1.3.2.-3,m0.1.100000110000111000101100101110101111",
            "#v=1&room=bench&seed=2&in=bab&letters=2&heads=3&edits=u0.2&at=60",
        ],
        1,
    ),
)
def test_a_link_brings_back_all_that_was_seen(open_lab: Open, server: str, link: str) -> None:
    page = rested(open_lab(link))
    assert len(edits(page)) == link.partition("edits=")[2].count(",") + 1
    again = rested(open_lab(page.url.partition("index.html")[2], base=server))
    assert state(again) == state(page)
    assert again.url.partition("#")[2] == page.url.partition("#")[2]


BROKEN = {
    "#v=2&seed=3": "This link is of version “2”, and this page reads version 1",
    "#seed=0": "seed=0, expected a whole number from 1 to 999999",
    "#seed=abc": "seed=abc, expected a whole number",
    "#room=kitchen": "room=kitchen, which is not one of play, bench",
    "#room=runs": "This page has no server",
    "#room=bench&run=mine": "This page has no server",
    "#in=cax": "This link's input does not fit its model. Expected three letters from a to c",
    "#head=identity": "“head”, which is not one of",
    "#room=design&anatomy=width.8": "“anatomy”, which is not one of",
    "#edits=z0.7": "the edit “z0.7”, which does not fit this model",
    "#edits=x": "the edit “x”",
    "#colour=red": "“colour”, which is not one of",
    "#edits=" + "z0.0," * 500: "This link has 2506 characters, and 2000 are the most",
    "#hide=everything": "hide=everything",
}


def test_a_broken_link_is_explained_and_the_page_works(open_lab: Open) -> None:
    first, *others = BROKEN
    page = open_lab(first)
    assert BROKEN[first] in page.locator("#notice").inner_text()
    for link in others:
        follow(page, link)
        page.locator("#notice", has_text=BROKEN[link]).wait_for()
    page.wait_for_selector(".letters")
    assert (len(dots(page)), len(answers(page)[0])) == (27, 3)


@pytest.mark.slow
def test_an_edit_of_a_link_that_changes_nothing_is_told(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}&edits=c0.0.1.4"))
    assert "CutEdge changed nothing" in page.locator("#status").inner_text()
    assert edits(page) == []


@pytest.mark.slow
def test_parts_are_hidden_for_a_class_and_inside_other_pages(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}&hide=loss,heads,doors"))
    for part in ("loss", "heads", "doors"):
        assert not page.locator(f"[data-part={part}]").is_visible()
    assert page.locator("[data-part=dots]").is_visible()
    follow(page, f"#{AT}&embed=1")
    page.locator("h1").wait_for(state="hidden")
    follow(page, f"#{AT}&present=1")
    page.locator("h1").wait_for()
    assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == "20px"


@pytest.mark.slow
def test_a_class_says_what_it_expects_before_it_sees_what_an_edit_did(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}&predict=1"))
    assert page.locator(".dots").is_visible()
    click_cell(page, 1, 3, 1)
    for hidden in (".dots", ".margin-value", ".answer", "#status"):
        assert not page.locator(hidden).is_visible(), hidden
    guess = page.get_by_label("Before you look: how many of 27 inputs are still right?")
    guess.fill("x")
    guess.press("Enter")
    assert not page.locator(".dots").is_visible()
    guess.fill("28")
    guess.press("Enter")
    assert page.locator(".predict-part p").inner_text() == "Expected a number from 0 to 27."
    assert not page.locator(".dots").is_visible()
    guess.fill("27")
    guess.press("Enter")
    right = sum(dots(page).values())
    assert page.locator(".dots").is_visible()
    assert page.locator(".predict-part p").inner_text() == f"You said 27. It is {right}, of 27."
    assert "predict=1" in page.url
    press(page, "Undo")
    assert page.locator(".dots").is_visible()
    page.keyboard.press("Shift+Z")
    settled(page)
    assert page.locator(".dots").is_visible()
    click_cell(page, 1, 4, 1)
    assert not page.locator(".dots").is_visible()
    enter(page, "Design")
    assert page.locator(".room.design .margin-value").is_visible()


# The bench.


@pytest.mark.slow
def test_a_mask_is_painted_by_dragging_and_by_keys(open_lab: Open) -> None:
    link = f"#{AT}&room=bench&seed=2"
    page = rested(open_lab(link))
    page.get_by_role("button", name="Paint a mask").click()
    page.mouse.move(*at_cell(page, 0, 3, 1))
    page.mouse.down()
    for query in (4, 5):
        page.mouse.move(*at_cell(page, 0, query, 1))
    page.mouse.up()
    settled(page)
    painted = "m0.0.100000110000111000101100101110101111"
    assert f"edits={painted}" in page.url
    assert edits(page) == ["Head 0.0 has a painted mask."]
    by_hand = dots(page)
    press(page, "Undo")
    assert edits(page) == []
    click_cell(page, 0, 0, 2)  # above the diagonal
    page.mouse.move(*at_cell(page, 0, 0, 2))
    assert "‘b’: weight 0." in page.locator(".map-reading").inner_text()

    other = rested(open_lab(link))
    other.locator("canvas.heatmap").focus()
    for key in ["Home", *["ArrowDown"] * 3, *["ArrowUp"] * 2, "ArrowRight"]:
        other.keyboard.press(key)
    assert "Query 3" in other.locator(".map-reading").inner_text()
    for key in (" ", "ArrowDown", "ArrowDown", " "):
        other.keyboard.press(key)
    settled(other)
    assert f"edits={painted}" in other.url
    assert dots(other) == by_hand
    other.keyboard.press("ArrowUp")
    for key in (" ", "ArrowUp", "Escape"):
        other.keyboard.press(key)
    assert other.locator("#status").inner_text() == "Nothing was painted."
    assert f"edits={painted}" in other.url


@pytest.mark.slow
def test_a_score_is_changed_by_clicks_and_by_keys(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}&room=bench"))
    page.get_by_role("button", name="Add to a score").click()
    click_cell(page, 0, 3, 1)
    click_cell(page, 0, 3, 1)
    assert edits(page) == ["Head 0.0: plus 2 on the score of query 3 ‘SEP’ → key 1 ‘a’."]
    for key in "---":
        page.keyboard.press(key)
        settled(page)
    assert edits(page) == ["Head 0.0: minus 1 on the score of query 3 ‘SEP’ → key 1 ‘a’."]
    page.keyboard.press("+")
    settled(page)
    assert edits(page) == []
    page.keyboard.press("x")
    settled(page)
    page.keyboard.press("+")
    settled(page)
    assert page.locator("#status").inner_text().startswith("You have cut this edge")
    assert len(edits(page)) == 1


@pytest.mark.slow
def test_the_switch_of_a_head_goes_round_by_key(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}&room=bench"))
    page.get_by_role("radio", name="0.1").click()
    seen = []
    for _ in range(6):
        page.keyboard.press("h")
        settled(page)
        seen.append(edits(page))
    assert seen == [
        ["Head 0.1 is knocked out."],
        ["Head 0.1 looks at the first letter only."],
        ["Head 0.1 is frozen: it looks as it did at cab."],
        ["Head 0.1 looks as it does on average over all inputs."],
        ["Head 0.1 looks at everything alike."],
        [],
    ]
    page.keyboard.press("Shift+H")
    settled(page)
    assert edits(page) == seen[4]
    page.get_by_label("The whole head").select_option(label="knocked out")
    settled(page)
    assert edits(page) == seen[0]
    assert page.locator(".map .badge").inner_text() == "knocked out"


def test_the_python_lines_and_the_command_do_the_same(
    open_lab: Open, sorter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sorter, tmp_path / "runs" / "sorting")
    link = (
        "c0.1.4.1,s0.0.3.0.2,z0.0,r0.1,u0.1,m0.1.100000110000111000101100101110101111,a0.0,f0.1.bca"
    )
    for edited, kinds in (("", 0), (link, 8)):
        page = rested(open_lab(f"#{AT}&room=bench&in=cab&edits={edited}"))
        page.get_by_text("The same in Python").click()
        python, shell = page.locator(".code-part code").all_inner_texts()
        assert python.count("layer=0") == kinds
        exec(python, {})
        told = capsys.readouterr().out
        assert "c a b" in told or "with edits" in told
        run, *commands = shell.split("\n", 1)
        assert run == "attnlab run sorting --set recipe=fast"
        [words] = [
            shlex.split(line, comments=True)
            for line in commands[0].replace("\\\n", " ").splitlines()
            if not line.startswith("#")
        ]
        assert main(words[1:]) == 0
        assert words.count("--edit") == max(0, kinds - 2)
    assert "6 edits, native backend" in capsys.readouterr().out


# For everyone, from everywhere.


def test_the_story_can_be_told_by_keyboard_alone(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}"))
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.className || document.activeElement.id")
        )
        if reached[-1] == "heatmap":
            break
    assert reached[-1] == "heatmap"
    for key in ["ArrowDown"] * 3:
        page.keyboard.press(key)
    reading = page.locator(".map-reading").first
    assert reading.inner_text().startswith("Query 3 ‘SEP’ → key 0 ‘c’: weight")
    assert reading.get_attribute("aria-live") == "polite"
    page.keyboard.press("Enter")
    settled(page)
    assert edits(page) == ["Head 0.0: query 3 ‘SEP’ → key 0 ‘c’ is cut."]
    assert reading.inner_text() == "Query 3 ‘SEP’ → key 0 ‘c’: cut."
    assert page.evaluate("document.activeElement.className").startswith("heatmap")
    page.keyboard.press("x")
    settled(page)
    assert edits(page) == []
    page.locator(".dot[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settled(page)
    assert page.get_by_label("Input", exact=True).input_value() == "baa"


EDITED = f"{AT}&edits=c0.1.3.1,s0.0.3.0.2,z0.0,m0.1.100000110000111000101100101110101111"


@pytest.mark.parametrize(
    "link", sampled([f"bench&{EDITED}", "anatomy", f"play&{EDITED}", "design&head=copy_first"], 1)
)
def test_a_room_is_accessible_legible_and_never_scrolls_sideways(open_lab: Open, link: str) -> None:
    page = open_lab(f"#room={link}", bypass_csp=True)
    check_look(rested(page) if AT in link else settled(page))


PAYLOADS = [
    "<script>alert(1)</script>",
    "<svg onload=alert(1)>",
    "'><img src=x onerror=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "__proto__[x]=1",
    "%3Cscript%3Ealert(1)%3C/script%3E",
]


def test_nothing_that_a_link_or_a_reader_says_is_executed(open_lab: Open) -> None:
    page = rested(open_lab(f"#{AT}"))
    field = page.get_by_label("Input", exact=True)
    elements = page.locator("script, iframe, img, svg[onload], a[href^=javascript], style").count()
    for payload in PAYLOADS:
        field.fill(payload)
        for key in ("in", "edits", "room", "seed", "hide", payload):
            page.evaluate("hash => { location.hash = hash; }", f"#{key}={payload}")
        drawn(page)
        assert page.locator("#notice").is_visible(), payload
    found = page.locator("script, iframe, img, svg[onload], a[href^=javascript], style").count()
    assert found == elements


# The folder.


def test_the_folder_holds_three_files_of_at_most_100_kilobytes(playground: Path) -> None:
    files = {path.name: path.read_bytes() for path in playground.iterdir()}
    assert sorted(files) == ["index.html", "lab.css", "lab.js"]
    assert sum(len(gzip.compress(content)) for content in files.values()) <= 100_000
    page = files["index.html"].decode()
    assert "default-src 'none'" in page
    assert "unsafe" not in page
    assert not re.search(rb"https?://(?!www\.w3\.org/)", files["lab.js"] + files["lab.css"])


def test_every_part_of_the_page_is_in_its_script() -> None:
    script = bundle("attnlab_lab/served.js")
    folder = Path(static.__file__).parent
    for path in [
        folder / "app.js",
        folder / "words.js",
        *folder.glob("parts/*.js"),
        *folder.glob("rooms/*.js"),
    ]:
        assert path.read_text().splitlines()[0] in script
    assert "export" not in re.findall(r"^\w+", script, re.M)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", script)


def test_modules_of_the_page_import_what_they_use_and_export_what_is_imported() -> None:
    folder = Path(static.__file__).parent
    paths = [*folder.glob("*.js"), *folder.glob("parts/*.js"), *folder.glob("rooms/*.js")]
    texts = {path.name: path.read_text() for path in paths}
    imported = set()
    for name, text in texts.items():
        code = re.sub(r"//.*", "", text)
        for words in re.findall(r"^import \{([^}]+)\}", text, re.M):
            for word in (each.strip() for each in words.split(",")):
                assert len(re.findall(rf"\b{word}\b", code)) > 1, f"{name} does not use {word}"
                imported.add(word)
    for name, text in texts.items():
        exported = re.findall(r"^export (?:async )?(?:function|const) (\w+)", text, re.M)
        assert set(exported) <= imported, f"{name} exports what no module imports"


def test_the_page_of_the_docs_names_every_part_of_a_link() -> None:
    folder = Path(static.__file__).parent
    page = (Path(__file__).parents[4] / "docs" / "playground.md").read_text()
    script = (folder / "parts" / "link.js").read_text()
    lists = re.findall(
        r"^(?:export )?const (HIDEABLE|TASKS|FLAGS|ROOMS) = \[(.*?)\];$", script, re.M | re.S
    )
    assert len(lists) == 4
    named = [name for _, names in lists for name in re.findall(r'"(\w+)"', names)]
    named += re.findall(r"(\w+): \[\d", script)
    assert len(named) > 20
    assert [name for name in named if not re.search(rf"`{name}(=1)?`", page)] == []
    kinds = re.findall(r'letter: "(\w)"', (folder / "parts" / "edits.js").read_text())
    assert sorted(set(kinds)) == sorted(re.findall(r"^\| [^|]+ \| `(\w)` [A-Z]", page, re.M))


@pytest.mark.slow
def test_a_clicked_room_is_entered_whatever_the_page_writes_meanwhile(
    open_lab: Open,
) -> None:
    page = rested(open_lab(f"#{AT}"))
    page.evaluate(
        """() => {
          document.querySelector('#rooms [data-room="bench"]').click();
          document.querySelector('#tools button').click(); // Copy link
        }"""  # which writes the address at once, before the page hears of the click
    )
    page.locator('#rooms [data-room="bench"][aria-current="page"]').wait_for(timeout=5_000)
    assert "room=bench" in page.url
