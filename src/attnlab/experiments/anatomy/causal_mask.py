"""`masking`: which queries may attend to which keys, and how to prove it.

Attention with a causal mask, with the reversed one (a common mistake: each query sees later
tokens), and with none. Attention weights do not show what a whole model sees, so the proof is by
gradient: output i must not depend on input j > i. The same test must catch the wrong masks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.draw.sections import Heatmap, MapChoice, Maps, Table
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least, most
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Run
from attnlab.look.causality import largest_change, largest_leak
from attnlab.look.statistics import blocked_weight
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.parts.attend import attend
from attnlab.parts.masks import anti_causal_mask, causal_mask
from attnlab.sites import SitedModule

_KINDS = ("none", "causal", "reversed")
_LENGTH, _WIDTH = 6, 16
_VOCABULARY = 11


@dataclass(frozen=True)
class Leak:
    """The smallest and the largest result of a leak test over several models."""

    least: float
    most: float


@dataclass(frozen=True)
class Past:
    """The smallest weight on, and dependence on, earlier tokens under the causal mask."""

    weight: float
    dependence: float


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
    return causal_mask(length) if kind == "causal" else anti_causal_mask(length)


def make_model(kind: str, seed: int, number: int) -> MaskedEncoder:
    """Make one of several models with their own initial weights."""
    with seeds.isolated(seed, NAME, "masking", number):
        settings = EncoderConfig(
            vocab_size=_VOCABULARY, d_model=_WIDTH, num_heads=2, num_layers=2, d_ff=2 * _WIDTH
        )
        return MaskedEncoder(Encoder(settings), kind).eval()


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Record the weights under each mask, and test whether whole models see later tokens."""
    generator = seeds.generator(context.seed, NAME, "masking")
    shape = (config.draws, 1, _LENGTH, _WIDTH)
    query, key = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    weights = {kind: _weights(query, key, kind) for kind in _KINDS}
    above = float(blocked_weight(weights["causal"], torch.ones(_LENGTH, _LENGTH).tril() == 1).max())
    rows = float((weights["causal"].double().sum(-1) - 1.0).abs().max())
    tokens = torch.stack(
        [torch.randperm(_VOCABULARY, generator=generator)[:_LENGTH] for _ in range(4)]
    )
    leaks, changes = {}, {}
    for step, kind in enumerate(_KINDS):
        models = [make_model(kind, context.seed, number) for number in range(config.seeds)]
        derivatives = [largest_leak(model, tokens) for model in models]
        differences = [largest_change(model, tokens) for model in models]
        leaks[kind] = Leak(least(derivatives), most(derivatives))
        changes[kind] = Leak(least(differences), most(differences))
        context.step(step + 1, len(_KINDS))
    influence = {kind: _influence(make_model(kind, context.seed, 0), tokens[:1]) for kind in _KINDS}
    past = Past(
        least_below(weights["causal"]),
        least(
            least_below(_influence(make_model("causal", context.seed, number), tokens[:1]))
            for number in range(config.seeds)
        ),
    )
    return PartResult(
        f"Masking. In {config.seeds} models the largest derivative of an output by a later input "
        f"is {leaks['causal'].most:g} under the causal mask, and at least "
        f"{leaks['reversed'].least:.1f} under the reversed one, whose weights look just as tidy.",
        _claims(config, above, rows, past, leaks, changes),
        [_maps(weights, influence), _table(config, leaks, changes, above)],
    )


def _weights(query: Tensor, key: Tensor, kind: str) -> Tensor:
    weights = attend(query, key, key, make_mask(kind, query.shape[-2])).weights
    assert weights is not None
    return weights


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


def _claims(
    config: AnatomyConfig,
    above: float,
    rows: float,
    past: Past,
    leaks: dict[str, Leak],
    changes: dict[str, Leak],
) -> list[Claim]:
    causal = leaks["causal"]
    leak, change = (
        least(found[kind].least for kind in ("reversed", "none")) for found in (leaks, changes)
    )
    return [
        Claim(
            "causal_weights_above_the_diagonal",
            "under the causal mask every weight above the diagonal is exactly 0, and rows still "
            f"sum to 1, over {config.draws:,} draws of {_LENGTH} tokens",
            f"largest {above:g}; rows off by at most {rows:.0e}",
            "exactly 0; rows off by at most 1e-06",
            above == 0.0 and rows <= 1e-6,
        ),
        Claim(
            "causal_models_see_the_whole_past",
            "under the causal mask every weight at or below the diagonal is above 0, and every "
            f"output of a model depends on itself and on every earlier input, in {config.seeds} "
            "models: the smallest of each",
            f"weight {past.weight:.1g}, dependence {past.dependence:.1g}",
            "both above 0",
            past.weight > 0.0 and past.dependence > 0.0,
        ),
        Claim(
            "causal_models_do_not_see_the_future",
            f"in {config.seeds} models of two blocks under the causal mask no output depends on a "
            "later input: largest derivative, and largest change when the later tokens are "
            "exchanged",
            f"derivative {causal.most:g}, change {changes['causal'].most:g}",
            "both exactly 0",
            causal.most == 0.0 and changes["causal"].most == 0.0,
        ),
        Claim(
            "wrong_masks_are_caught",
            "the test that finds nothing under the causal mask catches the reversed mask, and no "
            f"mask, in each of {config.seeds} models: the smallest derivative and the smallest "
            "change found",
            f"derivative {leak:.2g}, change {change:.2g}",
            "both at least 0.001",
            leak >= 1e-3 and change >= 1e-3,
        ),
    ]


def _maps(weights: dict[str, Tensor], influence: dict[str, Tensor]) -> Maps:
    places = [str(place) for place in range(_LENGTH)]
    top = max(float(each.max()) for each in influence.values())
    titles = {"none": "no mask", "causal": "causal mask", "reversed": "reversed mask (wrong)"}

    def maps(values: dict[str, Tensor], high: float, row: str, column: str) -> list[Heatmap]:
        return [
            Heatmap(
                title=titles[kind],
                rows=values[kind].tolist(),
                row_labels=places,
                column_labels=places,
                row_title=row,
                column_title=column,
                low=0.0,
                high=high,
            )
            for kind in _KINDS
        ]

    return Maps(
        figure="masking",
        title="Masking: attention weights and dependence",
        caption="Under the causal mask the weights above the diagonal are 0. The reversed mask "
        "looks as tidy, but lets each token see later ones.",
        choices=[
            MapChoice(
                label="weights",
                note=f"The weights of one draw of {_LENGTH} random tokens; each row sums to 1.",
                maps=maps({kind: weights[kind][0, 0] for kind in _KINDS}, 1.0, "query", "key"),
            ),
            MapChoice(
                label="dependence",
                note="The dependence of output i of a model of two blocks on input j: the norm of "
                "d output_i / d input_j.",
                maps=maps(influence, top, "output", "input"),
            ),
        ],
    )


def _table(
    config: AnatomyConfig, leaks: dict[str, Leak], changes: dict[str, Leak], above: float
) -> Table:
    return Table(
        title="Masking: does an output depend on a later input?",
        caption=f"By derivative, and by exchanging the later tokens, in {config.seeds} models of "
        "two blocks: the smallest and the largest found. The largest causal weight above the "
        f"diagonal is {above:g}.",
        columns=["mask", "derivative", "change of an output", "sees the future"],
        rows=[
            [
                kind,
                f"{leaks[kind].least:.3g} to {leaks[kind].most:.3g}",
                f"{changes[kind].least:.3g} to {changes[kind].most:.3g}",
                "yes" if leaks[kind].most > 0.0 else "no",
            ]
            for kind in _KINDS
        ],
    )
