"""The room Programs in a browser: its values, proofs and heads are those that Python computes."""

import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

import attnlab
from attnlab import programs
from attnlab.programs import Program, compile_program, interpret, library, prove_program
from attnlab.programs.interpreter import ProgramValues, ids_of
from attnlab.programs.program_text import read_lines, read_program
from attnlab_lab.server import program_answers
from tests.sampling import sampled

from .playing import cells, check_look, press, settled, tamper
from .serving import PATIENCE, asked

WAIT = PATIENCE * 1000
SORT = """smaller = select(tokens, tokens, "<")
equal_and_before = select(tokens, tokens, "==") & select(indices, indices, "<")
place = selector_width(smaller | equal_and_before)
output = aggregate(select(place, indices, "=="), tokens)"""
LIBRARY: dict[str, Callable[[Any], Program]] = {
    "sort": library.sort,
    "reverse": library.reverse,
    "hist": library.hist,
    "dyck-1": library.dyck_1,
    "induction": library.induction,
    "majority so far": lambda alphabet: library.majority_so_far(alphabet, "a"),
}


@pytest.fixture
def opened(open_room: Any) -> Any:
    """Open the room with what a link says."""
    return partial(open_room, "programs", ".line-values td")


def table(page: Any) -> list[tuple[str, list[str]]]:
    """What each line says: its number and name, and the words of its cells."""
    settled(page)
    rows = page.locator(".line-values tbody tr").evaluate_all(
        "all => all.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return [(name, words) for name, *words in rows]


def expected(text: str, alphabet: str, example: str) -> list[tuple[str, list[str]]]:
    """What Python computes for each line."""
    meaning = ProgramValues(
        Program(programs.tokens, alphabet), ids_of(Program(programs.tokens, alphabet), example)
    )
    found = []
    for each in read_lines(text, alphabet):
        if isinstance(each.value, programs.language.Selector):
            words = []
            for query in meaning.selected(each.value)[0]:
                keys = [f"{key} ‘{example[key]}’" for key in query.nonzero()[0]]
                words.append(f"keys {', '.join(keys)}" if keys else "no key")
        else:
            words = list(map(str, meaning.of(each.value).row(0)))
        found.append((f"{each.line.number} {each.name}", words))
    return found


def fill(page: Any, label: str, text: str) -> None:
    """Type into a field, and wait for the values."""
    field = page.get_by_label(label)
    with page.expect_response(re.compile("programs/steps")):
        field.fill(text)
    settled(page)


def prove(page: Any) -> str:
    """Press the button, and return the verdict."""
    press(page, "Compile and prove")
    page.wait_for_selector(".proof-part h2", timeout=WAIT)
    settled(page)
    return str(page.locator(".proof-part h2").inner_text())


def check_heads(page: Any, text: str, alphabet: str, example: str, longest: int) -> None:
    """Check every map against the program and its model in Python."""
    program = read_program(text, alphabet)
    compiled = compile_program(program, longest)
    ids = compiled.ids([example])
    with torch.no_grad(), attnlab.record(compiled.model, "*weights") as recording:
        compiled.logits(ids)
    size, first = len(example), int(compiled.has_bos)
    titles = page.locator(".line-heads .map-head h3").all_inner_texts()
    heads = [title.removeprefix("Head ") for title in titles if title.startswith("Head")]
    assert sorted(heads) == sorted(compiled.heads)
    for section in page.locator(".line-heads").all():
        number, source = re.fullmatch(
            r"Line (\d+)\s+(.*)", section.locator("h3").first.inner_text()
        ).groups()
        for title, canvas in zip(
            section.locator(".map-head h3").all_inner_texts(),
            section.locator("canvas.heatmap").all(),
            strict=True,
        ):
            told = cells(canvas, size, size + first)
            if title.startswith("Head"):
                name = title.removeprefix("Head ")
                assert compiled.heads[name] == f"program:{number}  {source}"
                layer, head = map(int, name.split("."))
                weights = recording[f"layers.{layer}.attention.weights"][0, head, first:]
                found = [float(each.rpartition("weight ")[2].rstrip(".")) for each in told]
                assert found == pytest.approx(weights.flatten().tolist(), rel=1e-3, abs=1e-30)
                assert sum("→ BOS" in each for each in told) == size * first
            else:
                assert sum("BOS is not in the program" in each for each in told) == size * first
    chosen = page.locator(".line-heads canvas.heatmap").first
    selector = programs.interpreter.sequences_of(program.output)
    widths = [
        each
        for each in selector
        if isinstance(each, programs.language.Width | programs.language.Aggregate)
    ]
    selected = ProgramValues(program, ids_of(program, example)).selected(widths[0].selector)[0]
    told = [each for each in cells(chosen, size, size + first) if "BOS" not in each]
    assert [each.endswith(": selected.") for each in told] == selected.flatten().tolist()


def test_a_program_is_typed_mended_proved_and_its_heads_have_its_lines(opened: Any) -> None:
    page = opened()
    assert table(page) == expected(SORT, "abc", "cab")
    fill(page, "Example", "bacb")
    assert table(page) == expected(SORT, "abc", "bacb")
    other = SORT.replace(
        'smaller = select(tokens, tokens, "<")', 'smaller = select(tokens, tokens, ">")'
    )
    fill(page, "Program", other)
    assert table(page) == expected(other, "abc", "bacb")
    wrong = other.replace("indices, ", "indexes, ", 1)
    fill(page, "Program", wrong)
    rows = table(page)
    assert rows[1][1][0].startswith("there is no indexes above; did you mean 'indices'?")
    assert rows[2][1] == ["equal_and_before has no value because line 2 is refused."]
    assert page.locator("#program-said").inner_text().startswith("Line 2, equal_and_before: there")
    assert page.locator("#program-text").get_attribute("aria-invalid") == "true"
    press(page, "Compile and prove")
    page.get_by_text("Line 2: there is no indexes above").wait_for(timeout=WAIT)
    assert page.locator(".proof-part h2").count() == 0
    fill(page, "Program", other)
    assert page.locator("#program-text").get_attribute("aria-invalid") == "false"
    page.locator("#choice-longest").select_option("4")
    compiled = compile_program(read_program(other, "abc"), 4)
    proof = prove_program(compiled, read_program(other, "abc"))
    assert (
        prove(page)
        == str(proof).split("\n")[0]
        == "program: proved on all 120 inputs of up to 4 tokens"
    )
    facts = page.locator(".proof-part .facts dd").all_inner_texts()
    config = compiled.model.config
    assert facts[0] == (
        f"{config.num_layers} layers of {config.num_heads} heads of width {config.head_width}, "
        f"stream {config.d_model}, hidden {config.inner_width}"
    )
    assert float(facts[1].split(";")[0]) == pytest.approx(proof.margin, rel=2e-3)
    check_heads(page, other, "abc", "bacb", 4)
    fill(page, "Example", "ab")  # the proof of an older question is gone
    assert page.locator(".proof-part h2").count() == 0


@pytest.mark.slow
def test_a_link_brings_the_program_back(context: Any, opened: Any) -> None:
    page = opened()
    own = 'here = tokens == "(" # a & b\noutput = where(here, "+", "%")'
    fill(page, "Program", own)
    fill(page, "Alphabet", "()")
    fill(page, "Example", "(()")
    page.locator("#choice-longest").select_option("4")
    page.wait_for_function("() => location.hash.includes('longest=4')")
    again = context.new_page()
    again.goto(page.url)
    again.wait_for_selector(".line-values td", timeout=WAIT)
    assert again.locator("#program-text").input_value() == own
    assert table(again) == table(page) == expected(own, "()", "(()")
    assert again.locator("#choice-program").input_value() == ""
    assert prove(again) == "program: proved on all 30 inputs of up to 4 tokens"
    assert again.locator(".proof-part canvas").count() == 0
    again.evaluate(f"location.hash = '#v=1&room=programs&program={quote('output = indices')}'")
    again.wait_for_function(
        "() => document.querySelector('#program-text').value.endsWith('indices')"
    )
    assert table(again) == expected("output = indices", "abc", "cab")


@pytest.mark.slow
def test_every_program_of_the_menu_is_that_of_the_library(opened: Any) -> None:
    page = opened()
    names = page.locator("#choice-program option").evaluate_all("all => all.map(o => o.value)")
    assert names == list(LIBRARY)
    for name in names:
        with page.expect_response(re.compile("programs/steps")):
            page.locator("#choice-program").select_option(name)
        settled(page)
        text = page.locator("#program-text").input_value()
        alphabet, example = (
            page.get_by_label(each).input_value() for each in ("Alphabet", "Example")
        )
        assert table(page) == expected(text, alphabet, example)
        program, known = read_program(text, alphabet), LIBRARY[name](alphabet)
        for length in range(1, 4):
            for letters in itertools.product(alphabet, repeat=length):
                assert interpret(program, letters) == interpret(known, letters)
        if name == "dyck-1":
            longest = int(page.locator("#choice-longest").input_value())
            assert prove(page).startswith(f"program: proved on all {2 ** (longest + 1) - 2} inputs")
            check_heads(page, text, alphabet, example, longest)


def test_the_python_lines_and_the_command_do_the_same(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    page = opened()
    page.locator(".code-part summary").click()
    python, command = page.locator(".code-part pre").all_inner_texts()
    names: dict[str, Any] = {}
    exec(python, names)
    assert "proved on all 1,092 inputs" in capsys.readouterr().out
    assert names["program"].alphabet == ("a", "b", "c")
    assert interpret(names["program"], "cab") == ["a", "b", "c"]
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(python)
    assert command == "attnlab compile program.py --length 6 --example cab"
    assert attnlab.cli.main(command.split()[1:]) == 0
    assert "proved on all 1,092 inputs" in capsys.readouterr().out


def of_another_example(told: dict[str, Any]) -> None:
    """Show the values of another input."""
    steps = program_answers.WORK["program_steps"](SORT, "abc", "bca")
    told["lines"] = steps["lines"]


def heads_of_another_line(told: dict[str, Any]) -> None:
    one, two = told["lines"]
    one["source"], two["source"] = two["source"], one["source"]


def turned_selector(told: dict[str, Any]) -> None:
    selector = told["lines"][0]["selectors"][0]
    selector["selected"] = [list(row) for row in zip(*selector["selected"], strict=True)]


def wrong_weight(told: dict[str, Any]) -> None:
    one, two = told["lines"][0]["heads"]
    one["weights"], two["weights"] = two["weights"], one["weights"]


FAULTS = [turned_selector, of_another_example, heads_of_another_line, wrong_weight]


@pytest.mark.slow
@pytest.mark.parametrize("fault", sampled(FAULTS, 1))
def test_a_wrong_number_is_caught(context: Any, opened: Any, fault: Any) -> None:
    page = context.new_page()
    tamper(page, f"/api/programs/{'steps' if fault is of_another_example else 'prove'}", fault)
    opened(page)

    def check() -> None:
        assert table(page) == expected(SORT, "abc", "cab")
        prove(page)
        check_heads(page, SORT, "abc", "cab", 6)

    with pytest.raises(AssertionError):
        check()


def held_back(page: Any, what: str, ask: Callable[[], Any]) -> Any:
    """Ask, and hold the request for that back; return it."""
    held: list[Any] = []
    page.route(re.compile(f"programs/{what}"), lambda route: held.append(route), times=1)  # noqa: PLW0108
    ask()
    while not held:
        page.wait_for_timeout(20)
    return held[0]


@pytest.mark.slow
@pytest.mark.parametrize("what", sampled(["steps", "prove"], 1))
def test_an_older_answer_that_comes_late_is_not_shown(opened: Any, what: str) -> None:
    page = opened()
    asks = {
        "steps": lambda: page.get_by_label("Example").fill("bb"),
        "prove": page.get_by_role("button", name="Compile and prove").click,
    }
    held = held_back(page, what, asks[what])
    fill(page, "Example", "acb")
    own = {**held.request.headers, "sec-fetch-site": "same-origin"}
    with page.expect_event("requestfinished", lambda request: request == held.request):
        held.fulfill(response=held.fetch(headers=own))
    assert table(page) == expected(SORT, "abc", "acb")
    assert page.locator(".proof-part h2").count() == 0


@pytest.mark.slow
def test_what_is_refused_is_told_in_a_sentence(opened: Any) -> None:
    page = opened()
    for label, text, words in [
        ("Example", "cax", "an input is one or more of the tokens a, b, c; got 'x'."),
        ("Example", "", "an input is one or more of the tokens"),
        ("Example", "a" * 11, "an example here has at most 10 letters; got 11."),
        ("Alphabet", "abcabc", "an alphabet has one or more distinct tokens"),
        ("Alphabet", "abcdefghi", "an alphabet here has 1 to 8 distinct letters"),
        ("Program", "#" * 2_001, "a text has at most 2,000 letters and 40 lines"),
    ]:
        before = page.get_by_label(label).input_value()
        fill(page, label, text)
        page.locator(".programs-room .notice").filter(has_text=words).wait_for()
        fill(page, label, before)
        assert page.locator(".programs-room .notice").is_hidden()
    page.locator("#choice-longest").select_option("2")
    press(page, "Compile and prove")
    page.get_by_text("the example has 3 letters, and the longest input 2").wait_for()
    page.locator("#choice-longest").select_option("6")
    fill(page, "Alphabet", "abcdefgh")
    press(page, "Compile and prove")
    page.get_by_text("make 299,592 inputs, and this room tries at most 100,000").wait_for()


def test_it_fits_any_width_is_legible_and_takes_the_keyboard(opened: Any) -> None:
    hist = quote('output = selector_width(select(tokens, tokens, "=="))')
    page = opened(program=hist, alphabet="ab", example="ababababab", longest="10")
    page.locator("#program-text").focus()
    page.keyboard.press("z")  # which is a letter here
    page.keyboard.press("Backspace")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".proof-part h2", timeout=WAIT)
    check_look(page)


def test_the_server_refuses_what_takes_too_long_or_too_much(monkeypatch: Any) -> None:
    facts = {"text": SORT, "alphabet": "abc", "example": "cab"}
    assert asked("prove_program", **facts, longest=0)[0] == 400
    assert asked("prove_program", **facts, longest=11)[0] == 400
    monkeypatch.setattr(program_answers, "_SECONDS", -1.0)
    status, told = asked("prove_program", **facts, longest=6)
    assert status == 409
    assert "of 1,092 inputs were tried, and this room gives up" in told["error"]
    monkeypatch.setattr(program_answers, "_MOST_VALUES", 10)
    status, told = asked("prove_program", **facts, longest=6)
    assert status == 409
    assert "values together" in told["error"]
    mistyped = {**facts, "text": "x = agregate(tokens)"}
    told = asked("program_steps", **mistyped)[1]["lines"][0]["error"]
    assert "there is no function agregate; did you mean 'aggregate'?" in told
    attack = {**facts, "text": "x = __import__('os').system('true')"}
    assert "only these are called" in asked("program_steps", **attack)[1]["lines"][0]["error"]
    assert "only these are called" in asked("prove_program", **attack, longest=2)[1]["refused"]
