"""The editor of the Course room: what is typed stays as it is typed, by keyboard and offline."""

import gzip
import re
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from attnlab_lab.server import course_answers
from attnlab_lab.server.guard import HEADERS
from tests.sampling import sampled

from .playing import (
    read_code,
    replace_in_script,
    settled,
    tamper,
    violations,
    write_code,
)
from .serving import PATIENCE, Lab, opened_room

PART = "body[data-busy=false] .statement h2"
VENDORED = resources.files("attnlab_lab") / "codemirror"
CODE = 'def attention(query):\n    # a remark\n    return "text", 12, None\n'
AWKWARD = {
    "line ends of Windows": "a = 1\r\nb = 2\r\n",
    "old line ends": "a = 1\rb = 2\r\n\r\nc",
    "tabs and blanks": "if a:\n\tb\n  \t \n\n\n    c   ",
    "other scripts": "é = 'e\u0301 ß 日本語 עברית 😀👩‍👩‍👧'\n",
    "odd blanks": "a\u00a0=\u20281\u200b\ufeff\u0085\n",
    "brackets": 'f("{a}", [(1, 2)], \'</script>\', """x\n""")',
    "nothing": "",
}


@pytest.fixture
def opened(open_room: Any) -> Callable[..., Any]:
    """Open the room at an exercise, and wait for the editor."""

    def open_it(name: str = "attention") -> Any:
        page = open_room("course", PART, exercise=name)
        page.locator(".code-editor").wait_for()
        return page

    return open_it


@pytest.fixture
def strict(browser: Any, window: Any, lab: Lab) -> Iterator[Callable[..., Any]]:
    """Open the room in a browser that keeps to the page's content policy; `alter` its script."""
    context = browser.new_context(storage_state=window.storage_state())

    def open_it(*alter: str) -> Any:
        page = context.new_page()
        if alter:
            replace_in_script(page, *alter)
        page.add_init_script(
            "window.refused = []; addEventListener('securitypolicyviolation',"
            " event => refused.push(event.violatedDirective))"
        )
        return opened_room(context, lab, "course", PART, page, exercise="attention")

    yield open_it
    context.close()


def another_module(route: Any) -> None:
    """Answer with a module that is no editor."""
    route.fulfill(body="export const no = 1;", content_type="text/javascript")


def sent(page: Any) -> str:
    """Check what is typed, and return what was sent."""
    with page.expect_response("**/api/course/check", timeout=PATIENCE * 1000) as told:
        page.get_by_role("button", name="Check", exact=True).click()
    settled(page)
    return str(told.value.request.post_data_json["code"])


def as_a_field_holds(text: str) -> str:
    """Return a text as a field of HTML holds it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


# What is typed.


@pytest.mark.parametrize("kind", sampled(AWKWARD, ["other scripts"]))
def test_an_answer_is_sent_and_copied_as_it_was_pasted(opened: Any, kind: str) -> None:
    page, text = opened(), AWKWARD[kind]
    tamper(page, "/api/course/check", lambda told: told.update(broken="not looked at"))
    write_code(page, text)
    assert sent(page) == read_code(page) == as_a_field_holds(text)


@pytest.mark.slow
def test_an_answer_comes_back_from_the_folder_byte_for_byte(opened: Any, home: Path) -> None:
    text = as_a_field_holds(AWKWARD["tabs and blanks"] + AWKWARD["other scripts"])
    page = opened("softmax")
    write_code(page, text)
    sent(page)
    assert (home / "course" / "softmax.py").read_bytes().endswith(text.encode())
    page.reload()
    page.wait_for_selector(PART)
    assert read_code(page) == text


@pytest.mark.slow
def test_drafts_stay_and_undo_never_reaches_into_another_exercise(opened: Any) -> None:
    page = opened("softmax")
    write_code(page, "one = 1\n")
    page.get_by_label("Exercise").select_option("causal_mask")
    page.locator(".statement h2", has_text="mask").wait_for()
    settled(page)
    second = read_code(page)
    assert "one = 1" not in second
    page.keyboard.press("Control+z")
    assert read_code(page) == second
    page.get_by_label("Exercise").select_option("softmax")
    page.locator(".statement h2", has_text="Softmax").wait_for()
    settled(page)
    assert read_code(page) == "one = 1\n"


# Keys.


def test_everything_can_be_done_by_keyboard(opened: Any) -> None:
    page = opened()
    page.get_by_text("Your answer", exact=True).click()  # the label
    page.keyboard.press("Control+a")
    for line in ("def softmax(x, dim):", "if True:", "return x.softmax(dim)"):
        page.keyboard.type(line)
        page.keyboard.press("Enter")
    page.keyboard.type("else:")
    page.keyboard.press("Enter")
    page.keyboard.type("pass")
    lines = ["def softmax(x, dim):", "    if True:", "        return x.softmax(dim)"]
    code = "\n".join([*lines, "    else:", "        pass"])
    assert read_code(page) == code
    page.keyboard.press("Control+End")
    page.keyboard.press("Tab")
    assert read_code(page) == f"{code}    "
    page.keyboard.press("Tab")  # all lines
    assert read_code(page) == "\n".join(f"    {line}" for line in f"{code}    ".split("\n"))
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert read_code(page) == code
    with page.expect_response("**/api/course/check", timeout=PATIENCE * 1000):
        page.keyboard.press("Control+Enter")
    settled(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")  # it indents again
    assert page.evaluate("document.activeElement.className") == "code-editor"
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.className") == "scroll"  # of the statement


KEYS = "z?Zaep"  # of which some do something in a room


@pytest.mark.slow
def test_no_key_that_is_typed_is_one_of_the_page(opened: Any, strict: Any) -> None:
    page = opened()
    write_code(page, "")
    page.keyboard.type(KEYS)
    assert read_code(page) == KEYS
    page = strict('host.addEventListener("keydown", (event) => event.stopPropagation());', "")
    write_code(page, "")
    page.keyboard.type(KEYS)
    assert read_code(page) != KEYS


# What is seen and heard.

COLORS = """host => {
  const color = node => getComputedStyle(node).color;
  const probe = document.body.appendChild(document.createElement("i"));
  const named = name => (probe.style.color = `var(--${name})`, color(probe));
  const names = Object.fromEntries(["ink", "muted", "hue-0", "hue-1", "hue-2", "hue-3"]
    .map(name => [named(name), name]));
  const spans = [...host.shadowRoot.querySelectorAll(".cm-line span")];
  probe.remove();
  return Object.fromEntries(spans.map(span => [span.textContent, names[color(span)]]));
}"""


# Lines that a check names.


@pytest.mark.slow
def test_the_line_that_an_error_names_is_marked_and_moves_with_the_text(opened: Any) -> None:
    page = opened()
    marked = page.locator(".cm-line.marked")
    write_code(page, "import torch\n\ndef attention(:\n    pass\n")
    sent(page)
    assert "(line 3)" in page.locator(".feedback").inner_text()
    assert marked.all_inner_texts() == ["def attention(:"]
    page.keyboard.press("Control+Home")
    page.get_by_label("Your answer").press("Enter")
    assert marked.all_inner_texts() == ["def attention(:"]
    write_code(page, f"{CODE}\nclass One:\n    self = False  # 'text'\n\none = 'text'[4]  # 1\n")
    sent(page)
    assert marked.count() == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations(page, ["color-contrast"]) == []
    page.emulate_media(color_scheme="light")
    page.evaluate("document.documentElement.style.setProperty('--hue-3', '#80a090')")
    assert [name for name, _ in violations(page, ["color-contrast"])] == ["color-contrast"]
    write_code(page, "def attention(query, key, value, mask=None):\n    return query / 0 / None\n")
    sent(page)
    assert "(line 2)" in page.locator(".feedback").inner_text()
    assert marked.all_inner_texts() == ["    return query / 0 / None"]
    write_code(page, "def attention(query, key, value, mask=None):\n    return query, query\n")
    sent(page)
    assert marked.count() == 0


def test_a_line_counted_in_the_file_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        told = course_answers.WORK["check_exercise"](str(tmp_path), "attention", "\nraise\n")
        return str(told["broken"])

    assert broken().endswith("(line 2)")
    read, check = course_answers.starter_program, course_answers.check_program

    def check_the_file(exercise: Any, code: str, *more: Any) -> Any:
        return check(
            exercise, read([*texts(exercise), course_answers.NotebookCell("code", code)]), *more
        )

    def texts(exercise: Any) -> Any:
        return course_answers._texts(course_answers.starter_cells(exercise.source, exercise.name))

    monkeypatch.setattr(course_answers, "check_program", check_the_file)
    assert not broken().endswith("(line 2)")


# How it is loaded.


@pytest.mark.slow
def test_what_is_typed_while_it_loads_stays_with_its_cursor(opened: Any, context: Any) -> None:
    page, held = context.new_page(), []
    page.route("**/codemirror.js", lambda route: held.append(route))  # noqa: PLW0108
    page.goto(opened().url)
    page.wait_for_selector(PART)
    field = page.get_by_label("Your answer")
    field.fill("one three")
    field.press("Home")
    for _ in "one ":
        field.press("ArrowRight")
    assert field.evaluate("node => node.localName") == "textarea"
    held[0].continue_()
    page.locator(".code-editor").wait_for()
    page.keyboard.type("two ")
    assert read_code(page) == "one two three"
    assert sent(page) == "one two three"


FAILURES = {
    "no answer": lambda route: route.abort(),
    "no module": lambda route: route.fulfill(body="not( a module", content_type="text/javascript"),
    "another module": another_module,
}


@pytest.mark.parametrize("failure", sampled(FAILURES, 1))
def test_without_it_a_plain_field_checks_all_the_same(window: Any, lab: Lab, failure: str) -> None:
    page = window.new_page()
    page.route("**/codemirror.js", FAILURES[failure])
    opened_room(window, lab, "course", PART, page, exercise="attention")
    page.get_by_text("The editor could not be loaded").wait_for()
    field = page.get_by_label("Your answer")
    assert field.evaluate("node => node.localName") == "textarea"
    field.fill("def attention(:")
    assert sent(page) == "def attention(:"
    assert "SyntaxError" in page.locator(".feedback").inner_text()
    field.focus()
    field.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check"
    page.close()


def test_it_needs_nothing_of_the_content_policy(strict: Any) -> None:
    policy = HEADERS[b"content-security-policy"].decode()
    assert "unsafe" not in policy
    assert "style-src" not in policy  # so it is 'self'
    page = strict()
    page.locator(".code-editor").wait_for()
    write_code(page, CODE)
    assert page.locator(".code-editor").evaluate(COLORS)["def"] == "hue-2"
    for keys in ("insert_text", "type"):  # over all that stands there
        page.get_by_label("Your answer").press("Control+a")
        getattr(page.keyboard, keys)(CODE)
        assert read_code(page).replace(" ", "") == CODE.replace(" ", "")
    assert page.evaluate("refused") == []
    page = strict("beforeinput: typeOver,", "")
    write_code(page, CODE)
    page.get_by_label("Your answer").press("Control+a")
    page.keyboard.insert_text(CODE)
    assert "style-src-attr" in page.evaluate("refused")
    page = strict("new EditorView({ root, parent: root })", "new EditorView({ parent: host })")
    page.locator(".code-editor").wait_for()
    assert "style-src-elem" in page.evaluate("refused")


# The file.


def test_the_file_is_of_the_versions_that_its_recipe_names_and_its_licence_names_each() -> None:
    recipe, licence = (VENDORED / name for name in ("build.sh", "LICENSE"))
    (named,) = re.findall(r'^packages="([^"]+)"', recipe.read_text(), re.M)
    packages = named.split()
    assert len(packages) > 10
    script = (VENDORED / "codemirror.js").read_text()
    assert script.splitlines()[0].partition("build.sh: ")[2].split() == packages
    assert re.findall(r"^(\S+): Copyright", licence.read_text(), re.M) == packages
    assert "Permission is hereby granted, free of charge" in licence.read_text()


def test_the_file_is_small_and_fetches_nothing() -> None:
    script = (VENDORED / "codemirror.js").read_bytes()
    assert len(gzip.compress(script)) <= 125_000
    assert not re.search(rb"\bfetch\(|XMLHttpRequest|import\(|\beval\(|new Function", script)
    assert not re.search(rb"https?://(?!www\.w3\.org/)", script)
