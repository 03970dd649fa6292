"""Check a decoder's certificate again, without torch and without attnlab: python check.py [FOLDER]

FOLDER holds config.json, model.safetensors, certificate.json and task.json. Every prompt is put
through the model's formulas in float64. Beside each number runs a bound on what rounding can change
in it: in the model's own arithmetic and in this one, in any order of summation (Higham 2002,
section 3.1). An output counts only if it is right by more.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Described = dict[str, Any]  # kind, dtype and config of a model, as config.json has them


class Task(TypedDict):
    """A sequence task, as task.json has it."""

    rule: str
    letters: int
    length: int
    prompt_length: int
    answer_length: int


_CELLS = 1_000_000  # (input, query, key) of one pass
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_KNOWN = {
    "activation": ("relu", "gelu"),
    "positions": ("learned", "none"),
    "num_kv_heads": (None,),
    "scale_embedding": (False,),
    "per_token": (True,),
}
_EPSILON = {"layer": 1e-5, "rms": 1e-6}


def unknown_in(model: Described) -> str:
    """Name the parts of a model that these formulas do not cover; an empty text if none."""
    if model["kind"] not in ("encoder", "decoder"):
        return f"kind {model['kind']}"
    if model["dtype"] not in _ROUNDOFF:
        return str(model["dtype"])
    settings = {"per_token": True, **model["config"]}
    names = [name for name, known in _KNOWN.items() if settings[name] not in known]
    return ", ".join(f"{name} {settings[name]}" for name in names)


def read_weights(path: Path, dtype: str) -> dict[str, Array]:
    """Read a safetensors file of a dtype as float64 arrays by name."""
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    weights = {}
    for name, entry in json.loads(data[8:size]).items():
        if name != "__metadata__":
            kind = {"float64 F64": "<f8", "float32 F32": "<f4"}[f"{dtype} {entry['dtype']}"]
            start, end = entry["data_offsets"]
            values = np.frombuffer(data[size + start : size + end], kind)
            weights[name] = values.astype(np.float64).reshape(entry["shape"])
    return weights


class Bounded(NamedTuple):
    """Numbers, and a bound on the rounding of each."""

    value: Array
    error: Array

    @property
    def size(self) -> Array:
        """The largest size that each may have."""
        return np.abs(self.value) + self.error


class Rounding:
    """The formulas of the parts of a model, with bounds, for a unit roundoff."""

    def __init__(self, weights: dict[str, Array], config: Described, unit: float) -> None:
        self.weights, self.config, self.unit = weights, config, unit
        self.least = unit**4  # more than what underflows

    def of_sum(self, terms: int) -> float:
        """Bound the relative error of a sum of so many products, in any order."""
        return terms * self.unit / (1 - terms * self.unit)

    def exact(self, name: str) -> Bounded:
        """Return a weight, which has no error."""
        value = self.weights[name]
        return Bounded(value, np.zeros_like(value))

    def product(self, x: Bounded, matrix: Bounded) -> Bounded:
        """Return x @ matrix."""
        rounding = self.of_sum(matrix.value.shape[-2] + 1) * matrix.size
        error = x.error @ np.abs(matrix.value) + x.size @ (matrix.error + rounding)
        return Bounded(x.value @ matrix.value, error + self.least)

    def add(self, one: Bounded, two: Bounded) -> Bounded:
        """Return a sum."""
        value, error = one.value + two.value, one.error + two.error
        return Bounded(value, error + self.unit * (np.abs(value) + error))

    def linear(self, name: str, x: Bounded) -> Bounded:
        """Return weight @ x, plus the bias if there is one."""
        weight = self.exact(f"{name}.weight")
        product = self.product(x, Bounded(weight.value.T, weight.error.T))
        if f"{name}.bias" not in self.weights:
            return product
        # The bias may be added first.
        rounding = self.of_sum(len(weight.value.T) + 1) * np.abs(self.weights[f"{name}.bias"])
        return self.add(product, Bounded(self.weights[f"{name}.bias"], rounding))

    def softmax(self, scores: Bounded) -> Bounded:
        """Return exp(scores), as shares of their sum over the last axis.

        Scores that move by d move a share p by at most p (1 - p) (e^2d - 1); the rest is rounding:
        that of a large distance from the highest score is a large part of a small share.
        """
        length = scores.value.shape[-1]
        below = scores.value.max(-1, keepdims=True) - scores.value
        power = np.exp(-below)
        shares = power / power.sum(-1, keepdims=True)
        others = 1 - shares + self.of_sum(length + 2)  # which rounds too
        factor = others * np.expm1(2 * scores.error.max(-1, keepdims=True))
        rounding = self.of_sum(3 * length + 8) + np.expm1(self.unit * np.minimum(below, 1e3))
        return Bounded(shares, shares * (factor + rounding) + self.least)

    def heads_of(self, name: str, x: Bounded) -> Bounded:
        """Return a projection, split into heads: (input, head, position, width)."""
        if self.config["projections"] == "dense":
            heads = self.config["num_heads"]
            shape = (*x.value.shape[:2], heads, self.config["d_model"] // heads)
            projection = self.linear(name, x)
            return Bounded(*(part.reshape(shape).swapaxes(1, 2) for part in projection))
        made = self.product(self.exact(f"{name}.a"), self.exact(f"{name}.b"))
        temperature = self.config["temperature"]
        value, error = made.value / temperature, made.error / temperature
        matrix = self.softmax(Bounded(value, error + self.unit * np.abs(value)))
        if self.config["projections"] == "gated":
            base = self.weights[f"{name}.base"]
            value, error = matrix.value * base, matrix.error * np.abs(base)
            matrix = Bounded(value, error + self.unit * (np.abs(value) + error))
        return self.product(Bounded(x.value[:, None], x.error[:, None]), matrix)

    def scores(self, query: Bounded, key: Bounded) -> Bounded:
        """Return query · key / root of the width: (input, head, query, key)."""
        width = query.value.shape[-1]
        value, error = self.product(query, Bounded(*(part.swapaxes(2, 3) for part in key)))
        # Of the division, or of both factors by the fourth root of the width.
        error = error + self.of_sum(6) * (np.abs(value) + error)
        return Bounded(value / math.sqrt(width), error / math.sqrt(width))

    def attention(self, name: str, x: Bounded) -> Bounded:
        """Return the heads' addition to the stream."""
        parts = ("query", "key", "value")
        query, key, value = (self.heads_of(f"{name}.{part}", x) for part in parts)
        scores, moved = self.scores(query, key)
        if self.config.get("causal", True):
            seen = np.tri(x.value.shape[1], dtype=bool)
            scores, moved = np.where(seen, scores, -np.inf), np.where(seen, moved, 0.0)
        gathered = self.product(self.softmax(Bounded(scores, moved)), value)
        joined = (part.swapaxes(1, 2).reshape(x.value.shape) for part in gathered)
        return self.linear(f"{name}.output", Bounded(*joined))

    def feed_forward(self, name: str, x: Bounded) -> Bounded:
        """Return the feed-forward part's addition to the stream."""
        value, error = self.linear(f"{name}.inner", x)
        if self.config["activation"] == "relu":
            error = np.minimum(error, np.maximum(value + error, 0))  # none where it stays below 0
            return self.linear(f"{name}.outer", Bounded(np.maximum(value, 0), error))
        erf = np.vectorize(math.erf)(value / math.sqrt(2))
        # The slope of GELU is at most 1.13; where 1 + erf cancels, its rounding is absolute.
        error = 1.13 * error + self.of_sum(16) * (np.abs(value) + error)
        return self.linear(f"{name}.outer", Bounded(value * (1 + erf) / 2, error))

    def norm(self, name: str, x: Bounded) -> Bounded:
        """Normalize each position.

        A variance of n numbers by two passes or by Welford's updates is off by at most a multiple
        of n · spread · root mean square (Chan, Golub & LeVeque 1983).
        """
        width, kind = x.value.shape[-1], self.config["norm"]
        squares = (x.size**2).mean(-1, keepdims=True)
        mean = moved = np.zeros_like(squares)
        if kind == "layer":
            mean, moved = (part.mean(-1, keepdims=True) for part in x)
            moved = moved + self.of_sum(width + 1) * np.sqrt(squares)
        centered, error = x.value - mean, x.error + moved
        variance = (centered**2).mean(-1, keepdims=True) + _EPSILON[kind]
        wrong = ((2 * np.abs(centered) + error) * error).mean(-1, keepdims=True)
        spread = np.sqrt(variance + wrong)
        wrong = wrong + self.of_sum(4 * width + 8) * spread * np.sqrt(squares + _EPSILON[kind])
        root = 1 / np.sqrt(variance)
        # The variance is at least epsilon, but for rounding.
        largest = 1 / np.sqrt(np.maximum(variance - wrong, _EPSILON[kind] / 2))
        error = error * largest + np.abs(centered) * (largest - root)
        error = error + self.of_sum(3) * (x.size + np.abs(mean) + moved) * largest
        scaled = centered * root
        error = error + self.of_sum(6) * (np.abs(scaled) + error)
        weight = self.weights[f"{name}.weight"]
        bias = self.weights.get(f"{name}.bias", np.zeros(width))
        error = error * np.abs(weight)
        error = error + self.of_sum(3) * (np.abs(scaled * weight) + error + np.abs(bias))
        return Bounded(scaled * weight + bias, error)

    def part(self, layer: str, name: str, state: Bounded) -> Bounded:
        """Add a part's output to the stream, with the norm before, after or nowhere."""
        place, read = self.config["norm_place"], state
        if place == "pre":
            read = self.norm(f"{layer}.norm_{name}", state)
        if name == "attention":
            update = self.attention(f"{layer}.{name}", read)
        else:
            update = self.feed_forward(f"{layer}.{name}", read)
        state = self.add(state, update)
        if place == "post":
            state = self.norm(f"{layer}.norm_{name}", state)
        return state

    def logits(self, ids: Array) -> Bounded:
        """Return the logits of ids: (input, position, logit)."""
        state = self.exact("embedding.tokens.weight")
        state = Bounded(state.value[ids], state.error[ids])
        if self.config["positions"] == "learned":
            place = self.exact("embedding.positions.weight")
            shape = state.value.shape
            rows = (np.broadcast_to(part[: shape[1]], shape) for part in place)
            state = self.add(state, Bounded(*rows))
        for layer in range(self.config["num_layers"]):
            state = self.part(f"layers.{layer}", "attention", state)
            state = self.part(f"layers.{layer}", "feed_forward", state)
        if self.config["final_norm"]:
            state = self.norm("final_norm", state)
        if self.config.get("tie_output", False):
            tokens = self.exact("embedding.tokens.weight")
            return self.product(state, Bounded(tokens.value.T, tokens.error.T))
        return self.linear("head", state)


def bounded_logits(weights: dict[str, Array], model: Described, ids: Array) -> Bounded:
    """Return the logits of ids (input, position), with bounds on their rounding."""
    unknown = unknown_in(model)
    if unknown:
        raise ValueError(f"there are no formulas here for a model of {unknown}.")
    rounding = Rounding(weights, model["config"], _ROUNDOFF[model["dtype"]] + _ROUNDOFF["float64"])
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite or NaN is not sure
        return rounding.logits(ids)


def width_of(model: Described) -> int:
    """Return how many numbers a pass holds for each position, beside one for each key."""
    config = model["config"]
    inner = config["d_ff"] or 4 * config["d_model"]
    return int(max(inner, config["d_model"]) * config["num_heads"])


def inputs_of(size: int, length: int, width: int = 1) -> Iterator[Array]:
    """Yield all inputs of a length, in parts that a model takes at once: (input, position)."""
    places = size ** np.arange(length - 1, -1, -1)
    step = max(1, _CELLS // ((length + 1) * max(length + 1, width)))
    for first in range(0, size**length, step):
        yield np.arange(first, min(first + step, size**length))[:, None] // places % size


def prompts_of(task: Task, model: Described) -> Iterator[Array]:
    """Yield all prompts of a task, in parts: letters are the ids from 1 on."""
    for ids in inputs_of(task["letters"], task["prompt_length"], width_of(model)):
        if task["rule"] == "induction":  # the last letter stood there before
            ids = ids[(ids[:, :-1] == ids[:, -1:]).any(-1)]
        if len(ids):
            yield ids + 1


def chained(digest: str, answers: Array) -> str:
    """Return the SHA-256 of a digest so far and of more answers, input by input."""
    link = bytes.fromhex(digest)
    for row in answers.astype("<i4"):
        link = hashlib.sha256(link + row.tobytes()).digest()
    return link.hex()


def allowed(values: Array, tolerance: float) -> float:
    """Return the tolerance, or half the smallest distance of two values if that is less."""
    return float(min([tolerance, *(np.diff(np.sort(values)) / 2)]))


def read_answers(logits: Any, bound: Any, values: Any, tolerance: float) -> tuple[Any, Any]:
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
    lead: Any = np.inf
    if logits.shape[-1] > 1:
        lead = order[..., -1] - order[..., -2]
    return answers, lead - 2 * bound.max(-1)


class CheckedProof(NamedTuple):
    """The right content of a certificate; the smallest lead, before and after rounding; and the
    largest bound on rounding."""

    fields: dict[str, object]
    sure: float
    margin: float
    rounding: float


def answered_task(
    task: Task, weights: dict[str, Array], model: Described
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield all prompts with their answers, letter after letter the likeliest, how far each letter
    leads, and how sure that is."""
    for prompts in prompts_of(task, model):
        rows = np.pad(prompts, ((0, 0), (0, 1)))  # 0 separates
        leads, sure = [], []
        for _ in range(task["answer_length"]):
            value, bound = bounded_logits(weights, model, rows)
            answers, lead = read_answers(value[:, -1:, 1:], 0 * bound[:, -1:, 1:], None, 0)
            rows = np.concatenate((rows, answers + 1), 1)
            leads.append(lead)
            sure.append(lead - 2 * bound[:, -1:, 1:].max(-1))
        answers = rows[:, -task["answer_length"] :]
        yield prompts, answers, np.concatenate(leads, 1), np.concatenate(sure, 1)


def right_answers(task: Task, prompts: Array) -> Array:
    """Apply the task's rule to prompts: ids of letters (prompt, letter)."""
    rule, length, base = task["rule"], task["length"], task["letters"]
    if rule == "add":
        digits = prompts[:, :length] + prompts[:, length:] - 2
        total = digits @ base ** np.arange(length - 1, -1, -1)
        return np.asarray(total[:, None] // base ** np.arange(length, -1, -1) % base + 1)
    if rule == "induction":  # what followed the latest letter that is the last one
        latest = length - 2 - (prompts[:, -2::-1] == prompts[:, -1:]).argmax(-1)
        return np.take_along_axis(prompts, latest[:, None] + 1, -1)
    return {"sort": np.sort(prompts), "reverse": prompts[:, ::-1], "copy": prompts}[rule]


def check(folder: Path) -> CheckedProof:
    """Put every prompt through the model, and compare with the task's rule."""
    model = json.loads((folder / "config.json").read_text())["model"]
    weights = read_weights(folder / "model.safetensors", model["dtype"])
    task: Task = json.loads((folder / "task.json").read_text())
    right, inputs, digest = True, 0, ""
    sure = margin = math.inf
    rounding = 0.0
    for prompts, answers, leads, safe in answered_task(task, weights, model):
        expected = right_answers(task, prompts)
        right = right and np.array_equal(answers, expected)
        digest = chained(digest, answers - 1)
        sure = float(np.minimum(sure, safe.min()))  # which keeps NaN
        margin = float(np.minimum(margin, leads.min()))
        rounding = float(np.maximum(rounding, (leads - safe).max()))
        inputs += len(prompts)
    length = task["prompt_length"]
    fields: dict[str, object] = {
        "name": f"{task['rule']}, {task['letters']} letters",
        "shortest": length,
        "proved_to": length,
        "inputs": inputs,
        "failures": 0 if right else -1,
        "counterexample": None,
        "dtype": model["dtype"],
        "outputs": digest,
        "holds": True,
        "is_sure": True,
        **hashes_of(folder),
    }
    return CheckedProof(fields, sure, margin, rounding)


def hashes_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the weights, of the config, and of the meaning of the answers."""
    files = {"weights": "model.safetensors", "config": "config.json", "meaning": "program.json"}
    if (folder / "task.json").exists():
        files["meaning"] = "task.json"
    hashes = {}
    for name, file in files.items():
        hashes[name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    return hashes


def written(certificate: dict[str, Any]) -> str:
    """Return the text of a certificate, with the SHA-256 of all else that it says."""
    fields = {name: value for name, value in certificate.items() if name != "digest"}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return json.dumps({**fields, "digest": digest}, indent=2, ensure_ascii=False) + "\n"


def differences(text: str, checked: CheckedProof) -> list[str]:
    """List the fields of a certificate that differ from those computed again."""
    stated = json.loads(text)
    numbers = {"margin": checked.margin, "sure": checked.sure}
    wrong = sorted(set(stated) ^ {*checked.fields, *numbers, "digest"})
    for name, value in checked.fields.items():
        if name in stated and json.dumps(stated[name]) != json.dumps(value):  # 0 is not false
            wrong.append(name)
    for name, value in numbers.items():
        same = stated.get(name) is None
        if math.isfinite(value):  # another order of summation moves it by no more than rounding
            same = type(stated.get(name)) is float
            same = same and abs(stated[name] - value) <= 2 * checked.rounding
        if not same:
            wrong.append(name)
    if not checked.sure > 0:
        wrong.append("margin: rounding may exceed it")
    if text != written(stated):
        wrong.append("digest")
    return wrong


def main() -> None:
    """Check a folder, print the verdict, and exit with 1 where something differs."""
    folder = Path(__file__).parent
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    if not (folder / "certificate.json").exists():
        sys.exit(f"no certificate in {folder}; check one with: python check.py [FOLDER]")
    try:
        checked = check(folder)
        wrong = differences((folder / "certificate.json").read_text(), checked)
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        sys.exit(f"DIFFERS: {folder} is damaged: {type(error).__name__}: {error}")
    verdict = "holds"
    if wrong:
        verdict = f"DIFFERS: {', '.join(wrong)}"
    words = f"{checked.fields['inputs']:,} inputs of {checked.fields['proved_to']} tokens"
    sys.stdout.write(f"{words}: {verdict}; sure by {checked.sure:.3g}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
