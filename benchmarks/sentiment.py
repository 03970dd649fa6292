"""How well the sentiment models do on real texts, beside TF-IDF and logistic regression. Long:
minutes for each file.

    python benchmarks/sentiment.py FILE.csv … [--seeds 5] [--folds 5] [--models mini best] [--set
    key=value …]

For each file: the accuracies of `attnlab run sentiment` on the file's own split, over several
seeds; then a cross-validation of the best model over all distinct texts of the file, which judges
by every text once and so can tell models apart that one test split cannot. Prints Markdown.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from attnlab import seeds
from attnlab.configs import parse_settings
from attnlab.core.stats import sign_test
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.sentiment.baseline import train_baselines
from attnlab.experiments.sentiment.comparison import gain_over
from attnlab.experiments.sentiment.config import MODELS, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, Data, load_data
from attnlab.experiments.sentiment.fit import SplitOutcome, prepare, train_all
from attnlab.models.parameters import count_from_model
from attnlab.tasks.texts import TextSplit, split_by_text


def outcome_of(
    config: SentimentConfig,
    data: Data,
    arrangement: Arrangement,
    seed: int,
    names: Sequence[ModelName] = MODELS,
) -> SplitOutcome:
    """Train the models and both baselines on one split."""
    prepared = {name: prepare(name, config, arrangement, data.classes) for name in names}
    found = train_all(config, RunContext(seed), prepared)
    for name, correct in found.correct.items():
        shown = " ".join(f"{accuracy:.4f}" for accuracy in correct.double().mean(1).tolist())
        print(f"  {arrangement.name}, {name}: {shown}", file=sys.stderr)
    return found


def print_outcome(outcome: SplitOutcome) -> None:
    """Print the accuracies on one split, and the gains over the baselines."""
    print(
        "| model | accuracy | 95 % interval | lowest to highest seed | parameters | gain "
        "over the baselines |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for name, found in outcome.models.items():
        correct = outcome.correct[name]
        each = correct.double().mean(1).tolist()
        gains = []
        for baseline in outcome.baselines:
            other = outcome.correct[baseline.name]
            one, two = correct[0], other[0]
            p = sign_test(int((one & ~two).sum()), int((~one & two).sum()))  # McNemar's
            gain = gain_over(correct, other)
            gains.append(f"{gain.points} ({gain.ends}, p {p:.2g})")
        value, low, high = outcome.accuracy(name)
        size = sum(count_from_model(found[0].model).values())
        print(
            f"| {name} | {value:.4f} | {low:.4f} to {high:.4f} | {min(each):.4f} to "
            f"{max(each):.4f} | {size:,} | {'; '.join(gains)} |"
        )
    for baseline in outcome.baselines:
        value, low, high = outcome.accuracy(baseline.name)
        print(
            f"| {baseline.name} | {value:.4f} | {low:.4f} to {high:.4f} | | "
            f"{baseline.num_parameters:,} | |"
        )


def cross_validate(config: SentimentConfig, data: Data, folds: int) -> None:
    """Judge the best model by every text once: in each fold it learns from the others, a ninth of
    them to validate."""
    rows = [row for part in data.fair.split for row in part]
    order = torch.randperm(len(rows), generator=seeds.generator(0, "benchmark", "folds")).tolist()
    correct: dict[str, list[torch.Tensor]] = {}
    for fold in range(folds):
        held = set(order[fold::folds])
        rest = [row for place, row in enumerate(rows) if place not in held]
        train, validation = split_by_text(
            rest, 1 / 9, seeds.generator(fold, "benchmark", "validation")
        )
        split = TextSplit(train, validation, [rows[place] for place in sorted(held)])
        outcome = outcome_of(config, data, Arrangement(f"fold {fold + 1}", split), fold, ("best",))
        correct.setdefault("best", []).append(outcome.correct["best"][0])
        for baseline in train_baselines(
            TextSplit([*train, *validation], validation, split.test), data.classes
        ):
            correct.setdefault(baseline.name, []).append(baseline.answers == outcome.labels)
    joined = {name: torch.cat(parts) for name, parts in correct.items()}
    names = [name for name in joined if name != "best"]
    print(
        f"\n{folds} folds over all {len(rows):,} texts (the baselines learn from the "
        "validation texts too):\n"
    )
    print(
        "| model | accuracy | spread of the folds | "
        f"{' | '.join(f'gain over {name}' for name in names)} |"
    )
    print("| --- | --- | --- |" + " --- |" * len(names))
    for name, found in joined.items():
        spread = torch.stack([part.double().mean() for part in correct[name]])
        gains = [gain_over(found.unsqueeze(0), joined[other]) for other in names]
        shown = [
            f"{gain.value * 100:+.2f} ({gain.low * 100:+.2f} to {gain.high * 100:+.2f})"
            for gain in gains
        ]
        print(
            f"| {name} | {float(found.double().mean()):.4f} | ± {float(spread.std()):.4f} | "
            f"{' | '.join(shown)} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the campaign on each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "--seeds", type=int, default=5, help="trainings of each model on the file's own split"
    )
    parser.add_argument("--folds", type=int, default=5, help="of the cross-validation; 0 for none")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        default=MODELS,
        help="trained on the file's own split",
    )
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the experiment"
    )
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for file in given.files:
        config = SentimentConfig(data=file, seeds=given.seeds).with_settings(
            parse_settings(given.set)
        )
        data = load_data(config, 0)
        sizes = ", ".join(f"{len(part):,}" for part in data.fair.split)
        print(
            f"\n## {Path(file).stem}\n\nOwn split: {sizes} texts; {given.seeds} trainings of "
            "each model.\n",
            flush=True,
        )
        print_outcome(outcome_of(config, data, data.fair, 0, given.models))
        if given.folds:
            single = SentimentConfig.from_mapping({**config.to_mapping(), "seeds": 1})
            cross_validate(single, data, given.folds)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
