"""A compiled program: the model, the meaning of its outputs, and the line of each head and unit."""

import json
from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.core.store import StateFolder, digest_of, refusing_damage
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.models.encoder import Encoder
from attnlab.models.storage import load_model, save_model
from attnlab.programs.blueprint import Matrix
from attnlab.programs.check import read_answers
from attnlab.programs.interpreter import token_codes
from attnlab.programs.values import Value, are_numbers


@displayed
@dataclass(frozen=True)
class CompiledProgram:
    """A model that computes a program.

    Attributes:
        model: an encoder; logits (batch, length, values), or one number for each token.
        alphabet: the input tokens; their ids are their places here, and BOS's is the next one.
        values: what an output may be: the logits' names in their order, or all numbers.
        longest: tokens of the longest input.
        tolerance: how far an output may be from what the program says.
        has_bos: whether BOS stands before every input.
        heads: the program's line of each head, by name (`0.1` is head 1 of layer 0).
        ways: how each head does that, by name.
        stream: what the dimensions of the residual stream hold: name, first and last dimension.
        error: how far an output may be from what the program says, rounding not counted.
    """

    model: Encoder
    name: str
    alphabet: tuple[Value, ...]
    values: tuple[Value, ...]
    longest: int
    tolerance: float
    has_bos: bool
    heads: Mapping[str, str]
    ways: Mapping[str, str]
    stream: tuple[tuple[str, int, int], ...]
    error: float

    def __post_init__(self) -> None:
        """Label each head of the model with its line, for pictures."""
        labels = {}
        for name, line in self.heads.items():
            labels[name] = line.split("  ")[-1]
        self.model.head_labels = labels

    def ids(self, inputs: Items[Items[Value]]) -> Tensor:
        """Return token ids (input, position) of inputs of one length, BOS before each."""
        if isinstance(inputs, str):
            raise WrongUsage(f"ids takes inputs of one length, as in: ids([{inputs!r}]).")
        rows = [token_codes(self.alphabet, tokens) for tokens in inputs]
        sizes = sorted(set(map(len, rows)))
        if len(sizes) != 1 or sizes[0] > self.longest:
            raise WrongUsage(
                f"inputs are of one length, from 1 to {self.longest} tokens; got "
                f"{', '.join(map(str, sizes)) or 'none'}."
            )
        return self.with_bos(torch.tensor(rows))

    def with_bos(self, ids: Tensor) -> Tensor:
        """Put BOS before ids (batch, length), where the model has one: (batch, length + 1)."""
        if not self.has_bos:
            return ids
        return torch.cat((torch.full((len(ids), 1), len(self.alphabet)), ids), 1)

    def logits(self, ids: Tensor) -> Tensor:
        """Return the outputs at the tokens: (input, position, values), or (…, 1) for numbers."""
        with torch.no_grad():
            logits: Tensor = self.model(ids)
        return logits[:, int(self.has_bos) :]

    def __call__(self, tokens: Items[Value]) -> list[Value]:
        """Compute one input's outputs: the nearest of the values that each may have."""
        logits = self.logits(self.ids([tokens]))[0].double().numpy()
        answers, _ = read_answers(logits, np.zeros_like(logits), self.numbers, self.tolerance)
        return [self.values[place] for place in answers]

    @property
    def numbers(self) -> Matrix | None:
        """The values, where the output is a number; None where it is a logit for each value."""
        if not are_numbers(self.values):
            return None
        return np.array(list(map(float, self.values)))

    def explain(self) -> str:
        """Describe each head and each part of the stream."""
        config = self.model.config
        lines = [
            f"{self.name}: {config.num_layers} layers of {config.num_heads} heads of width "
            f"{config.head_width}, stream {config.d_model}, hidden {config.inner_width}, inputs of "
            f"up to {self.longest} tokens{', BOS first' if self.has_bos else ''}"
        ]
        for name, line in self.heads.items():
            lines += [f"  head {name}  {line}", f"            {self.ways.get(name, '')}".rstrip()]
        for name, first, last in self.stream:
            lines.append(f"  stream {first}-{last}  {name}")
        lines.append(f"  an output is off by {self.error:.2g} at most, beside rounding")
        return "\n".join(lines)

    def save(self, folder: Path | str) -> Path:
        """Write the model, and `program.json` beside it; return the folder."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        del facts["model"]
        for name in ("alphabet", "values"):
            facts[name] = list(map(_to_json, facts[name]))
        facts["numbers"] = None if self.numbers is None else self.numbers.tolist()
        path = save_model(self.model, folder)
        facts["config"] = digest_of(path / "config.json")
        _state(path).write({**facts, "digest": _digest(facts)})
        return path

    def _card(self) -> Card:
        return Card(f"compiled {self.name}", lines=self.explain().split("\n"))


def open_compiled(folder: Path | str) -> CompiledProgram:
    """Read a compiled program back from its folder.

    Args:
        folder: where `CompiledProgram.save` wrote it.

    Returns:
        the `CompiledProgram`, with the same weights.

    Raises:
        CouldNotRun: a file is missing or damaged, or the folder is of something else.
    """
    facts, path = _state(Path(folder)).read(), Path(folder)
    model = load_model(folder)
    if not isinstance(model, Encoder):
        raise CouldNotRun(f"{folder} holds no encoder.")
    with refusing_damage(f"{folder}/program.json"):
        del facts["format"]
        if facts.pop("digest") != _digest(facts):
            raise ValueError("its checksum is not that of its content")
        if facts["config"] != digest_of(path / "config.json"):
            raise ValueError("it belongs to another config.json")
        for name in ("config", "numbers"):
            del facts[name]
        for name in ("alphabet", "values"):
            facts[name] = tuple(map(_from_json, facts[name]))
        facts["stream"] = tuple((name, first, last) for name, first, last in facts["stream"])
        return CompiledProgram(model=model, **facts)


def head_names(model: Encoder) -> list[str]:
    """Name all heads of a model; `0.1` is head 1 of layer 0."""
    pairs = product(range(model.config.num_layers), range(model.config.num_heads))
    return [f"{layer}.{head}" for layer, head in pairs]


def _digest(facts: Mapping[str, object]) -> str:
    """Return the checksum of a program's facts."""
    return digest_of(json.dumps(facts, sort_keys=True).encode())


def _state(folder: Path) -> StateFolder:
    return StateFolder(folder, "program.json", "attnlab program 1", "compiled program")


def _to_json(value: Value) -> Any:
    if isinstance(value, Fraction):
        return {"fraction": [value.numerator, value.denominator]}
    if type(value) is tuple:
        return {"tuple": list(map(_to_json, value))}
    if type(value) in (type(None), str, bool, int, float):
        return value
    raise CouldNotRun(f"a value is saved if it is a text, a number or a tuple; got {value!r}.")


def _from_json(form: Any) -> Value:
    if not isinstance(form, dict):
        return form
    if "fraction" in form:
        return Fraction(*form["fraction"])
    return tuple(map(_from_json, form["tuple"]))
