"""`masking`: which queries may attend to which keys, and how to prove it.

Attention with a causal mask, with the reversed one (a common mistake: each query sees later
tokens), and with none. Attention weights do not show what a whole model sees, so the proof is by
gradient: output i must not depend on input j > i. The same test must catch the wrong masks.
"""

from dataclasses import replace

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.draw.sections import Heatmap, MapChoice, Maps, Section
from attnlab.errors import not_none
from attnlab.experiments.anatomy.config import NAME, WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least, most
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.words import Numbers
from attnlab.look.causality import largest_change, largest_leak
from attnlab.look.statistics import blocked_weight
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.attend import attend
from attnlab.parts.masks import anti_causal_mask, causal_mask
from attnlab.sites import SitedModule

_KINDS = {"none": "no mask", "causal": "causal mask", "reversed": "reversed mask (wrong)"}
_LENGTH, _WIDTH = 6, 16
_VOCABULARY = 11


class MaskedEncoder(SitedModule):
    """An encoder's blocks under a chosen mask: (batch, length) -> (batch, length, d_model)."""

    sites = ("embedding",)

    def __init__(self, encoder: Encoder, kind: str) -> None:
        super().__init__()
        self.encoder, self.kind = encoder, kind

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed the tokens, and apply all blocks."""
        return self.read(self.visit("embedding", self.encoder.embedding(tokens)))

    def read(self, x: Tensor) -> Tensor:
        """Apply all blocks: (batch, length, d_model) -> the same."""
        for layer in self.encoder.layers:
            x = layer(x, mask=make_mask(self.kind, x.shape[-2]))
        return x


def make_mask(kind: str, length: int) -> Tensor | None:
    """Make one of the three masks: (query, key), True = may attend."""
    if kind == "none":
        return None
    if kind == "causal":
        return causal_mask(length)
    return anti_causal_mask(length)


def make_model(kind: str, seed: int, number: int) -> MaskedEncoder:
    """Make one of several models with their own initial weights."""
    with seeds.isolated(seed, NAME, "masking", number):
        settings = EncoderConfig(
            vocab_size=_VOCABULARY, d_model=_WIDTH, num_heads=2, num_layers=2, d_ff=2 * _WIDTH
        )
        return MaskedEncoder(Encoder(settings), kind).eval()


def show(config: AnatomyConfig, context: RunContext) -> PartResult:
    """Record the weights under each mask, and test whether whole models see later tokens."""
    generator = seeds.generator(context.seed, NAME, "masking")
    shape = (config.draws, 1, _LENGTH, _WIDTH)
    query, key = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    weights = {kind: _weights(query, key, kind) for kind in _KINDS}
    above = float(blocked_weight(weights["causal"], torch.ones(_LENGTH, _LENGTH).tril() == 1).max())
    rows = float((weights["causal"].double().sum(-1) - 1.0).abs().max())
    orders = [torch.randperm(_VOCABULARY, generator=generator) for _ in range(4)]
    tokens = torch.stack(orders)[:, :_LENGTH]
    leaks: dict[str, list[float]] = {}
    changes: dict[str, list[float]] = {}
    influence: dict[str, Tensor] = {}
    for step, kind in enumerate(_KINDS, 1):
        leaks[kind], changes[kind], influences = [], [], []
        for number in range(config.seeds):
            model = make_model(kind, context.seed, number)
            leaks[kind].append(largest_leak(model, tokens))
            changes[kind].append(largest_change(model, tokens))
            influences.append(_influence(model, tokens[:1]))
        influence[kind] = torch.stack(influences)
        context.step(step, len(_KINDS))
    weight, dependence = least_below(weights["causal"]), least_below(influence["causal"])
    leak = least([*leaks["reversed"], *leaks["none"]])
    change = least([*changes["reversed"], *changes["none"]])
    numbers: Numbers = {
        "length": _LENGTH,
        "draws": config.draws,
        "seeds": config.seeds,
        "above": above,
        "rows": rows,
        "weight": weight,
        "dependence": dependence,
        "leaks": leaks,
        "changes": changes,
        "leak": leak,
        "change": change,
    }
    return PartResult("masking", numbers, _claims(numbers), _sections(weights, influence, numbers))


def _claims(numbers: Numbers) -> list[Claim]:
    above, rows, number = numbers["above"], numbers["rows"], numbers["seeds"]
    weight, dependence = numbers["weight"], numbers["dependence"]
    leak, change = numbers["leak"], numbers["change"]
    causal_leak, causal_change = (
        most(numbers["leaks"]["causal"]),
        most(numbers["changes"]["causal"]),
    )
    return [
        Claim(
            "causal_weights_above_the_diagonal",
            "under the causal mask every weight above the diagonal is exactly 0, and rows still "
            f"sum to 1, over {numbers['draws']:,} draws of {_LENGTH} tokens",
            f"largest {above:g}; rows off by at most {rows:.0e}",
            "exactly 0; rows off by at most 1e-06",
            above == 0.0 and rows <= 1e-6,
        ),
        Claim(
            "causal_models_see_the_whole_past",
            "under the causal mask every weight at or below the diagonal is above 0, and every "
            "output of a model depends on itself and on every earlier input, in "
            f"{number:,} models: the smallest of each",
            f"weight {weight:.1g}, dependence {dependence:.1g}",
            "both above 0",
            weight > 0.0 and dependence > 0.0,
        ),
        Claim(
            "causal_models_do_not_see_the_future",
            f"in {number:,} models of two blocks under the causal mask no output depends on a "
            "later input: largest derivative, and largest change when the later tokens are "
            "exchanged",
            f"derivative {causal_leak:g}, change {causal_change:g}",
            "both exactly 0",
            most((causal_leak, causal_change)) == 0.0,
        ),
        Claim(
            "wrong_masks_are_caught",
            "the test that finds nothing under the causal mask catches the reversed mask, and no "
            f"mask, in each of {number:,} models: the smallest derivative and the smallest change "
            "found",
            f"derivative {leak:.2g}, change {change:.2g}",
            "both at least 0.001",
            leak >= 1e-3 and change >= 1e-3,
            is_self_check=True,
        ),
    ]


def _sections(
    weights: dict[str, Tensor], influence: dict[str, Tensor], numbers: Numbers
) -> list[Section]:
    shown = {kind: rows[0, 0] for kind, rows in weights.items()}
    depends = {kind: norms[0] for kind, norms in influence.items()}
    top = max(float(norm_map.max()) for norm_map in depends.values())
    weight_maps = _maps(shown, 1.0, "query", "key")
    dependence_maps = _maps(depends, top, "output", "input")
    choices = [
        MapChoice(maps=weight_maps, **WORDS.texts("masking.weights", numbers)),
        MapChoice(maps=dependence_maps, **WORDS.texts("masking.dependence", numbers)),
    ]
    return [Maps(choices=choices, **WORDS.texts("masking.maps", numbers))]


def _weights(query: Tensor, key: Tensor, kind: str) -> Tensor:
    return not_none(attend(query, key, key, make_mask(kind, query.shape[-2])).weights)


def _influence(model: MaskedEncoder, tokens: Tensor) -> Tensor:
    """Return the norms of d output_i / d input_j, the dependence of outputs on inputs."""
    x = model.encoder.embedding(tokens).detach()
    jacobian = torch.autograd.functional.jacobian(model.read, x)  # type: ignore[no-untyped-call]
    norms: Tensor = jacobian[0, :, :, 0].square().sum((1, 3)).sqrt()
    return norms


def least_below(matrices: Tensor) -> float:
    """Return the smallest number at or below the diagonal of matrices (..., query, key)."""
    is_below = torch.ones(matrices.shape[-2:]).tril() == 1
    return float(matrices[..., is_below].min())


def _maps(values: dict[str, Tensor], high: float, row: str, column: str) -> list[Heatmap]:
    places, maps = list(map(str, range(_LENGTH))), []
    for kind, title in _KINDS.items():
        rows = values[kind].tolist()
        drawn = Heatmap.of_weights(title, rows, places, places, (row, column))
        maps.append(replace(drawn, high=high))
    return maps
