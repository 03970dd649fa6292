"""Check a certificate again, without torch and without attnlab: python check.py [FOLDER]

FOLDER holds what `attnlab compile` wrote: config.json, model.safetensors, program.json and
certificate.json. Every input is put through the model's formulas in float64. Beside each number
runs a bound on what rounding can change in it: in the model's own arithmetic and in this one, in
any order of summation (Higham 2002, section 3.1). An output counts only if it is right by more.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_CELLS = 1_000_000  # (input, query, key) of one pass
HASHED = {"weights": "model.safetensors", "config": "config.json", "meaning": "program.json"}
KNOWN = {
    "activation": "relu",
    "norm_place": "none",
    "final_norm": False,
    "positions": "learned",
    "projections": "dense",
    "bias": True,
    "scale_embedding": False,
    "per_token": True,
}
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}


def read_weights(path: Path, dtype: str) -> dict[str, Any]:
    """Read a safetensors file of a dtype as float64 arrays by name."""
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, told in json.loads(data[8:size]).items():
        if name != "__metadata__":
            kind = {"float64 F64": "<f8", "float32 F32": "<f4"}[f"{dtype} {told['dtype']}"]
            start, end = told["data_offsets"]
            values = np.frombuffer(data[size + start : size + end], kind)
            found[name] = values.astype(np.float64).reshape(told["shape"])
    return found


class Bounded(NamedTuple):
    """Numbers, and a bound on what rounding can change in each."""

    value: Array
    error: Array

    @property
    def size(self) -> Array:
        """The largest size that each may have."""
        return np.abs(self.value) + self.error


class Rounding:
    """The formulas of the parts of a model, with bounds, for a unit roundoff."""

    def __init__(self, weights: dict[str, Array], config: dict[str, Any], unit: float) -> None:
        self.weights, self.config, self.unit = weights, config, unit
        self.least = unit**4  # more than what underflows

    def of_sum(self, terms: int) -> float:
        """Bound the relative error of a sum of so many products, in any order."""
        return terms * self.unit / (1 - terms * self.unit)

    def linear(self, name: str, x: Bounded) -> Bounded:
        """Return weight @ x + bias."""
        weight, bias = self.weights[f"{name}.weight"].T, self.weights[f"{name}.bias"]
        rounding = self.of_sum(len(weight) + 1) * (x.size @ np.abs(weight) + np.abs(bias))
        error = x.error @ np.abs(weight) + rounding + self.least
        return Bounded(x.value @ weight + bias, error)

    def add(self, one: Bounded, two: Bounded) -> Bounded:
        """Return a sum."""
        value, error = one.value + two.value, one.error + two.error
        return Bounded(value, error + self.unit * (np.abs(value) + error))

    def heads_of(self, name: str, x: Bounded) -> Bounded:
        """Return a projection, split into heads: (input, head, position, width)."""
        heads = self.config["num_heads"]
        shape = (*x.value.shape[:2], heads, self.config["d_model"] // heads)
        value, error = self.linear(name, x)
        return Bounded(*(each.reshape(shape).swapaxes(1, 2) for each in (value, error)))

    def scores(self, query: Bounded, key: Bounded) -> Bounded:
        """Return query · key / root of the width: (input, head, query, key)."""
        width = query.value.shape[-1]
        value = query.value @ key.value.swapaxes(2, 3)
        error = query.error @ key.size.swapaxes(2, 3)
        error += np.abs(query.value) @ key.error.swapaxes(2, 3)
        error += self.of_sum(width + 3) * (query.size @ key.size.swapaxes(2, 3))
        return Bounded(value / math.sqrt(width), error / math.sqrt(width))

    def shares(self, scores: Bounded) -> Bounded:
        """Return the softmax of scores.

        Scores that move by d move a share p by at most p (1 - p) (e^2d - 1); the rest is rounding.
        """
        value, moved = scores.value, scores.error
        length = value.shape[-1]
        if self.config["causal"]:
            value = np.where(np.tri(length, dtype=bool), value, -np.inf)
            moved = np.where(np.tri(length, dtype=bool), moved, 0.0)
        power = np.exp(value - value.max(-1, keepdims=True))
        shares = power / power.sum(-1, keepdims=True)
        others = 1 - shares + self.of_sum(length + 2)  # which rounds too
        factor = others * np.expm1(2 * moved.max(-1, keepdims=True))
        return Bounded(shares, shares * (factor + self.of_sum(3 * length + 8)) + self.least)

    def attention(self, name: str, x: Bounded) -> Bounded:
        """Return what the heads of a layer add to the stream."""
        query, key, value = (
            self.heads_of(f"{name}.{part}", x) for part in ("query", "key", "value")
        )
        shares = self.shares(self.scores(query, key))
        found = shares.value @ value.value
        rounding = self.of_sum(shares.value.shape[-1]) * (shares.value @ np.abs(value.value))
        error = shares.value @ value.error + shares.error @ value.size + rounding
        joined = (each.swapaxes(1, 2).reshape(x.value.shape) for each in (found, error))
        return self.linear(f"{name}.output", Bounded(*joined))

    def feed_forward(self, name: str, x: Bounded) -> Bounded:
        """Return what the feed-forward part of a layer adds to the stream."""
        hidden = self.linear(f"{name}.inner", x)
        return self.linear(f"{name}.outer", Bounded(np.maximum(hidden.value, 0), hidden.error))


def width_of(config: dict[str, Any]) -> int:
    """Return how many numbers a pass holds for each position, beside one for each key."""
    return int(max(config["d_ff"], config["d_model"]) * config["num_heads"])


def bounded_logits(
    weights: dict[str, Array], config: dict[str, Any], ids: Array, dtype: str
) -> Bounded:
    """Return the logits of ids (input, position), with bounds on their rounding."""
    for name, value in KNOWN.items():
        if config[name] != value:
            raise ValueError(f"{name} is {config[name]}; these formulas are for {value}.")
    if dtype not in _ROUNDOFF:
        raise ValueError(f"the model is of {dtype}; these formulas are for {', '.join(_ROUNDOFF)}.")
    rounding = Rounding(weights, config, _ROUNDOFF[dtype] + _ROUNDOFF["float64"])
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite or NaN is not sure
        stream = weights["embedding.tokens.weight"][ids]
        stream = stream + weights["embedding.positions.weight"][: ids.shape[1]]
        state = Bounded(stream, rounding.unit * np.abs(stream))
        for layer in range(config["num_layers"]):
            name = f"layers.{layer}"
            state = rounding.add(state, rounding.attention(f"{name}.attention", state))
            state = rounding.add(state, rounding.feed_forward(f"{name}.feed_forward", state))
        return rounding.linear("head", state)


def inputs_of(size: int, length: int, width: int = 1) -> Iterator[Any]:
    """Yield all inputs of a length, in parts: (input, position) of token ids."""
    places = size ** np.arange(length - 1, -1, -1)
    step = max(1, _CELLS // ((length + 1) * max(length + 1, width)))
    for first in range(0, size**length, step):
        yield np.arange(first, min(first + step, size**length))[:, None] // places % size


def allowed(values: Array, tolerance: float) -> float:
    """Return a tolerance within which no two values lie: at most half their least distance."""
    return float(min([tolerance, *(np.diff(np.sort(values)) / 2)]))


def judge(logits: Any, bound: Any, values: Any, tolerance: float) -> tuple[Any, Any]:
    """Return the answer at each place, as its number among the values, and by how much it is sure.

    values: numbers; None for one logit a symbol.
    """
    if values is not None:
        tolerance = allowed(values, tolerance)
        order = np.argsort(values)
        middles = (values[order][1:] + values[order][:-1]) / 2
        answers = order[np.searchsorted(middles, logits[..., 0])]
        return answers, tolerance - np.abs(logits[..., 0] - values[answers]) - bound[..., 0]
    answers = logits.argmax(-1)
    order = np.sort(logits, -1)
    lead = order[..., -1] - order[..., -2] if logits.shape[-1] > 1 else np.inf
    return answers, lead - 2 * bound.max(-1)


def check(folder: Path) -> tuple[dict[str, Any], float]:
    """Put every input through the model: what the certificate should say, and how sure it is."""
    told = json.loads((folder / "program.json").read_text())
    model = json.loads((folder / "config.json").read_text())["model"]
    proved_to = json.loads((folder / "certificate.json").read_text())["proved_to"]
    weights = read_weights(folder / "model.safetensors", model["dtype"])
    size, digest, sure, inputs = len(told["alphabet"]), hashlib.sha256(), math.inf, 0
    numbers = None
    if told["numbers"]:
        numbers = np.array(told["numbers"])
    first = int(told["has_bos"])
    for length in range(1, proved_to + 1):
        for ids in inputs_of(size, length, width_of(model["config"])):
            rows = np.pad(ids, ((0, 0), (first, 0)), constant_values=size)
            logits, bound = bounded_logits(weights, model["config"], rows, model["dtype"])
            answers, own = judge(logits[:, first:], bound[:, first:], numbers, told["tolerance"])
            digest.update(answers.astype("<i4").tobytes())
            sure = float(np.minimum(sure, own.min()))  # which keeps NaN
            inputs += len(ids)
    found = {"outputs": digest.hexdigest(), "inputs": inputs}
    for name, file in HASHED.items():
        found[name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    return found, sure


def main() -> None:
    """Check a folder, say what came of it, and exit with 1 where something differs."""
    folder = Path(__file__).parent
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    certificate = json.loads((folder / "certificate.json").read_text())
    found, sure = check(folder)
    wrong = [name for name, value in found.items() if certificate[name] != value]
    if not sure > 0:
        wrong.append("margin: rounding may exceed it")
    verdict = "holds"
    if wrong:
        verdict = f"DIFFERS: {', '.join(wrong)}"
    words = f"{found['inputs']:,} inputs of up to {certificate['proved_to']} tokens"
    sys.stdout.write(f"{words}: {verdict}; sure by {sure:.3g}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
