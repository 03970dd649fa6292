"""Check the certificate of a compiled program again, with NumPy alone: python check.py [FOLDER]

It shares no line with what wrote the certificate. Every input is put through the formulas of the
model in float64. Beside each number runs a bound on what rounding can change in it, in the model's
arithmetic or in this one, in any order of summation (Higham 2002, section 3.1).
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Pair = tuple[Any, ...]  # numbers, and a bound on what rounding can change in each
DTYPES = {"float32": ("F32", "<f4", 2.0**-24), "float64": ("F64", "<f8", 2.0**-53)}
FILES = {"weights": "model.safetensors", "config": "config.json", "meaning": "program.json"}
KNOWN = {
    "activation": "relu", "norm_place": "none", "final_norm": False, "positions": "learned",
    "projections": "dense", "per_token": True, "num_kv_heads": None, "scale_embedding": False,
}  # fmt: skip


class Model:
    """A model that is read from a folder, as formulas."""

    def __init__(self, folder: Path) -> None:
        told = json.loads((folder / "config.json").read_text())["model"]
        self.config, self.dtype = told["config"], told["dtype"]
        strange = [name for name, value in KNOWN.items() if self.config[name] != value]
        if strange or told["kind"] != "encoder" or self.dtype not in DTYPES:
            sys.exit(f"no formulas here for this {self.dtype} {told['kind']} {strange}")
        kind, numbers, unit = DTYPES[self.dtype]
        self.unit, self.weights = unit + 2.0**-53, {}
        data = (folder / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        for name, each in json.loads(data[8:start]).items():
            if name != "__metadata__":
                if each["dtype"] != kind:
                    sys.exit(f"{name} is {each['dtype']} in a model of {self.dtype}")
                first, end = (start + offset for offset in each["data_offsets"])
                values = np.frombuffer(data[first:end], numbers).astype(np.float64)
                self.weights[name] = values.reshape(each["shape"])

    def product(self, x: Pair, y: Pair, more: int = 1) -> Pair:
        """Return x @ y, of which each term is rounded so many more times than terms are added."""
        sizes = [np.abs(value) + bound for value, bound in (x, y)]
        share = (x[0].shape[-1] + more) * self.unit
        rounding = share / (1 - share) * (sizes[0] @ sizes[1]) + self.unit**4
        return x[0] @ y[0], x[1] @ sizes[1] + np.abs(x[0]) @ y[1] + rounding

    def add(self, x: Pair, y: Pair) -> Pair:
        """Return x + y."""
        value, bound = x[0] + y[0], x[1] + y[1]
        return value, bound + self.unit * (np.abs(value) + bound)

    def linear(self, name: str, x: Pair) -> Pair:
        """Return weight @ x + bias, which may be added first."""
        weight, bias = self.weights[f"{name}.weight"].T, self.weights[f"{name}.bias"]
        rounding = 2 * len(weight) * self.unit * np.abs(bias)
        return self.add(self.product(x, (weight, 0 * weight)), (bias, rounding))

    def attention(self, name: str, x: Pair) -> Pair:
        """Return what the heads of a layer write."""
        shape, heads = (*x[0].shape[:2], self.config["num_heads"], -1), {}
        for part in ("query", "key", "value"):
            found = self.linear(f"{name}.{part}", x)
            heads[part] = tuple(each.reshape(shape).swapaxes(1, 2) for each in found)
        root = heads["key"][0].shape[-1] ** 0.5
        keys = tuple(each.swapaxes(2, 3) / root for each in heads["key"])
        scores, moved = self.product(heads["query"], keys, more=8)
        if self.config["causal"]:
            scores = np.where(np.tri(shape[1], dtype=bool), scores, -np.inf)
        below = scores.max(-1, keepdims=True) - scores
        shares = np.exp(-below) / np.exp(-below).sum(-1, keepdims=True)
        # Scores that move by d move a share p by at most p (1 - p) (e^2d - 1).
        own = 4 * (shape[1] + 3) * self.unit
        bound = (1 - shares + own) * np.expm1(2 * moved.max(-1, keepdims=True)) + own
        bound = shares * (bound + np.expm1(self.unit * np.minimum(below, 999))) + self.unit**4
        found = self.product((shares, bound), heads["value"])
        return self.linear(
            f"{name}.output", tuple(each.swapaxes(1, 2).reshape(x[0].shape) for each in found)
        )

    def logits(self, ids: Any) -> Pair:
        """Return the outputs at each token: (input, position, logit)."""
        names = (f"embedding.{name}.weight" for name in ("tokens", "positions"))
        tokens, places = (self.weights[name] for name in names)
        x = self.add((tokens[ids], 0.0), (places[: ids.shape[1]], 0.0))
        for layer in (f"layers.{number}" for number in range(self.config["num_layers"])):
            x = self.add(x, self.attention(f"{layer}.attention", x))
            value, bound = self.linear(f"{layer}.feed_forward.inner", x)
            inner = (np.maximum(value, 0), bound)
            x = self.add(x, self.linear(f"{layer}.feed_forward.outer", inner))
        return self.linear("head", x)


def inputs_of(size: int, longest: int, config: dict[str, Any]) -> Iterator[Any]:
    """Yield all inputs of up to so many tokens, in the parts whose answers are hashed in turn."""
    width = max(config["d_ff"] or 4 * config["d_model"], config["d_model"]) * config["num_heads"]
    for length in range(1, longest + 1):
        step = max(1, 1_000_000 // ((length + 1) * max(length + 1, width)))
        for first in range(0, size**length, step):
            numbers = np.arange(first, min(first + step, size**length))[:, None]
            yield numbers // size ** np.arange(length - 1, -1, -1) % size


def judge(value: Any, bound: Any, told: dict[str, Any]) -> Pair:
    """Return the answer at each place, and by how much it is right for sure."""
    if told["numbers"] is None:
        order = np.sort(value, -1)
        lead = order[..., -1] - order[..., -2] if value.shape[-1] > 1 else value[..., 0] * 0 + 1
        return value.argmax(-1), lead - 2 * bound.max(-1)
    numbers = np.sort(told["numbers"])
    gaps = np.diff(numbers) / 2
    places = np.searchsorted(numbers[1:] - gaps, value[..., 0])
    sure = min([told["tolerance"], *gaps]) - np.abs(value[..., 0] - numbers[places])
    return np.argsort(told["numbers"])[places], sure - bound[..., 0]


def check(folder: Path) -> tuple[dict[str, Any], float]:
    """Try every input: return what the certificate should say, and how sure it is."""
    model, digest, inputs, sure = Model(folder), "", 0, np.inf
    told = json.loads((folder / "program.json").read_text())
    longest = json.loads((folder / "certificate.json").read_text())["proved_to"]
    size, first = len(told["alphabet"]), int(told["has_bos"])
    for ids in inputs_of(size, longest, model.config):
        value, bound = model.logits(np.pad(ids, ((0, 0), (first, 0)), constant_values=size))
        answers, own = judge(value[:, first:], bound[:, first:], told)
        digest = hashlib.sha256(digest.encode() + answers.astype("<i4").tobytes()).hexdigest()
        inputs, sure = inputs + len(ids), float(np.minimum(sure, own.min()))  # which keeps NaN
    found = {"outputs": digest, "inputs": inputs, "proved_to": longest, "dtype": model.dtype}
    found |= {"holds": True, "is_sure": True, "failures": 0}
    for name, file in FILES.items():
        found[name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    return found, sure


def main(folder: Path) -> None:
    """Say whether the certificate is true of its folder."""
    np.seterr(over="ignore", invalid="ignore")  # what is infinite or NaN is not sure
    found, sure = check(folder)
    stated = json.loads((folder / "certificate.json").read_text())
    wrong = [name for name in found if stated.get(name) != found[name]]
    wrong += ["margin: rounding may exceed it"] * (not sure > 0)
    verdict = f"DIFFERS: {', '.join(wrong)}" if wrong else "holds"
    words = f"{found['inputs']:,} inputs of up to {found['proved_to']} tokens"
    sys.stdout.write(f"{words}: {verdict}; sure by {sure:.3g}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
