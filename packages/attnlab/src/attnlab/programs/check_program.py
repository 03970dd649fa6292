"""Check the certificate of a compiled program again, with NumPy alone: python check.py [FOLDER]

It shares no line with what wrote the certificate. Every input is put through the formulas of the
model in float64. Beside each number runs a bound on what rounding can change in it, in the model's
arithmetic or in this one, in any order of summation (Higham 2002, section 3.1).
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

Pair = Any  # numbers, and a bound on what rounding can change in each: (2, …)
DTYPES = {"float32": ("F32", "<f4", 2.0**-24), "float64": ("F64", "<f8", 2.0**-53)}
FILES = {"weights": "model.safetensors", "config": "config.json", "meaning": "program.json"}
KNOWN = {
    "kind": "encoder", "activation": "relu", "norm_place": "none", "final_norm": False,
    "positions": "learned", "projections": "dense", "per_token": True, "num_kv_heads": None,
    "scale_embedding": False,
}  # fmt: skip


class Model:
    """A model that is read from a folder, as formulas."""

    def __init__(self, folder: Path) -> None:
        model = json.loads((folder / "config.json").read_text())["model"]
        self.config, self.weights = model | model["config"], {}
        strange = [name for name in KNOWN if self.config[name] != KNOWN[name]]
        if strange or model["dtype"] not in DTYPES:
            sys.exit(f"no formulas here for a model of {model['dtype']} with its {strange}")
        kind, numbers, unit = DTYPES[model["dtype"]]
        self.unit = unit + 2.0**-53
        data = (folder / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:start]).items():
            if entry["dtype"] != kind:
                sys.exit(f"{name} is {entry['dtype']} in a model of {model['dtype']}")
            first, end = entry["data_offsets"]
            values = np.frombuffer(data[start + first : start + end], numbers)
            self.weights[name] = values.astype(np.float64).reshape(entry["shape"])

    def product(self, x: Pair, y: Pair, *others: Pair) -> Pair:
        """Return x @ y and others, in one sum of any order; each term is rounded 8 times more."""
        x_size, y_size, *sizes = [np.abs(value) + bound for value, bound in (x, y, *others)]
        share = (x[0].shape[-1] + 8) * self.unit
        rounding = share / (1 - share) * (x_size @ y_size + sum(sizes)) + self.unit**4
        bound = x[1] @ y_size + np.abs(x[0]) @ y[1] + sum(bound for _, bound in others)
        return np.stack((x[0] @ y[0] + sum(value for value, _ in others), bound + rounding))

    def linear(self, name: str, x: Pair, *others: Pair) -> Pair:
        """Return weight @ x, the bias and others."""
        weight, bias = self.weights[f"{name}.weight"].T, self.weights[f"{name}.bias"]
        return self.product(x, (weight, 0 * weight), (bias, 0 * bias), *others)

    def attention(self, name: str, x: Pair) -> Pair:
        """Return the stream after the heads of a layer."""
        shape = (2, *x.shape[1:3], self.config["num_heads"], -1)
        parts = (self.linear(f"{name}.{part}", x) for part in ("query", "key", "value"))
        query, key, value = (part.reshape(shape).swapaxes(2, 3) for part in parts)
        scores, moved = self.product(query, key.swapaxes(3, 4) / key.shape[-1] ** 0.5)
        if self.config["causal"]:
            scores = np.where(np.tri(shape[2], dtype=bool), scores, -np.inf)
        below = scores.max(-1, keepdims=True) - scores
        shares = np.exp(-below) / np.exp(-below).sum(-1, keepdims=True)
        # Scores that move by d move a share p by at most p (1 - p) (e^2d - 1).
        rounding = 4 * (shape[2] + 3) * self.unit + np.expm1(self.unit * np.minimum(below, 999))
        share = (1 - shares + rounding) * np.expm1(2 * moved.max(-1, keepdims=True)) + rounding
        gathered = self.product((shares, shares * share + self.unit**4), value)
        return self.linear(f"{name}.output", gathered.swapaxes(2, 3).reshape(x.shape), x)

    def logits(self, ids: Any) -> Pair:
        """Return the outputs at each token: (2, input, position, logit)."""
        places = self.weights["embedding.positions.weight"][: ids.shape[1]]
        start = self.weights["embedding.tokens.weight"][ids] + places
        x = np.stack((start, self.unit * np.abs(start)))
        for layer in (f"layers.{number}" for number in range(self.config["num_layers"])):
            x = self.attention(f"{layer}.attention", x)
            value, bound = self.linear(f"{layer}.feed_forward.inner", x)
            inner = np.maximum(value, 0), np.minimum(bound, np.maximum(value + bound, 0))
            x = self.linear(f"{layer}.feed_forward.outer", inner, x)
        return self.linear("head", x)


def read_answers(program: dict[str, Any], value: Any, bound: Any) -> tuple[Any, Any, Any]:
    """Return the answer at each place, its margin, and the bound on rounding."""
    if program["numbers"] is not None:
        apart, gaps = np.abs(value - program["numbers"]), np.diff(np.sort(program["numbers"]))
        inside = min([program["tolerance"], *gaps / 2]) - apart.min(-1)
        return apart.argmin(-1), inside, bound[..., 0]
    order = np.sort(value, -1)
    lead = order[..., -1] - order[..., -2] if value.shape[-1] > 1 else value[..., 0] * 0 + np.inf
    return value.argmax(-1), lead, 2 * bound.max(-1)


def check(folder: Path, longest: int) -> tuple[dict[str, Any], Any]:
    """Try every input: the certificate's exact fields; and margin, sure and rounding."""
    model, digest, worst = Model(folder), b"", np.array([np.inf, np.inf, -0.0])
    program = json.loads((folder / "program.json").read_text())
    size, first = len(program["alphabet"]), int(program["has_bos"])
    for length in range(1, longest + 1):
        for numbers in np.split(np.arange(size**length), range(256, size**length, 256)):
            ids = numbers[:, None] // size ** np.arange(length - 1, -1, -1) % size
            rows = np.pad(ids, ((0, 0), (first, 0)), constant_values=size)
            answers, inside, moved = read_answers(program, *model.logits(rows)[:, :, first:])
            least = inside.min(), (inside - moved).min(), -moved.max()
            worst = np.minimum(worst, least)  # which keeps NaN
            for row in answers.astype("<i4"):
                digest = hashlib.sha256(digest + row.tobytes()).digest()
    fields = {"name": program["name"], "shortest": 1, "proved_to": longest, "failures": 0}
    fields |= {"inputs": sum(size**length for length in range(1, longest + 1))}
    fields |= {"counterexample": None, "holds": True, "is_sure": True, "outputs": digest.hex()}
    fields["dtype"] = model.config["dtype"]
    for name, file in FILES.items():
        fields[name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    return fields, worst


def differences(text: str, fields: dict[str, Any], worst: Any) -> list[str]:
    """List the fields of a certificate that are wrong."""
    stated, (margin, sure, rounding) = json.loads(text), worst
    wrong = sorted(set(stated) ^ {*fields, "margin", "sure", "digest"})
    for name, value in fields.items():
        if json.dumps(stated.get(name)) != json.dumps(value):  # 0 is not false
            wrong.append(name)
    for name, value in (("margin", margin), ("sure", sure)):
        it, far = stated.get(name), -4 * rounding
        near = it is None if value == np.inf else type(it) is float and abs(it - value) <= far
        wrong += [name] * (not near)
    wrong += ["margin: rounding may exceed it"] * (not sure > 0)
    content = json.dumps({key: stated[key] for key in stated if key != "digest"}, sort_keys=True)
    again = stated | {"digest": hashlib.sha256(content.encode()).hexdigest()}
    return wrong + ["digest"] * (text != json.dumps(again, indent=2, ensure_ascii=False) + "\n")


def verdict(folder: Path) -> str:
    """Does the certificate fit its folder? In words."""
    text = (folder / "certificate.json").read_text()
    longest, inputs = (json.loads(text)[name] for name in ("proved_to", "inputs"))
    size = len(json.loads((folder / "program.json").read_text())["alphabet"])
    if type(longest) is not int or not 0 < longest < 1001:
        return f"DIFFERS: proved_to is {longest!r}"
    if sum(size**length for length in range(1, longest + 1)) > max(inputs, 10**6):
        return f"DIFFERS: {inputs!r} inputs are not all of up to {longest} tokens"
    fields, worst = check(folder, longest)
    wrong = differences(text, fields, worst)
    words = f"DIFFERS: {', '.join(wrong)}" if wrong else "holds"
    return f"{fields['inputs']:,} inputs of up to {longest} tokens: {words}; sure by {worst[1]:.3g}"


def main(folder: Path) -> None:
    """Print the verdict, and exit with 1 where something differs."""
    np.seterr(over="ignore", invalid="ignore")  # what is infinite or NaN is not sure
    try:
        words = verdict(folder)
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        words = f"DIFFERS: {folder} is damaged: {type(error).__name__}: {error}"
    sys.stdout.write(f"{words}\n")
    sys.exit("DIFFERS: " in words)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
