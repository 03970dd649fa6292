"""Which heads sort? Sixty-four sorters, every head under seven controls.

    python examples/which_heads_sort.py [--seeds 64] [--out runs/which-heads-sort]

Trains the population (a second or two where there is a C++ compiler), asks of each head of each
seed whether where it looks matters for the answer, on all 27 inputs, and writes `heads.csv` (one
row for each head and control) and a figure: how sharp a head's picture is, against what becomes of
the loss without it.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import torch

from attnlab import train_population
from attnlab.draw.colors import HUES
from attnlab.draw.pictures.look import ACCENT, MUTED, dress, new_figure
from attnlab.edits.effects import CONTROLS, PatternEffects, SignificanceRule, pattern_effects
from attnlab.edits.effects.controls import PATTERN_CONTROLS
from attnlab.edits.effects.metrics import IGNORED

LEAST = 0.05  # nats: an effect below this is none, however sure


def ask(num_seeds: int) -> tuple[list[PatternEffects], int]:
    """Train, and put every head of every seed that solved the task under every control; also how
    many did not."""
    population = train_population("sorting", range(num_seeds), recipe="fast")
    task = population.config.sequence_task()
    rows = task.rows(task.all_prompts())
    labels = rows[:, 1:].clone()
    labels[:, : task.prompt_length] = (
        IGNORED  # the letters of the prompt are random: only the answer counts
    )
    solved = [
        seed
        for seed, step in zip(population.seeds, population.solved_at, strict=True)
        if step is not None
    ]
    found = [
        pattern_effects(
            population.model(seed),
            rows[:, :-1],
            metric="loss",
            target=labels,
            rule=SignificanceRule(least=LEAST),
            seed=seed,
        )
        for seed in solved
    ]
    return found, num_seeds - len(solved)


def table(found: list[PatternEffects]) -> list[dict[str, Any]]:
    """One row for each head and control of each model."""
    return [{"model": number, **row} for number, each in enumerate(found) for row in each.rows()]


def summary(found: list[PatternEffects]) -> list[str]:
    """Say what the controls tell, over all seeds."""
    heads = sum(len(each.heads) for each in found)
    needed = [len(each.needed) for each in found]
    lines = [
        f"{len(found)} models, {heads} heads, all 27 inputs each; Holm's correction within a "
        f"model, effects from {LEAST} nats on"
    ]
    for number in sorted(set(needed)):
        lines.append(
            f"  {number} of {len(found[0].heads)} heads needed in {needed.count(number)} models"
        )
    lines.append(f"{'control':14}{'heads it tells':>16}{'median effect':>16}  nats")
    for index, control in enumerate(CONTROLS):
        told = sum(int(each.matters[:, index].sum()) for each in found)
        effects = torch.cat([each.tested.mean[:, index] for each in found])
        lines.append(f"  {control:14}{told:>6} of {heads:<6}{float(effects.median()):>12.3f}")
    idle = sum(len(each.pretty_but_idle) for each in found)
    plain = sum(len(each.plain_but_needed) for each in found)
    sharp = sum(int(each.is_sharp.sum()) for each in found)
    fixed = sum(
        int(
            (
                each.matters[:, CONTROLS.index("uniform")]
                & ~each.matters[:, CONTROLS.index("mean")]
            ).sum()
        )
        for each in found
    )
    lines.append(
        f"picture and effect disagree: {idle} of {sharp} sharp heads look where it does not "
        f"matter, {plain} of {heads - sharp} blurred ones are needed"
    )
    even = torch.cat([each.matters[~each.matters[:, CONTROLS.index("uniform")]] for each in found])
    lines.append(
        f"{len(even)} heads could as well look evenly at everything; without them the loss rises "
        f"in {int(even[:, CONTROLS.index('zeroed')].sum())} cases all the same"
    )
    lines.append(f"{fixed} heads need their pattern, but the same for every input will do")
    return lines


def draw(found: list[PatternEffects], path: Path) -> None:
    """Draw sharpness against effect, and how many heads each control tells."""
    figure = new_figure(9.0, 4.0)
    left, right = figure.subplots(1, 2)
    zeroed, uniform = CONTROLS.index("zeroed"), CONTROLS.index("uniform")
    groups = (
        (True, ACCENT, "has to look where it does"),
        (False, HUES[1], "looking evenly would do"),
    )
    for is_needed, colour, words in groups:
        points = [
            (float(each.largest[head]), float(each.tested.mean[head, zeroed]))
            for each in found
            for head in range(len(each.heads))
            if bool(each.matters[head, uniform]) == is_needed
        ]
        if points:
            left.scatter(
                *zip(*points, strict=True),
                s=16,
                color=colour,
                alpha=0.7,
                label=f"{words}: {len(points)}",
            )
    left.axvline(found[0].rule.sharp, color=MUTED, linewidth=0.8, linestyle=(0, (5, 2)))
    dress(
        left,
        "Sharp pictures and needed heads",
        "mean largest weight",
        "loss without the head, more (nats)",
    )
    left.legend(frameon=False, fontsize=8)
    shares = [
        100 * float(torch.cat([each.matters[:, i] for each in found]).double().mean())
        for i in range(len(CONTROLS))
    ]
    colours = [ACCENT if control in PATTERN_CONTROLS else MUTED for control in CONTROLS]
    right.barh(range(len(CONTROLS)), shares, color=colours)
    right.set_yticks(range(len(CONTROLS)), [control.replace("_", " ") for control in CONTROLS])
    right.invert_yaxis()
    dress(right, "Heads that each control tells", "percent of heads", "")
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=150)


def main(arguments: list[str] | None = None) -> list[PatternEffects]:
    """Read the arguments, ask, write."""
    parser = argparse.ArgumentParser(description="Which heads of a sorter do the work?")
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("runs/which-heads-sort"))
    options = parser.parse_args(arguments)
    found, unsolved = ask(options.seeds)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = table(found)
    with (options.out / "heads.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(found, options.out / "heads.png")
    print("\n".join(summary(found)))
    if unsolved:
        print(f"{unsolved} seeds did not learn the task, and were left out")
    print(f"written: {options.out}/heads.csv, heads.png, heads.svg")
    return found


if __name__ == "__main__":
    main()
