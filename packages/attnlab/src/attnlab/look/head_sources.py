"""What does a head take from where? Its output at one query, taken apart into its keys.

    sources = why(model, "When John and Mary went", head="9.6", target=" Mary")
    print(sources)                              # weight, norm, share of the output and of a logit

A head's output is the sum over keys of weight times value, through the output projection and
perhaps a norm, whose scale is held fixed (as in `lens.py`). So what each key adds to the stream
sums to what the head writes, and what it adds to a logit to the head's direct share of it. A large
weight on a small value moves little (Kobayashi et al. 2020, "Attention is Not Only a Weight").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.display import Card, NumberTable, card_text, count_words, displayed, plain
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.anatomy import are_close
from attnlab.look.heads import head_name, one_head
from attnlab.look.inputs import Call
from attnlab.look.lens import checked_ids
from attnlab.look.position_names import position_at
from attnlab.look.readout import (
    HeadPieces,
    Place,
    StreamWriter,
    parts_of_stream,
    reads_mean,
    written_by,
)
from attnlab.look.recording import Recording, record
from attnlab.look.streams import heads_step
from attnlab.look.target_ids import answer_name
from attnlab.parts.dropout import drops_out
from attnlab.sites import set_aside, site_names, site_of

_MOST_LINES = 12
_LEGEND = (
    "norm: the size of what a key adds to the stream; share: how much of the head's output lies in "
    "that direction. All shares sum to 1, so some are above 1 where others, below 0, work against"
)


@displayed
@dataclass(frozen=True)
class HeadSources:
    """What a head writes at one query, as a sum over keys.

    head: its name · query: position and token · keys: tokens · weights (key,): of the query ·
    written (key, d_model): what each key adds to the stream · target: the token that was named, or
    None · logits (key,): what each adds to the logit of `target`, None without one.
    """

    head: str
    query: tuple[int, str]
    keys: list[str]
    weights: Tensor
    written: Tensor
    target: str | None = None
    logits: Tensor | None = None

    @property
    def output(self) -> Tensor:
        """What the head writes to the stream, (d_model,)."""
        return self.written.sum(0)

    @property
    def norms(self) -> Tensor:
        """The size of what each key adds, (key,)."""
        norms: Tensor = torch.linalg.vector_norm(self.written, dim=-1)
        return norms

    @property
    def shares(self) -> Tensor:
        """What each key adds in the direction of the output, over the output's size, (key,); they
        sum to 1, and a key that works against the others has a negative one."""
        shares: Tensor = self.written @ self.output / self.output.square().sum()
        return shares

    def to_mapping(self) -> Any:
        """Return everything as plain values, for JSON."""
        return plain(self) | {"norms": self.norms.tolist(), "shares": self.shares.tolist()}

    def number_tables(self) -> list[NumberTable]:
        """Return weights and shares by key as a table to draw, and what is added to the logit, over
        the largest of that, so that all have one scale."""
        names = [f"{index}·{key}" for index, key in enumerate(self.keys)]
        columns, values = ["weight", "share"], [self.weights.to(self.shares), self.shares]
        if self.logits is not None:
            largest = float(self.logits.abs().max())
            columns.append(f"logit/{largest:.3g}")
            values.append(self.logits / (largest or 1.0))
        title, rows = f"What {self._cell} takes from each key", torch.stack(values, 1).tolist()
        return [NumberTable(title, "Weight and share", names, columns, "key", "", rows)]

    @property
    def _cell(self) -> str:
        position, token = self.query
        return f"head {self.head} at query {position}" + (f" {token!r}" if token else "")

    def _card(self) -> Card:
        size = self.norms if self.logits is None else self.logits.abs()
        order = size.argsort(descending=True, stable=True).tolist()
        rows = [self._row(key) for key in order[:_MOST_LINES]]
        columns = ["key", "", "weight", "norm", "share"]
        title = f"{self._cell}: norm {float(torch.linalg.vector_norm(self.output)):.3f}"
        lines, rest = [], order[_MOST_LINES:]
        if self.logits is not None:
            columns.append("logit")
            title += f", logit of {self.target!r} {float(self.logits.sum()):+.3f}"
        if rest:
            sums = f"weight {float(self.weights[rest].sum()):.3f}"
            sums += f", share {float(self.shares[rest].sum()):+.3f}"
            if self.logits is not None:
                sums += f", logit {float(self.logits[rest].sum()):+.3f}"
            lines = [f"  {count_words(len(rest), 'other key')} together: {sums}"]
        lines.append(_LEGEND)
        return Card(title, columns=columns, rows=rows, lines=lines)

    def _row(self, key: int) -> list[Any]:
        row = [
            str(key), repr(self.keys[key]) if self.keys[key] else "",
            f"{float(self.weights[key]):.3f}", f"{float(self.norms[key]):.3f}",
            f"{float(self.shares[key]):+.3f}",
        ]  # fmt: skip
        if self.logits is not None:
            row.append(f"{float(self.logits[key]):+.3f}")
        return row

    def __str__(self) -> str:
        return card_text(self._card())


def head_of_one_input(model: nn.Module, call: Call, head: str) -> tuple[str, int]:
    """Return the part and the number of a head; raise `WrongUsage` for several inputs or a model
    that draws at random."""
    if call.num_rows != 1:
        raise WrongUsage(f"why takes one input; got {call.num_rows}. Ask for each by itself.")
    if drops_out(model):
        raise WrongUsage("the model has random dropout; call model.eval() first.")
    return one_head(model, head)


@torch.no_grad()
def sources_of(
    model: nn.Module,
    call: Call,
    words: Mapping[str, Sequence[str]],
    *,
    head: str,
    query: int | str | None,
    target: Tensor | None = None,
) -> HeadSources:
    """Take the output of a head at one query apart into what it takes from each key.

    words: the tokens of each stack, if there are better names than those of its ids · target: the
    id of a token, () or (1,), whose logit is taken apart likewise.

    Raises:
        WrongUsage: no such head, query or token, several inputs, or an edit of the heads.
        CouldNotRun: the values or what the heads write are not seen; with a target, logits that are
            no sum of parts.
    """
    part, number = head_of_one_input(model, call, head)
    sites = {name: site_of(part, name) for name in ("weights", "value", "heads")}
    lacking = sorted(set(sites.values()) - set(site_names(model)))
    if lacking:
        raise CouldNotRun(
            f"the output of head {head} is not seen key by key: no site {lacking[0]}."
        )
    with record(model, list(sites.values())) as recording:
        call(model)
    if words:
        recording = recording.named(words)
    names = recording.tokens(sites["weights"])
    at = position_at("query", query, names.query)
    weights, pieces = _pieces(recording, sites, number, at)
    apart = HeadPieces(part, number, pieces)
    sources = HeadSources(
        head=head_name(part, number),
        query=(at, names.query[at]),
        keys=list(names.key),
        weights=weights,
        written=_written(model, recording, apart, at),
    )
    if target is None:
        return sources
    name, logits = _logits(model, call, apart, at, target)
    return replace(sources, target=name, logits=logits)


def _pieces(
    recording: Recording, sites: Mapping[str, str], head: int, query: int
) -> tuple[Tensor, Tensor]:
    """Return the weights of a query, (key,), and these times the values, (key, value_width)."""
    row = slice(query, query + 1)
    weights = recording.tile(sites["weights"], head=head, queries=row)[0]
    value, heads = recording[sites["value"]], recording[sites["heads"]]
    shared = value[0, head * value.shape[1] // heads.shape[1]]
    pieces = weights.to(shared).unsqueeze(1) * shared
    if not are_close(pieces.sum(0), heads[0, head, query]):
        raise WrongUsage(
            f"weights times values are not what head {head} gives at {sites['heads']}: something "
            "else changes it. Leave edits of heads first."
        )
    return weights, pieces


def _written(model: nn.Module, recording: Recording, apart: HeadPieces, query: int) -> Tensor:
    """Return what each piece of a head writes to the stream, (key, d_model)."""
    step = heads_step(model, apart.part)
    heads = recording[site_of(apart.part, "heads")]
    place = Place(heads, torch.tensor([query], device=heads.device), None)
    with set_aside(model):
        nothing: tuple[list[StreamWriter], Tensor] = [], heads.new_zeros(0)
        writers, written = written_by(model, [step], nothing, recording, {}, place, apart)
    return _of_keys(writers, written)[:, 0, 0]


def _of_keys(writers: Sequence[StreamWriter], written: Tensor) -> Tensor:
    """Return what the keys wrote of all that is written (writer, …)."""
    return written[[index for index, writer in enumerate(writers) if writer.key is not None]]


def _logits(
    model: nn.Module, call: Call, apart: HeadPieces, query: int, target: Tensor
) -> tuple[str, Tensor]:
    """Return the name of a logit, and what each piece of a head adds to it at the query, (key,)."""
    if reads_mean(model):
        raise WrongUsage("this model answers for all positions together; leave target= out.")
    parts = parts_of_stream(model, call, query, apart)
    (label,) = checked_ids("target", target, parts.logits).tolist()
    keys = _of_keys(parts.writers, parts.written)
    if not len(keys):
        raise WrongUsage(
            f"head {head_name(apart.part, apart.head)} does not write to the stream of the logits; "
            "leave target= out."
        )
    pieces = parts.shares(keys, lambda logits: logits[:, 0, label])
    return answer_name(label, model, parts.logits.shape[-1]), pieces
