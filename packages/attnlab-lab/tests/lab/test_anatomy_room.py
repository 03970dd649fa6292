"""The anatomy room: its numbers are those of attnlab in Python; for everyone, and in a link."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

import attnlab
from attnlab.experiments.anatomy import complexity
from attnlab.look.statistics import softmax_jacobian_norm

from .engine_cases import ENGINE, NODE, needs_node, run_engine
from .playing import Open, cells, enter, settled

ROOM = "#room=anatomy"
PARTS = ("scaling", "masks", "hiding", "order", "norms", "costs")
KINDS = ("none", "sinusoidal", "learned", "rotary")


def part(page: Any, name: str) -> Any:
    return page.locator(f"section.{name}")


def said(page: Any, name: str) -> str:
    """The sentence of an experiment, with plain minus signs."""
    return part(page, name).locator(".said").inner_text().replace("−", "-")


def slide(page: Any, setting: str, place: int) -> None:
    """Move a slider to a place."""
    page.locator(f"#set-{setting}").evaluate(
        "(input, place) => { input.value = place; input.dispatchEvent(new Event('input')) }", place
    )
    settled(page)


def choose(page: Any, name: str, button: str) -> None:
    part(page, name).get_by_role("button", name=button, exact=True).click()
    settled(page)


def bars(page: Any, name: str) -> list[float]:
    """The lengths of an experiment's bars, and that each is as its number says."""
    rows = (
        part(page, name)
        .locator(".bars li")
        .evaluate_all(
            "all => all.map(row => [row.querySelector('i').style.getPropertyValue('--w'),"
            " row.querySelector('.figure').textContent])"
        )
    )
    for length, words in rows:
        if words != "NaN":
            rounding = 0.0 if "e" in words else 5e-4
            told = pytest.approx(float(length), rel=0.01, abs=rounding)
            assert float(words.replace("−", "-")) == told
    return [float("nan") if words == "NaN" else float(length) for length, words in rows]


def numbers_of(canvas: Any, rows: int, columns: int) -> Tensor:
    """The numbers of a map; 0 where it is masked."""
    words = [text.rstrip(".").split()[-1] for text in cells(canvas, rows, columns)]
    numbers = [0.0 if word == "masked" else float(word.replace("−", "-")) for word in words]
    return torch.tensor(numbers).double().view(rows, columns)


def run_shown(page: Any, name: str) -> list[Any]:
    """Run the Python lines of an experiment; return what they print."""
    code = part(page, name).locator("pre").first.text_content()
    printed: list[Any] = []
    exec(code, {"print": lambda *values: printed.extend(values)})
    return printed


def check_scaling(page: Any) -> None:
    places = [[1, stream, i] for stream in (1, 2) for i in range(10 * 1024)]
    [drawn] = run_engine([{"what": "random", "name": "normal", "args": places}])
    query, key = torch.tensor(drawn, dtype=torch.float64).view(2, 1, 10, 1024)
    for place, width in ((4, 16), (10, 1024), (6, 64)):
        slide(page, "width", place)
        figures = []
        for i, scale in enumerate((True, False)):
            q, k = query[..., :width], key[..., :width]
            weights = attnlab.attend(q, k, k, scale=scale).weights
            assert weights is not None
            figures += [
                float(weights.amax(-1).mean()),
                float(softmax_jacobian_norm(weights).mean()),
            ]
            if width == 64:
                shown = numbers_of(part(page, "scaling").locator("canvas").nth(i), 3, 10)
                torch.testing.assert_close(shown, weights[0, :3], rtol=1e-3, atol=1e-12)
        assert bars(page, "scaling") == pytest.approx(figures, rel=1e-7)
    told = numbers_in(said(page, "scaling"))
    assert told[1:3] == pytest.approx([figures[0], figures[2]], abs=5e-4)
    assert len(run_shown(page, "scaling")) == 4


def check_masks(page: Any) -> None:
    slide(page, "window", 2)
    shown = [
        numbers_of(part(page, "masks").locator("canvas").nth(number), 6, 6) for number in range(5)
    ]
    for mine, theirs in zip(shown, run_shown(page, "masks"), strict=True):
        torch.testing.assert_close(mine, theirs.double(), rtol=0, atol=5e-4)
    leaks = [int((each.triu(1) > 0).sum()) for each in shown]
    told = "no mask {}, causal {}, reversed {}, window {}, yours {}.".format(*leaks)
    assert told in said(page, "masks")
    assert leaks == [15, 0, 15, 0, 1]
    assert f"weight {shown[4][0, 1]:.3f}" in said(page, "masks")


def check_hiding(page: Any) -> None:
    for value in ("−100", "−10⁴", "−10⁹", "−∞"):
        choose(page, "hiding", value)
        for place in (0, 10, 25):
            slide(page, "size", place)
            usual, ours = run_shown(page, "hiding")
            wanted = [*usual.tolist(), *ours.flatten().tolist()]
            assert bars(page, "hiding") == pytest.approx(wanted, rel=1e-3, abs=1e-12)
        assert bars(page, "hiding")[12:] == [0.0] * 4
    part(page, "hiding").get_by_role("button", name="Mask all eight keys").click()
    settled(page)
    usual, ours = run_shown(page, "hiding")
    assert usual.isnan().all()
    assert ours.tolist() == [[0.0] * 8]
    assert bars(page, "hiding") == pytest.approx([float("nan")] * 8 + [0.0] * 8, nan_ok=True)
    assert "NaN spreads" in said(page, "hiding")


def initial_weights(kind: str) -> dict[str, Tensor]:
    """The weights of the small encoder as the engine draws them."""
    script = (
        f'import {{ makeModel }} from "{(ENGINE / "models.js").as_uri()}";'
        f'import {{ writeTensors }} from "{(ENGINE / "safetensors.js").as_uri()}";'
        f'const {{ weights }} = makeModel("encoder", {json.dumps(encoder_settings(kind))}, 1);'
        "process.stdout.write(Buffer.from(writeTensors(weights)));"
    )
    command = [str(NODE), "--input-type=module", "-e", script]
    return load(subprocess.run(command, capture_output=True, check=True).stdout)


def encoder_settings(kind: str) -> dict[str, Any]:
    sizes = {"vocab_size": 5, "max_length": 16, "d_model": 8, "num_heads": 2, "d_ff": 16}
    return {**sizes, "positions": kind}


@torch.no_grad()
def check_order(page: Any) -> None:
    words = ["the", "cat", "sat", "on", "the", "mat"]
    for kind in KINDS:
        choose(page, "order", kind)
        encoder = attnlab.Encoder(attnlab.EncoderConfig(**encoder_settings(kind))).double()
        encoder.load_state_dict(initial_weights(kind))
        printed = part(page, "order").locator("pre").first.text_content()
        ids = torch.tensor([eval(each) for each in re.findall(r"\[(?:\d, )+\d\]", printed)])
        first, second = encoder(ids[:2])
        changes = (first - second[ids[2]]).abs().amax(-1)
        if kind == "none":
            assert float(changes.max()) < 1e-14
            assert said(page, "order").startswith("Without positions no output changes")
        else:
            most = int(changes.argmax())
            assert f"that of ‘{words[most]}’ most, by {changes[most]:.3g}" in said(page, "order")
        [found] = run_shown(page, "order")
        assert (float(found.max()) < 1e-14) == (kind == "none")
    maps = part(page, "order").locator("canvas")
    for i, wanted in enumerate((first, second[ids[2]])):
        torch.testing.assert_close(numbers_of(maps.nth(i), 6, 8), wanted, rtol=1e-3, atol=1e-9)
    table = attnlab.parts.positions.sinusoidal_positions(32, 32, dtype=torch.float64)
    shown = numbers_of(maps.nth(2), 2, 32)
    torch.testing.assert_close(shown, table[:2], rtol=1e-3, atol=1e-9)


def check_norms(page: Any) -> None:
    for button in (None, "Add 1 to all", "Turn all around"):
        if button:
            choose(page, "norms", button)
        numbers = [
            [float(word.replace("−", "-")) for word in row]
            for row in part(page, "norms")
            .locator("tbody tr")
            .evaluate_all(
                "all => all.map(row => [...row.querySelectorAll('output, .figure')]"
                ".map(each => each.textContent))"
            )
        ]
        shown = torch.tensor(numbers).double()
        for column, normed in enumerate(run_shown(page, "norms"), 1):
            torch.testing.assert_close(shown[:, column], normed, rtol=0, atol=0.0051)
    mean, size = shown[:, 0].mean(), shown[:, 0].norm()
    told = numbers_in(said(page, "norms"))
    assert told[:2] == pytest.approx([float(mean), float(size)], abs=0.0051)
    assert told[2] == 0


def counts_at(length: int) -> list[int]:
    """Multiply-adds of attention and of the feed-forward part, d = 512 and d_ff = 2,048."""
    return [4 * length * 512**2 + 2 * length**2 * 512, 2 * length * 512 * 2_048]


def check_costs(page: Any) -> None:
    slide(page, "length", 2)  # the Python lines multiply: a short text
    assert run_shown(page, "costs") == counts_at(128)
    for place in (0, 5, 12):
        slide(page, "length", place)
        length = 32 * 2**place
        shown = part(page, "costs").locator(".legend output").all_inner_texts()
        memory = [complexity.weights_bytes(length), 4 * length * 2048]
        assert [amount(words) for words in shown] == pytest.approx(
            counts_at(length) + memory, rel=6e-3
        )
    slide(page, "length", 5)
    assert "as many as the feed-forward part" in said(page, "costs")
    assert f"beyond {complexity._EQUAL:,} tokens (d_ff" in said(page, "costs")
    slide(page, "model", 0)
    assert "beyond 256 tokens (d_ff" in said(page, "costs")
    shown = part(page, "costs").locator(".legend").first.locator("output").all_inner_texts()
    counts = [amount(words) for words in shown]
    assert run_shown(page, "costs") == pytest.approx(counts, rel=6e-3)


def amount(words: str) -> float:
    """Read "21.5 billion" or "512 MiB"."""
    number, _, unit = words.replace(",", "").partition(" ")
    tens = ["", "thousand", "million", "billion", "trillion", "quadrillion"]
    twos = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    factor = 1024 ** twos.index(unit) if unit in twos else 1000 ** tens.index(unit)
    return float(number) * factor


def numbers_in(words: str) -> list[float]:
    return [float(each.rstrip(".")) for each in re.findall(r"-?\d[\d.]*(?:e-\d+)?", words)]


CHECKS = (check_scaling, check_masks, check_hiding, check_order, check_norms, check_costs)

# One wrong number for each experiment, planted in the scripts of the page.
FAULTS = (
    ("tape.scale(products, 1 / Math.sqrt(width))", "tape.scale(products, 1 / width)"),
    ("key > query - Number(window)", "key >= query - Number(window)"),
    ("(open[i] ? score : value)", "(open[i] ? score : value / 2)"),
    ("angle = Math.floor(i / width) * pow", "angle = (1 + Math.floor(i / width)) * 2 * pow"),
    ("normalized(1e-5, true)", "normalized(1e-1, true)"),
    ("2 * length ** 2 * width", "length ** 2 * width"),
)


@needs_node
def test_the_numbers_are_those_of_python(open_lab: Open) -> None:
    page = settled(open_lab(ROOM))
    for check in CHECKS:
        check(page)
    page.locator("#set-width").evaluate(
        "input => { for (let i = 0; i < 60; i++) {"
        " input.value = i % 11; input.dispatchEvent(new Event('input')) } }"
    )
    settled(page)  # of many moves the last is shown
    assert said(page, "scaling").startswith("At d_k = 16 ")


@pytest.mark.slow
@needs_node
def test_wrong_numbers_are_caught(open_lab: Open, playground: Path, tmp_path: Path) -> None:
    faulty = shutil.copytree(playground, tmp_path / "faulty")
    texts = {path: path.read_text() for path in faulty.glob("*.[hj]*")}
    for right, wrong in FAULTS:
        assert sum(text.count(right) for text in texts.values()) == 1, right
        texts = {path: text.replace(right, wrong) for path, text in texts.items()}
    for path, text in texts.items():
        path.write_text(text)
    page = settled(open_lab(ROOM, base=f"{faulty.as_uri()}/"))
    for check in CHECKS:
        with pytest.raises(AssertionError):
            check(page)


def test_every_experiment_can_be_done_by_keyboard(open_lab: Open) -> None:
    page = settled(open_lab(ROOM))
    focus = "document.activeElement"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(f"{focus}.id") == "set-width":
            break
    page.keyboard.press("ArrowRight")
    settled(page)
    assert said(page, "scaling").startswith("At d_k = 128 ")
    assert page.evaluate(f"{focus}.getAttribute('aria-valuetext')") == "128"
    canvas = part(page, "masks").locator("canvas").nth(4)
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    settled(page)
    assert "yours 2." in said(page, "masks")
    assert "‘on’ → ‘mat’: no mask 0.3" in part(page, "masks").locator(".pictures > p").inner_text()
    page.keyboard.press("Space")
    settled(page)
    assert "yours 1." in said(page, "masks")
    part(page, "norms").locator("input").nth(3).focus()
    page.keyboard.press("Home")
    settled(page)
    assert "Mean -0.06" in said(page, "norms")


@pytest.mark.slow
def test_a_link_brings_everything_back(open_lab: Open) -> None:
    page = settled(open_lab(f"{ROOM}&seed=4"))
    slide(page, "width", 8)
    choose(page, "hiding", "−10⁴")
    choose(page, "order", "rotary")
    choose(page, "order", "backwards")
    choose(page, "norms", "Double all")
    slide(page, "length", 3)
    page.wait_for_url(re.compile("length.256"))
    link = page.evaluate("location.hash")
    assert "seed=4" in link
    other = settled(open_lab(link))
    for name in PARTS:
        assert said(other, name) == said(page, name)
    assert not other.locator("#notice").is_visible()
    enter(page, "Play")
    page.wait_for_selector(".letters")
    enter(page, "Anatomy")
    assert said(page, "order") == said(other, "order")
