"""Read a circuit of the suite and run it, with NumPy alone; heads, parts and edges can be cut.

circuit = NumpyCircuit("suite", "reverse")
circuit.logits({"layers.1.attention.0"}, edge=("embedding", "layers.0.attention.1.key"))
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

Parts = dict[str, Any]  # what each sender adds to the stream: (input, position, dimension)
KINDS = {"F32": ("<f4", float), "I64": ("<i8", int), "BOOL": ("|b1", bool)}


def read_tensors(path: Path) -> dict[str, Any]:
    """Read a safetensors file: arrays by name."""
    data, tensors = path.read_bytes(), {}
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = np.frombuffer(data[start + first : start + last], KINDS[entry["dtype"]][0])
            tensors[name] = values.astype(KINDS[entry["dtype"]][1]).reshape(entry["shape"])
    return tensors


class NumpyCircuit:
    """A model with all its inputs and right answers; `facts` are its entry in suite.json."""

    def __init__(self, folder: Path | str, name: str) -> None:
        self.facts = json.loads((Path(folder) / "suite.json").read_text())["circuits"][name]
        self.tensors = read_tensors(Path(folder) / f"{name}.safetensors")
        self.cut: Collection[str] = ()
        self.edge, self.edges = ("", ""), set[tuple[str, str]]()  # cut, and all that there are

    def logits(self, cut: Collection[str] = (), edge: tuple[str, str] = ("", "")) -> Any:
        """Run the model on every input; what is cut writes zeros, an edge is not read."""
        self.cut, self.edge, prefix = cut, edge, ""
        if "tokens" in self.tensors:
            parts = self.stack("", self.tensors["tokens"], self.tensors["real"][:, None])
        else:
            source, target = self.tensors["source"], self.tensors["target"]
            memory = self.stack("encoder.", source, np.array(True))
            memory, prefix = self.normed("encoder.final_norm", memory), "decoder."
            parts = self.stack(prefix, target, np.tri(target.shape[1], dtype=bool), memory)
        return self.linear("head", sum(self.normed(f"{prefix}final_norm", parts).values()))

    def stack(self, prefix: str, tokens: Any, allowed: Any, memory: Parts | None = None) -> Parts:
        """Run an encoder or a decoder."""
        table = self.tensors[f"{prefix}embedding.tokens.weight"][tokens]
        places = self.tensors[f"{prefix}embedding.positions.weight"][: tokens.shape[1]]
        parts = {f"{prefix}embedding": table + places}
        for layer in range(self.facts["layers"][prefix]):
            name = f"{prefix}layers.{layer}"
            here = self.normed(f"{name}.norm_attention", parts)
            parts |= self.attention(f"{name}.attention", here, here, allowed)
            if memory is not None:
                here = self.normed(f"{name}.norm_cross_attention", parts)
                parts |= self.attention(f"{name}.cross_attention", here, memory, np.array(True))
            here, name = self.normed(f"{name}.norm_feed_forward", parts), f"{name}.feed_forward"
            hidden = np.maximum(self.linear(f"{name}.inner", sum(here.values())), 0)
            parts[name] = self.linear(f"{name}.outer", hidden) * (name not in self.cut)
        return parts

    def attention(self, name: str, here: Parts, there: Parts, allowed: Any) -> Parts:
        """Return each head's addition to the stream, and the bias of all."""
        size = self.facts["head_width"]
        heads = {f"{name}.bias": self.tensors[f"{name}.output.bias"] + 0 * sum(here.values())}
        for head in range(self.facts["heads"]):
            path, rows = f"{name}.{head}", slice(head * size, (head + 1) * size)
            query = self.read(name, path, "query", rows, here)
            key, value = (self.read(name, path, slot, rows, there) for slot in ("key", "value"))
            scores = np.where(allowed, query @ key.swapaxes(1, 2) / size**0.5, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            gathered = shares / shares.sum(-1, keepdims=True) @ value * (path not in self.cut)
            heads[path] = gathered @ self.tensors[f"{name}.output.weight"][:, rows].T
        return heads

    def read(self, name: str, path: str, slot: str, rows: slice, parts: Parts) -> Any:
        """Return a head's queries, keys or values, without the sender whose edge is cut."""
        stream = sum(parts.values())
        self.edges |= {(sender, f"{path}.{slot}") for sender in parts}
        if self.edge[1] == f"{path}.{slot}":
            stream = stream - parts[self.edge[0]]
        return self.linear(f"{name}.{slot}", stream, rows)

    def normed(self, name: str, parts: Parts) -> Parts:
        """Put parts through a layer norm, if there is one, that divides as it does by their sum."""
        if f"{name}.weight" not in self.tensors:
            return parts
        size = np.sum(list(parts.values()), 0).var(-1, keepdims=True) + 1e-5
        scale = self.tensors[f"{name}.weight"] / np.sqrt(size)
        return {key: (part - part.mean(-1, keepdims=True)) * scale for key, part in parts.items()}

    def linear(self, name: str, x: Any, rows: slice = slice(None)) -> Any:
        """Return weight @ x + bias, or some rows of it."""
        return x @ self.tensors[f"{name}.weight"][rows].T + self.tensors[f"{name}.bias"][rows]
