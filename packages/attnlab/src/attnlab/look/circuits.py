"""The circuits of heads: what each compares and what it moves, as matrices on the stream.

    heads = attnlab.circuits(model)             # or some: circuits(model, ["5.1", "4"])
    print(heads)                                # a line for each head
    heads["5.1"].ov.directions()                # singular directions, where they stand apart
    print(heads.compositions())                 # what later heads read of what earlier ones write

`ov @ x` is what a head writes where it looks at nothing but x, and `x @ qk @ y` is the score of the
query x and the key y (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").
Both are without biases. Norms have the scale 1, for that depends on the input: their gains and
means are in the matrices. Rotary positions are those of a query that looks at its own position. A
model that hides its queries and keys, or makes them by no matrix, is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import nn

from attnlab.display import Card, card_text, count_words, displayed
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.compositions import Compositions, compositions
from attnlab.look.factored import FactoredMatrix
from attnlab.look.head_matrices import LayerMatrices, head_matrices
from attnlab.look.heads import attentions, chosen_heads, head_name
from attnlab.look.token_map import TokenMaps
from attnlab.parts.dropout import drops_out

_SHARE = 0.9  # of the squares of singular values


@displayed
@dataclass(frozen=True)
class HeadCircuit:
    """The matrices of one head, (d_model, d_model).

    ov: to what is written, from what is looked at · qk: from the query's stream, to the key's, with
    the scale of the scores · copying: see `FactoredMatrix.copying`, of OV between the embeddings of
    all tokens and their logits; None where the model has no logits of its tokens or more than norms
    and matrices lead to them.
    """

    head: str
    ov: FactoredMatrix
    qk: FactoredMatrix
    copying: float | None


@displayed
@dataclass(frozen=True)
class Circuits:
    """The circuits of some heads of a model; `circuits["5.1"]` is one of them."""

    heads: list[HeadCircuit]
    _model: nn.Module = field(repr=False)
    _layers: list[LayerMatrices] = field(repr=False)

    def __getitem__(self, head: str) -> HeadCircuit:
        for circuit in self.heads:
            if circuit.head == head:
                return circuit
        known = did_you_mean(str(head), [circuit.head for circuit in self.heads])
        raise WrongUsage(f"the circuit of no head {head!r} is here; {known}")

    def __iter__(self) -> Iterator[HeadCircuit]:
        return iter(self.heads)

    def __len__(self) -> int:
        return len(self.heads)

    def compositions(self, *, samples: int = 200, seed: int = 0) -> Compositions:
        """Return how much of what each head writes later ones read as queries, keys and values.

        Args:
            samples: random directions that each score is held against.
            seed: of these.
        """
        if samples < 40:
            raise WrongUsage(f"an interval of 95 % needs at least 40 samples; got {samples}.")
        return compositions(self._model, self._layers, samples=samples, seed=seed)

    def _card(self) -> Card:
        rows = []
        for circuit in self.heads:
            copying = "" if circuit.copying is None else f"{circuit.copying:+.2f}"
            rows.append([circuit.head, copying, *_size(circuit.ov), *_size(circuit.qk)])
        columns = ["head", "copying", "OV norm", "OV 90 %", "QK norm", "QK 90 %"]
        if all(circuit.copying is None for circuit in self.heads):
            columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
        lines = ["  90 %: how many singular values make 90 % of all squares"]
        title = f"Circuits of {count_words(len(self.heads), 'head')}"
        return Card(title, columns=columns, rows=rows, lines=lines)

    def __str__(self) -> str:
        return card_text(self._card())


def _size(matrix: FactoredMatrix) -> tuple[str, str]:
    """Return the norm of a matrix, and the number of directions that make most of it."""
    squares = matrix.svd().values.square()
    missing = squares.cumsum(0) < _SHARE * squares.sum()
    return f"{float(squares.sum().sqrt()):.3g}", str(int(missing.sum()) + 1)


def circuits(model: nn.Module, heads: str | Sequence[str] | None = None) -> Circuits:
    """Return the OV and QK circuits of heads as factored matrices.

    Args:
        model: one of attnlab's or a pretrained one, in evaluation mode.
        heads: a name such as "5.1", "encoder 0.1" or "cross 2.3", or of a layer, "5", or several;
            None for all.

    Returns:
        the `Circuits`: `heads["5.1"].ov` and `.qk`, each a `FactoredMatrix` on the stream.

    Raises:
        WrongUsage: no such head, or a model with dropout or without a stream of blocks.
        CouldNotRun: a model whose queries, keys or values are not seen, or are no matrix times a
            stream.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> circuits(model)["0.1"].ov.shape  # (d_model, d_model), of rank head_width
    (64, 64)
    """
    if drops_out(model):
        raise WrongUsage("the model has random dropout; call model.eval() first.")
    names = [heads] if isinstance(heads, str) else heads
    chosen = chosen_heads(model, attentions(model), names)
    layers = [layer.only(chosen[layer.part]) for layer in head_matrices(model, list(chosen))]
    token_maps, head_circuits = TokenMaps(model), []
    for layer in layers:
        token_map = token_maps.at(layer)
        for index, number in enumerate(layer.heads):
            precision = layer.precision
            ov = FactoredMatrix(layer.output[index].T, layer.value[index], precision)
            qk = FactoredMatrix(layer.query[index].T, layer.key[index], precision)
            copying = None
            if token_map is not None:
                copying = FactoredMatrix(ov.left, ov.right @ token_map, precision).copying()
            head_circuits.append(HeadCircuit(head_name(layer.part, number), ov, qk, copying))
    return Circuits(head_circuits, model, layers)
