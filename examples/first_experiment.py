"""`evenly`: without queries, causal attention spreads its weight evenly over the past.

The smallest experiment: a model, two claims that were measured, one line chart. `docs/add/
an-experiment.md` says how it becomes a command.
"""

from dataclasses import dataclass

import torch

import attnlab
from attnlab import seeds
from attnlab.configs import Config, option
from attnlab.draw.sections import Lines, ReportContent, Series
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Findings, RunContext
from attnlab.experiments.sections import parameters_section, settings_section

NAME = "evenly"
SUMMARY = "without queries, causal attention spreads its weight evenly over the past"


@dataclass(frozen=True, kw_only=True)
class EvenlyConfig(Config):
    """Every option of the experiment."""

    length: int = option(12, "tokens of an input", low=2, high=512)
    draws: int = option(100, "random inputs", low=1, high=100_000)


def run(config: EvenlyConfig, context: RunContext) -> Findings:
    """Record the weights of a decoder whose queries are zero, over random inputs."""
    with seeds.isolated(context.seed, NAME, "model"):
        model = attnlab.Decoder(
            attnlab.DecoderConfig(
                vocab_size=9, max_length=config.length, d_model=16, num_heads=2, num_layers=1
            )
        )
        tokens = torch.randint(9, (config.draws, config.length))
    context.start(model)
    usual = weights_of(model, tokens)
    with torch.no_grad():
        model.get_parameter("layers.0.attention.query.weight").zero_()
    weights = weights_of(model, tokens)
    places = torch.arange(1, config.length + 1)
    evenly = torch.ones(config.length, config.length).tril() / places.unsqueeze(-1)
    apart = float((weights - evenly).abs().max())
    usually_apart = float((usual - evenly).abs().max())
    own = [float(weights[:, :, i, i].mean()) for i in range(config.length)]
    claims = [
        Claim(
            "every_past_token_alike",
            f"each of the i tokens so far gets 1/i of the weight ({config.draws:,} inputs)",
            f"at most {apart:.0e} apart",
            "1e-6",
            apart <= 1e-6,
        ),
        Claim(
            "queries_choose",
            "with random queries it is not so",
            f"up to {usually_apart:.2f} apart",
            "at least 0.01",
            usually_apart >= 0.01,
        ),
    ]
    chart = Lines(
        title="The weight on itself",
        caption="A token shares the weight with all before it.",
        x_label="place",
        y_label="weight",
        series=[Series(name="without queries", x=places.tolist(), y=own)],
        figure="own-weight",
    )
    content = ReportContent(
        title=NAME,
        subtitle=SUMMARY,
        facts=[("seed", str(context.seed)), ("inputs", f"{config.draws:,}")],
        sections=[chart, parameters_section(model), settings_section(config)],
    )
    return Findings(model, claims, content)


def weights_of(model: attnlab.Decoder, tokens: torch.Tensor) -> torch.Tensor:
    """Return the attention weights of the first layer: (input, head, query, key)."""
    with attnlab.record(model, "layers.0.attention.weights") as recording, torch.no_grad():
        model(tokens)
    weights: torch.Tensor = recording["layers.0.attention.weights"]
    return weights
