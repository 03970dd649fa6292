"""The room Populations in a browser: its numbers are those that Python computes from the folder."""

import itertools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlab
from attnlab.experiments.population import (
    Population,
    fit,
    open_population,
    population_heads,
    training,
)
from attnlab.experiments.population.population_heads import PopulationHeads, record_heads
from attnlab_lab.server import jobs, members, state
from tests.draw.view.reading import read_back
from tests.sampling import sampled

from .playing import cells, check_look, drawn, tamper
from .serving import PATIENCE, asked

WAIT = PATIENCE * 1000
SEEDS = 12


@pytest.fixture(scope="module", autouse=True)
def many(home: Path) -> Path:
    """The folder of a population of twelve seeds, of which some learn to sort."""
    folder = home / "runs" / "many"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlab.draw.figures.to_files", lambda name, draw: {})
        fields = {"recipe": "fast", "steps": 250, "evaluate_every": 50}
        attnlab.train_population("sorting", range(SEEDS), **fields, out=folder)
    return folder


@pytest.fixture
def opened(open_room: Any) -> Any:
    """Open the room with what a link says."""
    return partial(open_room, "populations", ".seed-columns:visible", population="many")


@pytest.fixture(scope="module")
def found(many: Path) -> tuple[Population, PopulationHeads]:
    population = open_population(many)
    heads = record_heads(population)
    assert heads is not None
    return population, heads


def seeds(page: Any) -> list[str]:
    return page.locator(".seed").evaluate_all("all => all.map(each => each.dataset.name)")


def chosen(page: Any) -> list[str]:
    cells = page.locator(".seed[aria-checked=true]")
    return cells.evaluate_all("all => all.map(each => each.dataset.name)")


def read_map(page: Any, number: int, names: list[str]) -> np.ndarray:
    """Read all of a large map by the keys: (query, key), NaN where it is masked."""
    told = cells(page.locator(".seed-heads canvas").nth(number), len(names), len(names))
    numbers = []
    for place, sentence in zip(itertools.product(names, names), told, strict=True):
        start, _, words = sentence.rpartition(": ")
        assert start == "Query {} → key {}".format(*place)
        numbers.append("nan" if words == "masked." else words[:-1].replace("−", "-"))
    return np.array(numbers, float).reshape(len(names), -1)


def kinds(heads: PopulationHeads) -> list[str]:
    """Name the groups of each member's heads."""
    of = heads.parts[0].groups.of.view(len(heads.members), -1).tolist()
    return ["".join(sorted("ABCDEF"[group] for group in own)) for own in of]


def share(part: int, whole: int) -> str:
    return f"{int(100 * part / whole + 0.5)} %"


def check_room(page: Any, population: Population, heads: PopulationHeads) -> None:
    """Check the sentences, the cells and the groups."""
    of = kinds(heads)
    told = page.locator(".populations-room > p").nth(1).inner_text()
    assert told.startswith(f"{population}. ")
    assert f"Most typical is seed {heads.middle}, oddest seed {heads.ranking[-1]}." in told
    labels = page.locator(".seed").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert labels == [
        f"Seed {seed}, heads {of[seed]}, {'not solved' if at is None else 'solved'}"
        for seed, at in enumerate(population.solved_at)
    ]
    groups = heads.parts[0].groups
    counts = torch.bincount(groups.of).tolist()
    shown = page.locator(".seed-groups li").all_inner_texts()
    for letter, count, text in zip("ABCDEF", counts, shown, strict=False):
        have = sum(letter in kind for kind in of)
        heads_ = f"{count} head{'s' * (count > 1)}"
        assert text == f"{letter}: {heads_} in {have} of 12 seeds, {share(have, SEEDS)}"
    assert len(shown) == len(counts)
    chips = page.locator("[role=group] button").all_inner_texts()
    unsolved = population.solved_at.count(None)
    assert sorted(chips) == sorted(
        ["all 12", f"not solved {unsolved}", *(f"{kind} {of.count(kind)}" for kind in set(of))]
    )


def check_seed(page: Any, population: Population, heads: PopulationHeads, seed: int) -> None:
    """Check the sentences about a seed."""
    page.locator("#seed").fill(str(seed))
    drawn(page)
    told = page.locator(".seed-told").inner_text()
    losses = population.history.losses[-1].tolist()
    higher = sum(loss > losses[seed] for loss in losses)
    loss = re.search(r"Its last loss is ([\d.]+), lower than that of (\d+) of the 11 others", told)
    assert loss is not None
    assert float(loss[1]) == pytest.approx(losses[seed], abs=5e-4)
    assert int(loss[2]) == higher
    at = population.solved_at[seed]
    assert ("does not solve" in told) == (at is None)
    assert at is None or f"first at step {at}." in told
    of = kinds(heads)
    alike = of.count(of[seed])
    place = f"in {alike} of 12 seeds, {share(alike, SEEDS)}" if alike > 1 else "in no other seed"
    assert f"Its heads are {of[seed]}, as {place}." in told
    apart, percentile = float(heads.distances[seed]), float(heads.percentiles[seed])
    if seed == heads.middle:
        assert "Its heads are the most typical of all." in told
    else:
        number = re.search(r"Its heads are ([\d.]+) from those of seed (\d+)", told)
        assert number is not None
        assert float(number[1]) == pytest.approx(apart, abs=5e-4)
        assert int(number[2]) == heads.middle
        assert f"{int(100 * percentile + 0.5)} % of the others are no further" in told
    trained_as = population.trained(seed)
    assert trained_as is not None
    for name, value in trained_as.evaluation.figures.items():
        figure = re.search(rf"{name.replace('_', ' ')} ([\d.]+)[,.]", told)
        assert figure is not None
        assert float(figure[1].rstrip(".")) == pytest.approx(value, abs=5e-4)


def check_maps(
    page: Any, heads: PopulationHeads, maps: torch.Tensor, names: list[str], seed: int
) -> None:
    """Check the large maps of a seed: each head, and the mean of its group; and its thumbnail."""
    page.locator("#seed").fill(str(seed))
    drawn(page)
    of = heads.parts[0].groups.of
    for head, group in enumerate(of.view(SEEDS, -1)[seed].tolist()):
        mean = maps.flatten(0, 1)[of == group].mean(0)
        for number, wanted in ((2 * head, maps[seed, head]), (2 * head + 1, mean)):
            found = read_map(page, number, names)
            np.testing.assert_allclose(found, wanted.numpy(), rtol=6e-4, atol=1e-6)
    shades = page.locator(f".seed[data-name='{seed}'] canvas").evaluate(SHADES)
    size = len(names)
    for place, head in enumerate(heads.parts[0].order[seed].tolist()):
        left = place * (size + 1)
        seen = np.array([row[left : left + size] for row in shades[:size]])
        open_ = torch.isfinite(maps[seed, head]).numpy()
        assert (seen[open_] >= 0).all()
        assert (seen[~open_] == -1).all()
        order = maps[seed, head].numpy()[open_].argsort()
        assert (np.diff(seen[open_][order]) <= 0).all()  # in light, more weight is darker


SHADES = """canvas => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const at = k => (data[4 * k + 3] ? data[4 * k] + data[4 * k + 1] + data[4 * k + 2] : -1);
  const places = Array.from({ length: width }, (_, j) => j);
  return Array.from({ length: height }, (_, i) => places.map(j => at(i * width + j)));
}"""


def on_text(population: Population, heads: PopulationHeads, text: str) -> torch.Tensor:
    """Record all members while they read a text with the answer of the most typical one."""
    typical = attnlab.ask(population.folder / str(heads.middle), text)
    inputs = typical.pass_inputs()
    found = []
    for seed in range(SEEDS):
        model = population.model(seed)
        with torch.no_grad(), attnlab.record(model, "*scores") as recording:
            model(*inputs.arguments)
        found.append(recording["layers.0.attention.scores"][0].softmax(-1))
    weights = torch.stack(found)
    return weights.masked_fill(weights == 0, torch.nan)


def means(heads: PopulationHeads) -> torch.Tensor:
    return heads.parts[0].means.masked_fill(heads.parts[0].blocked, torch.nan)


POSITIONS = ["in 1", "in 2", "in 3", "SEP", "out 1", "out 2"]


def test_every_number_of_the_room_is_that_of_the_folder(opened: Any, found: Any) -> None:
    _, heads = found
    page = opened()
    check_room(page, *found)
    assert chosen(page) == [str(heads.middle)]
    for seed in range(SEEDS):
        check_seed(page, *found, seed)
    (part,) = heads.parts
    swapped = (part.order[:, 0] == 1).int().argmax()
    last = (part.groups.of.view(SEEDS, -1) > 0).any(1).int().argmax()
    assert len(part.groups.centers) > 1
    assert part.order[swapped].tolist() == [1, 0]
    for seed in (heads.middle, heads.ranking[-1], int(swapped), int(last)):
        check_maps(page, heads, means(heads), POSITIONS, seed)
    wrong = means(heads).clone()
    wrong[2, 1, 5, 3] += 0.01
    with pytest.raises(AssertionError):
        check_maps(page, heads, wrong, POSITIONS, 2)


def alter(told: dict[str, Any], fault: str) -> None:
    """Make one number of an answer wrong."""
    if fault == "loss":
        told["loss"][3] += 0.02
    elif fault == "group":
        told["attentions"][0]["groups"][5][0] ^= 1
    elif fault == "percentile":
        told["percentiles"][4] += 0.5 if told["percentiles"][4] < 0.5 else -0.5
    elif fault == "figure":
        told["figures"]["accuracy"][6] -= 0.01
    elif fault == "solved":
        told["solvedAt"][7] = 7


FAULTS = ["loss", "group", "percentile", "figure", "solved"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", sampled(FAULTS, 1))
def test_a_wrong_number_is_caught(context: Any, opened: Any, found: Any, fault: str) -> None:
    page = context.new_page()
    tamper(page, "/api/populations/many", lambda told: alter(told, fault))
    opened(page)

    def check() -> None:
        check_room(page, *found)
        for seed in range(3, 8):
            check_seed(page, *found, seed)

    with pytest.raises(AssertionError):
        check()


@pytest.mark.slow
def test_all_seeds_read_an_input_that_is_typed(opened: Any, found: Any) -> None:
    population, heads = found
    page = opened()
    page.locator("#reads").fill("cab")
    page.get_by_text("Attention weights on the input").wait_for(timeout=WAIT)
    assert "reads=cab" in page.url
    words = ["c", "a", "b", "SEP", "a", "b"]
    answer = attnlab.ask(population.folder / str(heads.middle), "cab").pass_inputs().words[""]
    assert list(answer[:4]) == words[:4]
    check_maps(page, heads, on_text(population, heads, "cab"), list(answer), heads.ranking[-1])
    page.locator("#reads").fill("xyz")
    page.locator(".seed-list .message").filter(has_text="expected 3 letters").wait_for()
    assert page.locator("#reads").get_attribute("aria-invalid") == "true"
    assert "reads" not in page.url
    assert len(seeds(page)) == SEEDS
    again = opened(reads="xyz")  # which shows the means, and says why
    again.locator(".seed-list .message").filter(has_text="expected 3 letters").wait_for()
    check_maps(again, heads, means(heads), POSITIONS, 1)
    page.locator("#reads").fill("")
    page.get_by_text("the mean over the same inputs for all seeds").wait_for(timeout=WAIT)
    check_maps(page, heads, means(heads), POSITIONS, 1)


@pytest.mark.slow
def test_seeds_are_sorted_and_filtered_also_by_a_link(
    context: Any, opened: Any, found: Any
) -> None:
    population, heads = found
    page = opened()
    order = page.get_by_label("Sort by")
    order.select_option("typical")
    assert seeds(page) == list(map(str, heads.ranking))
    order.select_option("loss")
    losses = population.history.losses[-1]
    assert seeds(page) == list(map(str, losses.argsort().tolist()))
    of = kinds(heads)
    kind = max(set(of), key=of.count)
    page.get_by_role("button", name=f"{kind} {of.count(kind)}", exact=True).click()
    kept = [str(seed) for seed in losses.argsort().tolist() if of[seed] == kind]
    assert seeds(page) == kept
    assert page.locator(".seed-list h2").inner_text() == f"{len(kept)} of 12 seeds"
    page.locator(f".seed[data-name='{kept[1]}']").click()
    page.locator("#reads").fill("bca")
    page.get_by_text("Attention weights on the input").wait_for(timeout=WAIT)
    told = page.locator(".seed-told").inner_text()
    again = context.new_page()
    again.goto(page.url)
    again.get_by_text("Attention weights on the input").wait_for(timeout=WAIT)
    assert (seeds(again), chosen(again)) == (kept, [kept[1]])
    assert again.locator(".seed-told").inner_text() == told
    assert again.locator("#reads").input_value() == "bca"
    opened(again, member="99")
    assert again.locator(".seed-part .message").inner_text() == (
        "This population has no seed 99; its seeds are 0 to 11."
    )
    assert "member" not in again.url
    again.evaluate("location.hash = '#v=1&room=populations&population=gone'")
    again.get_by_text("There is no population gone in this folder.").wait_for()


def test_it_fits_any_width_and_is_legible(opened: Any) -> None:
    check_look(opened(reads="cab"))


def test_many_weights_are_bytes_and_too_many_nothing(
    many: Path, found: Any, monkeypatch: Any
) -> None:
    _, heads = found
    folder = str(many)
    monkeypatch.setattr(members, "_MOST_EXACT", means(heads).numel() - 1)
    told = asked("members", folder=folder, text="")[1]["attentions"][0]
    assert told["maps"]["kind"] == "codes"
    maps = means(heads).numpy()
    seen, bounds = read_back(told["maps"])
    assert (np.isnan(seen) == np.isnan(maps.reshape(seen.shape))).all()
    assert np.nanmax(np.abs(seen - maps.reshape(seen.shape)) - bounds) < 1e-6
    monkeypatch.setattr(members, "_MOST_WEIGHTS", means(heads).numel() - 1)
    for text, sentence in (("", "are shown here at most"), ("cab", "type a shorter one")):
        status, told = asked("members", folder=folder, text=text)
        assert (status >= 400, sentence in told["error"]) == (True, True)


def test_a_seed_that_diverged_has_no_heads(many: Path, monkeypatch: Any) -> None:
    population = open_population(many)
    population.history.faults[4] = "after step 100"
    population.history.ends[4] = 100
    opened = (population, record_heads(population))
    monkeypatch.setattr(members, "_opened", lambda folder, written: opened)
    status, told = asked("members", folder=str(population.folder), text="")
    assert status == 200
    assert told["looked"] == [0, 1, 2, 3, *range(5, SEEDS)]
    assert told["faults"][4] == "after step 100"
    assert told["figures"]["accuracy"][4] is None
    at = population.history.steps.index(100)
    assert told["loss"][4] == pytest.approx(float(population.history.losses[at][4]))
    losses, _ = read_back(told["losses"])
    ended = np.isnan(losses.reshape(SEEDS, -1))
    assert ended[4].tolist() == [step > 100 for step in population.history.steps]
    assert not ended[[0, 5]].any()


def test_a_member_is_described_as_a_run(many: Path) -> None:
    population = open_population(many)
    folder = str(population.folder)
    told = asked("member", folder=folder, member="5")[1]
    assert told["config"]["seed"] == 5
    assert told["config"]["settings"] == population.config.to_mapping()
    assert told["metrics"] == population.history.lines(5)
    assert asked("member", folder=folder, member="12")[0] == 400


def test_a_member_s_name_leads_nowhere_else(many: Path) -> None:
    runs = many.parent
    lab = state.Lab(runs)
    assert lab.model("many/5") == runs / "many" / "5"
    assert lab.model("many") == runs / "many"
    steps = ["many/", "many/..", "many/../many", "many/5/5", "many//5", "many/5\n", "many/٣", "/5"]
    for name in [*steps, "../runs/many/5", "many/5/../..", "many/-5", "many/5\\..", "none/5"]:
        with pytest.raises(jobs.NotFound):
            lab.model(name)


def test_of_a_population_in_blocks_the_first_members_are_told_and_any_can_be_asked(
    home: Path, monkeypatch: Any
) -> None:
    pytest.importorskip("pyarrow", reason="blocks need it; pip install 'attnlab[text]'")
    for module in (training, fit):
        monkeypatch.setattr(module, "MOST_TOGETHER", 4)
    monkeypatch.setattr(training, "BLOCK", 4)
    for module in (members, population_heads):
        monkeypatch.setattr(module, "MOST_COMPARED", 3)
    monkeypatch.setattr("attnlab.draw.figures.to_files", lambda name, draw: {})
    fields = {"recipe": "fast", "steps": 10, "evaluate_every": 5}
    folder = home / "elsewhere" / "blocks"
    population = attnlab.train_population("sorting", range(6), **fields, out=folder)
    status, told = asked("members", folder=str(folder), text="")
    assert (status, told["names"], told["looked"]) == (200, ["0", "1", "2"], [0, 1, 2])
    assert told["told"] == f"{population}; the first 3 are shown here"
    assert told["solvedAt"] == list(population.solved_at[:3])
    assert told["figures"]["accuracy"] == [
        population.trained(index).evaluation.figures["accuracy"] for index in range(3)
    ]
    _, told = asked("member", folder=str(folder), member="5")
    assert told["metrics"] == population.blocks[1].history.lines(1)
