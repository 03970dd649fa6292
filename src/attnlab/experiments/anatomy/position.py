"""`position`: attention without positions sees a set.

Without positions, reordering the tokens of a sentence reorders the outputs of an encoder and
changes nothing else, so "the cat sat on the mat" and "the mat sat on the cat" give the same set of
outputs. With any positional encoding they do not. The sinusoidal one (Vaswani et al. 2017, §3.5)
has products `PE[p] · PE[q] = Σ_i cos(ω_i (p - q))`, which depend on the distance alone.
"""

import itertools
from typing import get_args

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.core.stats import Interval, mean_interval
from attnlab.draw.sections import (
    Bars,
    BarSeries,
    Heatmap,
    Lines,
    MapChoice,
    Maps,
    Section,
    Series,
    Table,
)
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least, most
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Run
from attnlab.models.config import PositionKind
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.positions import sinusoidal_positions

_FIRST, _SECOND = "the cat sat on the mat", "the mat sat on the cat"
_WORDS = ("the", "cat", "sat", "on", "mat")
_NUM_POSITIONS, _WIDTH = 50, 64
_WIDTHS = range(1, 129)


def make_encoder(positions: PositionKind, seed: int, number: int) -> Encoder:
    """Make one of several small encoders with their own initial weights."""
    with seeds.isolated(seed, NAME, "position", number):
        settings = EncoderConfig(
            vocab_size=len(_WORDS),
            max_length=16,
            d_model=32,
            num_heads=4,
            num_layers=2,
            d_ff=64,
            positions=positions,
        )
        return Encoder(settings).eval()


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Compare the outputs for two orders of the same words, with and without positions."""
    distances: dict[str, list[float]] = {}
    kinds = get_args(PositionKind)
    for step, kind in enumerate(kinds):
        encoders = (
            make_encoder(kind, context.seed, number).double() for number in range(config.seeds)
        )
        distances[kind] = [set_distance(encoder) for encoder in encoders]
        context.step(step + 1, len(kinds))
    spreads = {width: spread_of_products(width) for width in _WIDTHS}
    told = least(least(found) for kind, found in distances.items() if kind != "none")
    summary = (
        f'Position. The outputs for "{_FIRST}" and "{_SECOND}", as sets, differ by '
        f"{most(distances['none']):.0e} at most without positions, and by {told:.2g} at least "
        f"with any of the {len(kinds) - 1} kinds."
    )
    return PartResult(
        summary, _claims(distances, spreads), _sections(distances, spreads, config.seeds)
    )


@torch.no_grad()
def set_distance(encoder: Encoder) -> float:
    """Return the largest difference between the two sentences' sets of outputs, matched by word.

    The outputs of a word that occurs twice are matched in the closest way.
    """
    sentences = [sentence.split() for sentence in (_FIRST, _SECOND)]
    first, second = (
        encoder(torch.tensor([[_WORDS.index(word) for word in words]]))[0] for words in sentences
    )
    distances = []
    for word in _WORDS:
        mine, others = (
            [row for row, each in zip(output, words, strict=True) if each == word]
            for output, words in zip((first, second), sentences, strict=True)
        )
        ways = (
            most(float((one - other).abs().max()) for one, other in zip(mine, way, strict=True))
            for way in itertools.permutations(others)
        )
        distances.append(least(ways))
    return most(distances)


def spread_of_products(width: int) -> float:
    """Return the largest spread of products of sinusoidal positions at the same distance."""
    products = _products(width)
    spreads = [
        float(line.max() - line.min()) for line in map(products.diagonal, range(_NUM_POSITIONS))
    ]
    return most(spreads)


def _products(width: int) -> Tensor:
    encoding = sinusoidal_positions(_NUM_POSITIONS, width, dtype=torch.float64)
    return encoding @ encoding.T


def _claims(distances: dict[str, list[float]], spreads: dict[int, float]) -> list[Claim]:
    without = most(distances["none"])
    told = {kind: least(found) for kind, found in distances.items() if kind != "none"}
    closest = least(told.values())
    weakest = next((kind for kind, found in told.items() if found == closest), "NaN")
    even = most(spread for width, spread in spreads.items() if width % 2 == 0)
    total = len(distances["none"])
    return [
        Claim(
            "order_is_not_seen_without_positions",
            f'without positions "{_FIRST}" and "{_SECOND}" give the same set of outputs, in each '
            f"of {total} encoders of two blocks: largest difference, words matched with words",
            f"{without:.0e}",
            "at most 1e-06",
            without <= 1e-6,
        ),
        Claim(
            "order_is_seen_with_positions",
            "with positions the two sentences give different sets of outputs, for each of "
            f"{len(told)} kinds in each of {total} encoders: least difference",
            f"{closest:.3f} ({weakest})",
            "at least 0.01",
            closest >= 0.01,
        ),
        Claim(
            "sinusoidal_products_know_the_distance_alone",
            f"products of sinusoidal positions of the same distance agree, over {_NUM_POSITIONS} "
            f"positions and every even width from 2 to {max(spreads)}: largest difference",
            f"{even:.0e}",
            "at most 1e-12",
            even <= 1e-12,
        ),
    ]


def _sections(
    distances: dict[str, list[float]], spreads: dict[int, float], num_seeds: int
) -> list[Section]:
    found = {kind: mean_interval(values) for kind, values in distances.items()}
    products = _products(_WIDTH)
    starts = (0, 10, 25)
    odd = {width: spread for width, spread in spreads.items() if width % 2 and width > 1}
    worst = max(odd, key=lambda width: odd[width])
    return [
        _bars(found, num_seeds),
        Maps(
            figure="position-sinusoidal",
            title="Position: the sinusoidal encoding",
            caption=f"{_NUM_POSITIONS} positions, {_WIDTH} dimensions: pairs of a sine and a "
            "cosine, fast on the left, slow on the right. Each row is the pattern of one position.",
            choices=[
                MapChoice(
                    label="sinusoidal",
                    note="Added to the token's vector, position by position.",
                    maps=[
                        Heatmap(
                            title="",
                            rows=sinusoidal_positions(_NUM_POSITIONS, _WIDTH).tolist(),
                            row_labels=[str(place) for place in range(_NUM_POSITIONS)],
                            column_labels=[str(channel) for channel in range(_WIDTH)],
                            row_title="position",
                            column_title="dimension",
                            low=-1.0,
                            high=1.0,
                        )
                    ],
                )
            ],
        ),
        Lines(
            figure="position-products",
            title="Position: products depend on the distance alone",
            caption=f"PE[p] · PE[p + distance] for three p, {_WIDTH} dimensions: one curve, "
            "whatever p. This needs each sine's cosine: an odd width leaves the last, slowest "
            f"sine alone, and products of one distance then differ by up to {odd[worst]:.2g} "
            f"(width {worst}; {spreads[63]:.2g} at 63).",
            x_label="distance (positions)",
            y_label="product of the two encodings",
            series=[
                Series(
                    name=f"from p = {start}",
                    x=list(range(_NUM_POSITIONS - start)),
                    y=products[start, start:].tolist(),
                )
                for start in starts
            ],
        ),
        Table(
            title="Position in numbers",
            caption=(
                f'The sets of outputs of "{_FIRST}" and "{_SECOND}": the largest difference, words '
                f"matched with words, in float64, over {num_seeds} encoders of random weights."
            ),
            columns=["positions", "mean difference", "smallest", "largest", "same set"],
            rows=[
                [
                    kind,
                    f"{found[kind].value:.3g} ({found[kind].low:.3g} to {found[kind].high:.3g})",
                    f"{min(values):.3g}",
                    f"{max(values):.3g}",
                    "yes" if max(values) <= 1e-6 else "no",
                ]
                for kind, values in distances.items()
            ],
        ),
    ]


def _bars(found: dict[str, Interval], num_seeds: int) -> Bars:
    return Bars(
        figure="position",
        title="Position: are the two sets of outputs the same?",
        caption=(
            f'"{_FIRST}" and "{_SECOND}" through encoders of random weights. Without positions the '
            "outputs are the same vectors in another order; with any of the five kinds they are "
            f"not. Means over {num_seeds} encoders."
        ),
        y_label="largest difference of an output",
        groups=list(found),
        series=[BarSeries.of_intervals("difference of the two sets", found.values())],
    )
