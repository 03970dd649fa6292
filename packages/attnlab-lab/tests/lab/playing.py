"""The playground in a browser: opened from disk or from a server, read and driven by its parts."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.draw.views import CONTRASTS

Open = Callable[..., Any]

MOVING = {"reduced_motion": "no-preference"}
"""What opens a page that shows a training as it goes."""


def trained(page: Any) -> Any:
    """Wait until the training is over, and what it led to is shown."""
    page.wait_for_selector("body[data-state=done]", timeout=60_000)
    return settled(page)


def rested(page: Any) -> Any:
    """Wait until the training paused where the link says, and the edits of the link are there."""
    page.wait_for_selector("body[data-state=rests]", timeout=60_000)
    return settled(page)


def settled(page: Any) -> Any:
    """Wait until the page shows what the engine said last."""
    page.wait_for_selector("body[data-busy=false]")
    return drawn(page)


def drawn(page: Any) -> Any:
    """Wait until the page has drawn."""
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => setTimeout(drawn)))")
    return page


def enter(page: Any, room: str) -> None:
    """Go to a room by its link, and wait until its page is there (a click is followed later)."""
    page.get_by_role("link", name=room, exact=True).click()
    page.locator(f"#rooms [aria-current=page]:text-is('{room}')").wait_for()
    settled(page)


FOLLOW = """link => new Promise(followed => {
  const heard = () => requestAnimationFrame(() => setTimeout(followed));
  addEventListener("hashchange", heard, { once: true });
  location.hash = link;
})"""


def follow(page: Any, link: str) -> None:
    """Follow another link within the page, and wait until the page has heard of it."""
    page.evaluate(FOLLOW, link)


def at_cell(page: Any, head: int, query: int, key: int) -> tuple[float, float]:
    """Where a square of a map is on the screen, as (x, y)."""
    canvas = page.locator("canvas.heatmap").nth(head)
    canvas.evaluate("node => node.scrollIntoView({ block: 'center' })")  # not below the line on top
    box, told = canvas.bounding_box(), canvas.evaluate("node => ({...node.dataset})")
    return (
        box["x"] + float(told["left"]) + (key + 0.5) * float(told["cellWidth"]),
        box["y"] + float(told["top"]) + (query + 0.5) * float(told["cellHeight"]),
    )


def click_cell(page: Any, head: int, query: int, key: int) -> None:
    """Click a square of a map, and wait for what comes of it."""
    page.mouse.click(*at_cell(page, head, query, key))
    settled(page)


READ = """(canvas, [rows, columns]) => {
  const reading = canvas.parentElement.querySelector(".map-reading");
  const press = key => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const told = [];
  canvas.focus();
  press("PageUp");
  for (const row of Array(rows).keys()) {
    press("Home");
    for (const column of Array(columns).keys()) {
      told.push(reading.textContent);
      press("ArrowRight");
    }
    press("ArrowDown");
  }
  return told;
}"""


def cells(canvas: Any, rows: int, columns: int) -> list[str]:
    """What a map says of each of its cells, read by the keys."""
    return list(canvas.evaluate(READ, [rows, columns]))


def dots(page: Any) -> dict[str, bool]:
    """Which inputs are right, by the dots."""
    return dict(
        page.locator(".dot").evaluate_all(
            "all => all.map(dot => [dot.textContent, dot.classList.contains('right')])"
        )
    )


def answers(page: Any) -> list[str]:
    """The answers that are shown: before the edits and after, or just one."""
    return [
        "".join(shown.locator(".letter").all_inner_texts())
        for shown in page.locator(".answer .letters").all()
    ]


def margin(page: Any) -> float:
    """The smallest margin, as the page writes it."""
    text = page.locator(".margin-value").inner_text().split()[0]
    return float(text.replace("−", "-"))


def edits(page: Any) -> list[str]:
    """The edits in words."""
    return [
        each.removesuffix("×").strip()
        for each in page.locator(".edits li:not(.note)").all_inner_texts()
    ]


def state(page: Any) -> tuple[Any, ...]:
    """All that a link should bring back: the maps' pixels too."""
    pixels = page.locator("canvas.heatmap").evaluate_all("all => all.map(each => each.toDataURL())")
    return dots(page), answers(page), margin(page), edits(page), pixels


def tamper(page: Any, address: str, alter: Callable[[Any], None]) -> None:
    """Change the server's answers at an address before the page hears them."""

    def answer(route: Any) -> None:
        own = {**route.request.headers, "sec-fetch-site": "same-origin"}
        told = route.fetch(headers=own).json()
        alter(told)
        route.fulfill(json=told)

    page.route(re.compile(address), answer)


def replace_in_script(page: Any, old: str, new: str) -> None:
    """Replace a piece of the page's script before the page reads it."""

    def answer(route: Any) -> None:
        own = {**route.request.headers, "sec-fetch-site": "same-origin"}
        script = route.fetch(headers=own).text()
        assert script.count(old) == 1
        route.fulfill(body=script.replace(old, new), content_type="text/javascript")

    page.route("**/lab.js", answer)


def violations(page: Any, rules: list[str] | None = None) -> list[tuple[str, str]]:
    """What the accessibility checks of axe find, and where: all of them, or those named."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    options = {"preload": False, **({"runOnly": rules} if rules else {})}
    found = axe.Axe().run(page, options=options).response["violations"]
    return [(each["id"], each["nodes"][0]["html"][:100]) for each in found]


def check_look(page: Any) -> None:
    """Check that a page fits any width, is legible, and that axe finds nothing."""
    page.locator("details").evaluate_all("all => all.forEach(each => (each.open = true))")
    for width in (360, 390, 768, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1280, "height": 900})
    for scheme in ("dark", "light"):  # which changes colors alone
        page.emulate_media(color_scheme=scheme)
        drawn(page)
        assert [each for each in page.evaluate(CONTRASTS) if each[0] < 4.5] == []
    assert violations(page) == []


def press(page: Any, name: str) -> None:
    """Press the button of that name, and wait for what comes of it."""
    page.get_by_role("button", name=name, exact=True).click()
    settled(page)


CLIPBOARD = """(field, [kind, text]) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  field.dispatchEvent(new ClipboardEvent(kind, { clipboardData, bubbles: true, cancelable: true }));
  return clipboardData.getData("text/plain");
}"""


def write_code(page: Any, text: str) -> None:
    """Paste a text over what stands in the editor of the Course."""
    page.locator(".code-editor").wait_for()
    field = page.get_by_label("Your answer")
    field.press("Control+a")
    field.evaluate(CLIPBOARD, ["paste", text])


def read_code(page: Any) -> str:
    """Copy what stands in the editor of the Course."""
    page.locator(".code-editor").wait_for()
    field = page.get_by_label("Your answer")
    field.press("Control+a")
    return str(field.evaluate(CLIPBOARD, ["copy", ""]))
