"""Open programs: a part of a model is compiled, and the rest is left to training.

The compiled heads and hidden units keep their own block of the residual stream, with the gains that
the compiler computed. All else is drawn at random; it may read the block, but does not write into
it, so the part computes in the larger model what it computes alone. Training may leave the part as
it is or move it. The idea is that of free variables in Cajal (arXiv 2511.13769).

>>> from attnlab.programs import Program, compile_program, indices, select, selector_width
>>> place = selector_width(select(indices, indices, "<"))
>>> part = compile_program(Program(place.map(str), "ab", "place"), 3)
>>> config = config_around([part], "ab")
>>> opened = model_around(part, config, seed=0)
>>> opened.heads, opened.free_heads
(('0.0',), ('0.1', '0.2', '1.0', '1.1', '1.2'))
"""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab import seeds
from attnlab.display import displayed
from attnlab.errors import WrongUsage
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.programs.compiled_program import CompiledProgram, head_names
from attnlab.programs.values import Value

_SAME = (
    *("vocab_size", "max_length", "num_kv_heads", "causal", "per_token", "positions", "bias"),
    *("activation", "norm_place", "final_norm", "projections", "scale_embedding"),
)  # what a part and the model around it share

Places = list[int]
Region = tuple[Places, ...]


@displayed
@dataclass(frozen=True)
class OpenModel:
    """A model with a compiled part.

    Attributes:
        model: an encoder like any other, float32.
        part: the compiled program, which the block holds.
        held: by parameter name, which of its entries are the part's: True where computed, or 0 so
            that nothing else writes into the block.
    """

    model: Encoder
    part: CompiledProgram
    held: Mapping[str, Tensor]
    start: Mapping[str, Tensor]

    @property
    def heads(self) -> tuple[str, ...]:
        """The compiled heads by name; `0.1` is head 1 of layer 0."""
        return tuple(self.part.heads)

    @property
    def free_heads(self) -> tuple[str, ...]:
        """The heads that are left to training."""
        return tuple(name for name in head_names(self.model) if name not in self.part.heads)

    def frozen(self, model: torch.nn.Module) -> dict[str, Tensor]:
        """Return a model's parameters by name, with no gradient at the part's entries.

        Each has its usual shape, such as (out, in).

        `torch.func.functional_call(model, opened.frozen(model), ids)` computes with them. Train
        without weight decay, which moves what has no gradient.
        """
        parameters = {}
        for name, parameter in model.named_parameters():
            parameters[name] = torch.where(self.held[name], parameter.detach(), parameter)
        return parameters

    def moved(self, model: torch.nn.Module | None = None) -> dict[str, int]:
        """Count by parameter name the part's entries that are not as computed; none: empty."""
        counts = {}
        for name, parameter in (model or self.model).named_parameters():
            held = self.held[name]
            count = int((parameter.detach()[held] != self.start[name][held]).sum())
            if count:
                counts[name] = count
        return counts


def config_around(
    parts: Items[CompiledProgram],
    values: Items[Value],
    *,
    heads: int = 2,
    layers: int = 1,
    hidden: int = 16,
    width: int = 16,
) -> EncoderConfig:
    """Return the config of a model with room for any one of some compiled parts.

    Args:
        parts: compiled programs over the same tokens; the first says how the input is read.
        values: the answers at each token.
        heads: free heads in each layer, beside those of the part.
        layers: layers after the part's last.
        hidden: free hidden units in each layer.
        width: free dimensions of the residual stream, at least.

    Returns:
        the `EncoderConfig`, with the sum of the free and the compiled sizes.

    Raises:
        WrongUsage: sizes that no model can have.
    """
    first, configs = parts[0].model.config, [part.model.config for part in parts]
    num_heads = heads + max(config.num_heads for config in configs)
    stream = width + max(map(_width_of, parts))
    head_width = max(-(-stream // num_heads), *map(len, map(_channels, parts)))
    return EncoderConfig(
        vocab_size=first.vocab_size,
        max_length=first.max_length,
        d_model=num_heads * head_width,
        num_heads=num_heads,
        num_layers=layers + max(config.num_layers for config in configs),
        d_ff=hidden + max(config.inner_width for config in configs),
        norm_place="none",
        final_norm=False,
        positions="learned",
        num_classes=len(values),
        per_token=True,
        causal=first.causal,
    )


def random_model(config: EncoderConfig, seed: int) -> Encoder:
    """Draw a model with nothing compiled; an open model of this seed has its free entries."""
    with seeds.isolated(seed, "open model"):
        return Encoder(config).eval()


def model_around(part: CompiledProgram, config: EncoderConfig, *, seed: int) -> OpenModel:
    """Draw a model, and write a compiled part into it.

    Args:
        part: a compiled program; with dtype=torch.float32 its gains are checked for this model's.
        config: of the model, such as `config_around` gives.
        seed: of all that is not compiled.

    Returns:
        the `OpenModel`, whose compiled entries stay as they are while the rest is trained.

    Raises:
        WrongUsage: a config of another kind than the compiler's, or one that the part does not fit.
    """
    _check_fit(part, config)
    model = random_model(config, seed)
    held, start = {}, {}
    for name, parameter in model.named_parameters():
        held[name] = torch.zeros_like(parameter).bool()
    with torch.no_grad():
        _Writer(part, model, held).write()
    for name, parameter in model.named_parameters():
        start[name] = parameter.detach().clone()
    return OpenModel(model, part, held, start)


def _check_fit(part: CompiledProgram, config: EncoderConfig) -> None:
    config_of_part, needed = part.model.config, _width_of(part)
    for name in _SAME:
        expected, got = getattr(config_of_part, name), getattr(config, name)
        if got != expected:
            raise WrongUsage(f"the part is for {name} {expected}; got {got}.")
    least = {
        "num_layers": config_of_part.num_layers,
        "num_heads": config_of_part.num_heads,
        "inner_width": config_of_part.inner_width,
        "d_model": needed,
        "head_width": len(_channels(part)),
    }
    for name, value in least.items():
        if getattr(config, name) < value:
            raise WrongUsage(f"the part needs {name} {value}; got {getattr(config, name)}.")


def _width_of(part: CompiledProgram) -> int:
    """Return how many dimensions of the stream a part takes."""
    return 1 + max(last for _, _, last in part.stream)


def _channels(part: CompiledProgram) -> range:
    """Return the channels of a head that any of its heads uses: the first so many."""
    config, used = part.model.config, 0
    for name, parameter in part.model.named_parameters():
        if name.endswith(("query.weight", "query.bias", "value.weight")):
            by_head = parameter.detach().reshape(config.num_heads, config.head_width, -1)
            used = max([used, *(1 + by_head.any(-1).any(0).nonzero().flatten()).tolist()])
    return range(used)


class _Writer:
    """Writes the matrices of a part into a larger model, and marks their entries."""

    def __init__(self, part: CompiledProgram, model: Encoder, held: Mapping[str, Tensor]) -> None:
        self.part, self.model, self.held = part, model, held
        self.stream = list(range(_width_of(part)))
        self.weights = {name: weight.float() for name, weight in part.model.named_parameters()}

    def write(self) -> None:
        """Write all of them."""
        for name in ("embedding.tokens.weight", "embedding.positions.weight"):
            every = list(range(len(self.weights[name])))
            self._hold(name, (slice(None), self.stream))
            self._copy(name, (every, self.stream), (every, self.stream))
        for layer in range(self.model.config.num_layers):
            self._write_heads(layer, f"layers.{layer}.attention")
            self._write_units(f"layers.{layer}.feed_forward")

    def _write_heads(self, layer: int, name: str) -> None:
        """Write the heads of a layer; scores are divided by the root of the new head width."""
        width, before = self.model.config.head_width, self.part.model.config.head_width
        channels, to, source = list[int](), list[int](), list[int]()
        used = len(_channels(self.part))
        for head in self.part.heads:
            of_layer, number = map(int, head.split("."))
            if of_layer == layer:
                first, first_of_part = number * width, number * before
                channels += range(first, first + width)
                to += range(first, first + used)
                source += range(first_of_part, first_of_part + used)
        for projection, times in (("query", (width / before) ** 0.5), ("key", 1.0), ("value", 1.0)):
            self._write(f"{name}.{projection}", channels, to, source, times=times)
        self._write_into(f"{name}.output", channels, to, source)

    def _write_units(self, name: str) -> None:
        units = list[int]()
        if f"{name}.outer.weight" in self.weights:
            units = self.weights[f"{name}.outer.weight"].any(0).nonzero().flatten().tolist()
        self._write(f"{name}.inner", units, units, units)
        self._write_into(f"{name}.outer", units, units, units)

    def _write(
        self, name: str, held: Places, to: Places, source: Places, times: float = 1.0
    ) -> None:
        """Write rows that read the block alone."""
        for part, columns in (("weight", (self.stream,)), ("bias", ())):
            self._hold(f"{name}.{part}", (held,))
            self._copy(f"{name}.{part}", (to, *columns), (source, *columns), times)

    def _write_into(self, name: str, held: Places, to: Places, source: Places) -> None:
        """Write the columns that write into the block; all others are zero there."""
        self._hold(f"{name}.weight", (self.stream,), (slice(None), held))
        self._copy(f"{name}.weight", (self.stream, to), (self.stream, source))
        self._hold(f"{name}.bias", (self.stream,))
        self._copy(f"{name}.bias", (self.stream,), (self.stream,))

    def _hold(self, name: str, *regions: Any) -> None:
        """Take regions of a parameter for the part, and make them 0."""
        for region in regions:
            self.held[name][region] = True
        self.model.get_parameter(name)[self.held[name]] = 0.0

    def _copy(self, name: str, to: Region, source: Region, times: float = 1.0) -> None:
        """Copy a region of the part's parameter; a layer that the part has not leaves 0."""
        if name in self.weights:
            values = times * self.weights[name][np.ix_(*source)]
            self.model.get_parameter(name)[np.ix_(*to)] = values
