"""Somebody opens the lab, goes through its rooms, and does one thing in each."""

import re

import pytest

from tests.journeys.conftest import Home, Lab
from tests.lab.playing import click_cell, dots, edits, settled, write_code
from tests.pretrained.speaking import saved

CLEAN = "John and Mary went to the store. John gave a drink to"
CORRUPTED = "John and Mary went to the store. Mary gave a drink to"
CALM = {"reduced_motion": "reduce"}


def go(page, *rooms):
    """Click from room to room; none begins or ends with an error."""
    for room in rooms:
        page.get_by_role("link", name=room, exact=True).last.click()
        page.locator(f".room-link[aria-current=page]:text-is('{room}')").first.wait_for()
    see_no_error(page)


def see_no_error(page):
    settled(page)
    assert page.locator(".notice:visible").all_inner_texts() == []


def said_in(page, part):
    return page.locator(f"section.{part} .said").inner_text()


def play(page):
    page.wait_for_selector("body[data-state=done]")
    assert all(dots(page).values())
    click_cell(page, 0, 3, 0)
    assert len(edits(page)) == 1


def work_on_the_bench(page):
    last = page.locator(".stepper-part .said").inner_text()
    page.get_by_role("button", name="Previous step").click()
    settled(page)
    assert page.locator(".stepper-part .said").inner_text() != last


def design(page):
    page.get_by_role("button", name="Nothing", exact=True).click()
    page.get_by_text("The first that fails:").first.wait_for()


def move(page, setting, place):
    page.locator(f"#set-{setting}").fill(str(place))
    settled(page)


def take_attention_apart(page):
    """All six experiments answer, and each answers anew when its control is moved."""
    first = {part: said_in(page, part) for part in GESTURES}
    assert all(first.values()), first
    for part, gesture in GESTURES.items():
        gesture(page)
        settled(page)
        assert said_in(page, part) != first[part], part


def paint_a_mask(page):
    page.locator("section.masks canvas").last.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")


def press_in(part, name):
    return lambda page: page.locator(f"section.{part}").get_by_role("button", name=name).click()


GESTURES = {
    "scaling": lambda page: move(page, "width", 9),
    "masks": paint_a_mask,
    "hiding": press_in("hiding", "Mask all eight keys"),
    "order": press_in("order", "rotary"),
    "norms": press_in("norms", "Double all"),
    "costs": lambda page: move(page, "length", 1),
}


def write_an_answer(page):
    write_code(page, "def softmax(x, dim=-1):\n    return x")
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_text("The smallest case that fails").first.wait_for()


def watch_a_run(page):
    page.get_by_role("button", name="sorting", exact=True).click()
    claim = page.locator(".run-claims li").first
    assert "every one of the 27 inputs is answered right" in claim.inner_text().lower()
    claim.locator("summary").click()
    assert "Measured:" in claim.inner_text()


def find_none(page):
    page.get_by_text(re.compile("There is no (population|sweep) yet")).wait_for()


def look_at_a_model(page):
    page.get_by_role("button", name="sorting", exact=True).click()
    page.get_by_role("button", name="Knock out head 0.0").click()
    page.get_by_role("button", name="Give head 0.0 back").wait_for()
    assert edits(page) == ["Head 0.0 is knocked out."]


def prove_a_program(page):
    page.get_by_role("button", name="Compile and prove").click()
    page.locator("#status", has_text="proved on all").wait_for()


LEARN = {
    "Play": play,
    "Bench": work_on_the_bench,
    "Design": design,
    "Anatomy": take_attention_apart,
}
WORK = {
    "Course": write_an_answer,
    "Runs": watch_a_run,
    "Populations": find_none,
    "Sweeps": find_none,
    "Models": look_at_a_model,
    "Programs": prove_a_program,
}


def visit_rooms(page, rooms):
    for room, gesture in rooms.items():
        go(page, room)
        gesture(page)
        see_no_error(page)


@pytest.fixture(scope="module")
def lab(home_folder, warm):
    """One lab for all stories, over a short run and a tiny language model in a folder."""
    home = Home(home_folder, home_folder / "lab", warm)
    home.here.mkdir()
    home.run("attnlab run sorting -q --set steps=40 evaluate_every=20", status=1)
    saved("gpt2", home.here / "runs" / "models" / "tiny")
    lab = Lab(home)
    yield lab
    lab.end()


def test_every_room_of_the_page_from_disk_does_its_work(home, visit):
    home.run("attnlab lab --static playground")
    page = visit(home.here / "playground" / "index.html", **CALM)
    assert page.locator(".room-link").all_inner_texts() == list(LEARN)
    visit_rooms(page, LEARN)


def test_every_room_of_the_lab_does_its_work(lab, visit):
    page = visit(lab.address(), **CALM)
    go(page, *LEARN)  # what these do is the other page's, but for what is asked of the server
    visit_rooms(page, {"Anatomy": take_attention_apart} | WORK)
    for width, rows in ((1280, 1), (390, 3)):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        assert page.locator("#rooms .room-link:visible").count() == 8, width
        assert count_rows(page.locator(".brand")) == rows, width
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def count_rows(head):
    parts = head.locator(".name, a:visible, button:visible")
    boxes = parts.evaluate_all("all => all.map(node => node.getBoundingClientRect())")
    return len({round((box["top"] + box["bottom"]) / 20) for box in boxes})


def test_a_second_browser_is_told_what_to_do_and_does_it(lab, browser, visit):
    address = lab.address()
    first = visit(address)
    first.get_by_role("link", name="Anatomy").click()
    second = browser.new_page()
    second.goto(address)
    assert "press Enter: it shows a new address" in second.locator("main").inner_text()
    second.goto(lab.address())
    second.get_by_role("link", name="Anatomy").click()
    for page in (first, second):
        page.locator("section.scaling .said", has_text="d_k").wait_for()
    second.close()


def test_what_is_wrong_is_said_beside_it_and_no_old_answer_stands_there(lab, browser):
    page = browser.new_page(**CALM)  # its console says which requests were refused
    page.goto(lab.address())
    page.wait_for_selector("body[data-state=done]")
    page.get_by_label("Input", exact=True).fill("xyz")
    page.get_by_text("Expected three letters from a to c, such as cab; got “xyz”.").wait_for()
    assert not page.locator(".answer .letters").is_visible()
    page.get_by_label("Input", exact=True).fill("bca")
    page.locator(".answer .letters").wait_for()
    go(page, "Runs")
    page.locator("#setting-letters").fill("99")
    page.locator(".run-form .message", has_text="letters").wait_for()
    page.get_by_role("link", name="Models", exact=True).click()
    page.get_by_label("Model", exact=True).fill("nosuchmodel")
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".notice", has_text="there is no run, folder or file 'nosuchmodel'").wait_for()
    page.get_by_role("button", name="runs/models/tiny").click()
    page.get_by_label("Clean text").fill(CLEAN)
    page.get_by_label("Corrupted text").fill(CORRUPTED + " the")
    page.get_by_role("button", name="Patch each place").click()
    page.locator(".patch-part .message", has_text="13: 'John'").wait_for()
    page.close()


def test_the_picture_of_patching_shows_where_two_texts_differ(lab, visit):
    page = visit(lab.address(), **CALM)
    go(page, "Models")
    page.get_by_role("button", name="runs/models/tiny").click()
    page.get_by_label("Clean text").fill(CLEAN)
    page.get_by_label("Corrupted text").fill(CORRUPTED)
    page.get_by_role("button", name="Patch each place").click()
    picture = page.locator(".patch-result")
    picture.get_by_role("heading", name=re.compile("Share of the logit")).wait_for()
    canvas = picture.locator("canvas")
    canvas.scroll_into_view_if_needed()
    told, box = canvas.evaluate("node => ({...node.dataset})"), canvas.bounding_box()
    sizes = [float(told[name]) for name in ("left", "top", "cellWidth", "cellHeight")]
    found = []
    for position in (7, 8, 9):
        x, y = sizes[0] + (position + 0.5) * sizes[2], sizes[1] + 0.5 * sizes[3]
        page.mouse.click(box["x"] + x, box["y"] + y)
        found.append(picture.locator(".patch-cell").inner_text())
    assert [re.search(r"share (\S+);", words)[1] for words in found] == ["0", "1", "0"], found
    assert found[1].startswith("Before layer 0, position 8 ‘␣John / ␣Mary’: share 1; logit of ")
    see_no_error(page)
