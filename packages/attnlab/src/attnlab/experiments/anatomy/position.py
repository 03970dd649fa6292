"""`position`: attention without positions sees a set.

Without positions, reordering the tokens of a sentence reorders the outputs of an encoder and
changes nothing else, so "the cat sat on the mat" and "the mat sat on the cat" give the same set of
outputs. With any positional encoding they do not. The sinusoidal one (Vaswani et al. 2017, §3.5)
has products `PE[p] · PE[q] = Σ_i cos(ω_i (p - q))`, which depend on the distance alone.
"""

import itertools
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.core.stats import mean_interval
from attnlab.draw import sections as draw
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least, most
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.models.config import PositionKind
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.positions import sinusoidal_positions

_FIRST, _SECOND = "the cat sat on the mat", "the mat sat on the cat"
_VOCABULARY = ("the", "cat", "sat", "on", "mat")
_ENCODER = EncoderConfig(
    vocab_size=len(_VOCABULARY), max_length=16, d_model=32, num_heads=4, num_layers=2, d_ff=64
)
_NUM_POSITIONS, _WIDTH = 50, 64
_WIDTHS = range(1, 129)
_STARTS = (0, 10, 25)


def make_encoder(positions: PositionKind, seed: int, number: int) -> Encoder:
    """Make one of several small encoders with their own initial weights."""
    with seeds.isolated(seed, NAME, "position", number):
        return Encoder(replace(_ENCODER, positions=positions)).eval()


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Compare the outputs for two orders of the same words, with and without positions."""
    distances: dict[str, list[float]] = {}
    kinds = get_args(PositionKind)
    for step, kind in enumerate(kinds, 1):
        distances[kind] = []
        for number in range(config.seeds):
            encoder = make_encoder(kind, context.seed, number).double()
            distances[kind].append(set_distance(encoder))
        context.step(step, len(kinds))
    spreads = {width: spread_of_products(width) for width in _WIDTHS}
    without = most(distances["none"])
    closest_by_kind = {
        kind: least(kind_distances) for kind, kind_distances in distances.items() if kind != "none"
    }
    closest = least(closest_by_kind.values())
    even = most(spread for width, spread in spreads.items() if width % 2 == 0)
    numbers: Numbers = {
        "sentences": f'"{_FIRST}" and "{_SECOND}"',
        "seeds": config.seeds,
        "num_kinds": len(closest_by_kind),
        "num_positions": _NUM_POSITIONS,
        "width": _WIDTH,
        "without": without,
        "closest": closest,
        "weakest": next(
            (kind for kind, distance in closest_by_kind.items() if distance == closest), "NaN"
        ),
        "even": even,
        "spreads": spreads,
        "worst": max(range(3, max(_WIDTHS), 2), key=lambda width: spreads[width]),
    }
    return PartResult("position", numbers, _claims(numbers), _sections(distances, numbers))


def _claims(numbers: Numbers) -> list[Claim]:
    sentences, without, closest = numbers["sentences"], numbers["without"], numbers["closest"]
    return [
        Claim(
            "order_is_not_seen_without_positions",
            f"without positions {sentences} give the same set of outputs, in each of "
            f"{numbers['seeds']} encoders of two blocks: largest difference, words matched with "
            "words",
            f"{without:.0e}",
            "at most 1e-06",
            without <= 1e-6,
        ),
        Claim(
            "order_is_seen_with_positions",
            "with positions the two sentences give different sets of outputs, for each of "
            f"{numbers['num_kinds']} kinds in each of {numbers['seeds']} encoders: least "
            "difference",
            f"{closest:.3f} ({numbers['weakest']})",
            "at least 0.01",
            closest >= 0.01,
        ),
        Claim(
            "sinusoidal_products_know_the_distance_alone",
            f"products of sinusoidal positions of the same distance agree, over {_NUM_POSITIONS} "
            f"positions and every even width from 2 to {max(_WIDTHS)}: largest difference",
            f"{numbers['even']:.0e}",
            "at most 1e-12",
            numbers["even"] <= 1e-12,
        ),
    ]


def _sections(distances: dict[str, list[float]], numbers: Numbers) -> list[draw.Section]:
    products, curves = _products(_WIDTH), []
    for start in _STARTS:
        y = products[start, start:].tolist()
        curves.append(draw.Series(name=f"from p = {start}", x=range(len(y)), y=y))
    means = list(map(mean_interval, distances.values()))
    return [
        draw.Bars(
            groups=list(distances),
            series=[draw.BarSeries.of_intervals("difference of the two sets", means)],
            **WORDS.texts("position.bars", numbers),
        ),
        draw.Maps(
            choices=[draw.MapChoice(maps=[_encoding_map()], **WORDS.texts("position.sinusoidal"))],
            **WORDS.texts("position.maps", numbers),
        ),
        draw.Lines(series=curves, **WORDS.texts("position.products", numbers)),
    ]


@torch.no_grad()
def set_distance(encoder: Encoder) -> float:
    """Return the largest difference between the two sentences' sets of outputs, matched by word.

    The outputs of a word that occurs twice are matched in the closest way.
    """
    ids = torch.tensor(
        [list(map(_VOCABULARY.index, sentence.split())) for sentence in (_FIRST, _SECOND)]
    )
    first, second = encoder(ids[:1])[0], encoder(ids[1:])[0]
    distances = []
    for word in set(ids[0].tolist()):
        mine, others = first[ids[0] == word], second[ids[1] == word]
        orders = itertools.permutations(range(len(others)))
        distances.append(least(float((mine - others[[*order]]).abs().max()) for order in orders))
    return most(distances)


def spread_of_products(width: int) -> float:
    """Return the largest spread of products of sinusoidal positions at the same distance."""
    lines = map(_products(width).diagonal, range(_NUM_POSITIONS))
    return most(float(line.max() - line.min()) for line in lines)


def _products(width: int) -> Tensor:
    encoding = sinusoidal_positions(_NUM_POSITIONS, width, dtype=torch.float64)
    return encoding @ encoding.T


def _encoding_map() -> draw.Heatmap:
    rows = sinusoidal_positions(_NUM_POSITIONS, _WIDTH).tolist()
    positions, dimensions = map(str, range(_NUM_POSITIONS)), map(str, range(_WIDTH))
    titles = ("position", "dimension")
    drawn = draw.Heatmap.of_weights("", rows, list(positions), list(dimensions), titles)
    return replace(drawn, low=-1.0)
