"""Lenses: what the read-out would make of the residual stream half-way, and of what each part adds to it.

    found = logit_lens(model, tokens)                 # after each block, what would be said
    found = head_lens(model, tokens)                  # what each head says by itself
    found = direct_logits(model, tokens)              # how much of a logit each head, MLP and bias gives
    print(found)                                      # each prints as a short table

The logit lens (nostalgebraist 2020) puts the stream through the final norm and the read-out. Attribution (Elhage et al.
2021) takes a logit apart instead: the stream is a sum of what was written to it, and a norm whose scale is held at what
it was is linear, so the shares of all parts sum to the logit, exactly but for rounding. The held scale is the one
convention in it: no part is credited with changing the scale. Blocks that normalise after each sum (`post`) are taken
apart through each of these norms likewise. Nothing here is causal; for that, take the part out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.display import displayed
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call, Inputs, places_of
from attnlab.look.readout import foreign_parts, foreign_stages
from attnlab.look.recording import record
from attnlab.look.recording.tokens import Vocabulary, check_vocabulary, name_of, vocabulary_of
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.parts.blocks import Block
from attnlab.parts.dropout import drops_out
from attnlab.parts.heads import MultiHeadAttention
from attnlab.parts.norms import LayerNorm, RMSNorm
from attnlab.pretrained.model import Pretrained
from attnlab.shapes import shape_text

__all__ = ["Attribution", "HeadLens", "Lens", "Written", "direct_logits", "head_lens", "logit_lens"]


class Written(NamedTuple):
    """Who wrote to the stream: a part by its path, and the number of its head where it is one."""

    part: str
    head: int | None = None

    def __str__(self) -> str:
        return self.part if self.head is None else f"head {head_name(self.part, self.head)}"


@displayed
class Lens(NamedTuple):
    """What would be said at each stage: sites of the stream, in order · logits (site, row, vocabulary).

    vocabulary: names of the ids, for printing; an id without a name is shown by its number.
    """

    sites: list[str]
    logits: Tensor
    vocabulary: Vocabulary | None = None

    @property
    def probabilities(self) -> Tensor:
        """The softmax of the logits."""
        return self.logits.softmax(-1)

    def __str__(self) -> str:
        title = "what would be said at each stage, and how probable it is"
        return _table(title, self.sites, self.probabilities, ".2f", self.vocabulary)


@displayed
class HeadLens(NamedTuple):
    """What each head says by itself: its share of all logits, (head, row, vocabulary), `heads` in order.

    vocabulary: see `Lens`.
    """

    heads: list[Written]
    logits: Tensor
    vocabulary: Vocabulary | None = None

    def __str__(self) -> str:
        loudest = self.logits.amax(-1).mean(1).argsort(descending=True, stable=True)[:_MOST_LINES]
        which = f"{len(loudest)} of {len(self.heads)} heads" if len(loudest) < len(self.heads) else "each head"
        title = f"what {which} by itself says most, and its share of that logit, largest first"
        names = [str(self.heads[index]) for index in loudest.tolist()]
        return _table(title, names, self.logits[loudest], "+.2f", self.vocabulary)


@displayed
class Attribution(NamedTuple):
    """A logit, taken apart: shares (writer, row) sum to logits (row,)."""

    writers: list[Written]
    shares: Tensor
    logits: Tensor

    @property
    def error(self) -> float:
        """By how much the sum of the shares misses a logit, at most."""
        return float((self.shares.sum(0) - self.logits).abs().max())

    def table(self) -> tuple[list[str], Tensor]:
        """Return the heads' mean shares: paths of the attentions, and (attention, head), NaN where there is none."""
        means = self.shares.mean(1)
        parts = list(dict.fromkeys(writer.part for writer in self.writers if writer.head is not None))
        width = 1 + max((writer.head for writer in self.writers if writer.head is not None), default=-1)
        found = torch.full((len(parts), width), torch.nan, dtype=means.dtype)
        for writer, mean in zip(self.writers, means.tolist(), strict=True):
            if writer.head is not None:
                found[parts.index(writer.part), writer.head] = mean
        return parts, found

    def __str__(self) -> str:
        means = self.shares.double().mean(1)
        ranked = means.abs().argsort(descending=True, stable=True).tolist()
        logit = f"logit of {_inputs(len(self.logits))}: {float(self.logits.double().mean()):.4g}"
        lines = [f"{logit}, the sum of these mean shares, largest first"]
        lines += [f"  {float(means[index]):+.4g}  {self.writers[index]}" for index in ranked[:_MOST_LINES]]
        rest = ranked[_MOST_LINES:]
        if rest:
            lines.append(f"  {float(means[rest].sum()):+.4g}  all {len(rest)} others together")
        return "\n".join(lines)


_MOST_LINES = 10
_MOST_INPUTS = 6


def _table(title: str, names: Sequence[str], values: Tensor, form: str, vocabulary: Vocabulary | None) -> str:
    """Show the largest values (line, row, vocabulary) and whose they are: one column for each row."""
    num_rows, size = values.shape[1:]  # a lone row has three columns
    top, ids = values[:, :_MOST_INPUTS].topk(min(size, 3 if num_rows == 1 else 1), -1)
    cells = [
        [f"{_shown(token, vocabulary)} {value:{form}}" for token, value in zip(*each, strict=True)]
        for each in zip(ids.flatten(1).tolist(), top.flatten(1).tolist(), strict=True)
    ]
    columns = [[f"  {name}" for name in names], *map(list, zip(*cells, strict=True))]
    widths = [max(map(len, column), default=0) for column in columns]
    shown = f"the first {_MOST_INPUTS} of {num_rows} inputs" if num_rows > _MOST_INPUTS else _inputs(num_rows)
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in zip(*columns, strict=True)]
    return "\n".join([f"{title}; {shown}", *lines])


def _shown(token: int, vocabulary: Vocabulary | None) -> str:
    """Name an id so that it stays on its line: quoted where there are blanks about it."""
    try:
        name = name_of(token, vocabulary)
    except WrongUsage:  # fewer names than the read-out has rows, which is common
        return str(token)
    return name if name.isprintable() and name and name == name.strip() else repr(name)


def _inputs(number: int) -> str:
    return "1 input" if number == 1 else f"{number} inputs"


@torch.no_grad()
def logit_lens(
    model: nn.Module, inputs: Inputs, *, position: int | Tensor = -1, vocabulary: Vocabulary | None = None
) -> Lens:
    """Read out the stream before the first block and after each: at one position of each row.

    Args:
        model: a decoder, an encoder–decoder (its decoder's stream is read), or an encoder with classes (the mean over
            its positions is, as it does itself).
        inputs: a tensor of ids, a tuple (source, target), or a mapping of what the model's forward takes.
        position: an integer, or (row,) of them, negative ones from the last token that is no padding; not for an
            encoder.
        vocabulary: the name of each id, for printing: a sequence, a mapping or a function.
    """
    vocabulary = vocabulary_of(model, vocabulary)
    check_vocabulary(vocabulary)
    if isinstance(model, Pretrained):
        _check_still(model)
        call = Call.of(inputs, model)
        stages, read = foreign_stages(model, call, lambda logits: _at(_places(position, call, logits), logits))
        return Lens(stages, torch.stack(read), vocabulary)
    seen = _Seen.of(model, Call.of(inputs, model), position)
    stack = seen.stack
    sites = [seen.site("embedding"), *(seen.site(f"layers.{i}.residual_after") for i in range(len(stack.blocks)))]
    logits = [stack.read(seen.mean(_normed(stack.final_norm, seen.values[site]))) for site in sites]
    found = torch.stack(logits)
    return Lens(sites, found if stack.bias is None else found + stack.bias, vocabulary)


@torch.no_grad()
def head_lens(
    model: nn.Module, inputs: Inputs, *, position: int | Tensor = -1, vocabulary: Vocabulary | None = None
) -> HeadLens:
    """Read out what each head wrote to the stream, through norms whose scales are held; see `logit_lens`."""
    vocabulary = vocabulary_of(model, vocabulary)
    check_vocabulary(vocabulary)
    parts = _parts_of(model, Call.of(inputs, model), position)
    chosen = [index for index, writer in enumerate(parts.writers) if writer.head is not None]
    return HeadLens([parts.writers[index] for index in chosen], parts.read(parts.written[chosen]), vocabulary)


@torch.no_grad()
def direct_logits(
    model: nn.Module,
    inputs: Inputs,
    *,
    labels: Tensor | None = None,
    others: Tensor | None = None,
    position: int | Tensor = -1,
) -> Attribution:
    """Say how much each part gives to one logit of each row, or to the difference of two.

    Args:
        model, inputs, position: see `logit_lens`.
        labels: (row,) ids; None for the likeliest.
        others: (row,) ids whose logits are taken off.
    """
    parts = _parts_of(model, Call.of(inputs, model), position)
    writers, logits = parts.writers, parts.logits
    labels = logits.argmax(-1) if labels is None else _checked_ids("labels", labels, logits)

    off = None if others is None else _checked_ids("others", others, logits)

    def of(values: Tensor) -> Tensor:
        """The logit, or the difference, that counts: (row, vocabulary) -> (row,)."""
        right = values.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return right if off is None else right - values.gather(-1, off.unsqueeze(-1)).squeeze(-1)

    shares = torch.stack([of(parts.read(each)) for each in parts.written])  # one by one: vocabularies are large
    if parts.bias is not None:
        writers = [*writers, Written(f"{parts.reader} bias")]
        shares = torch.cat([shares, of(parts.bias.expand_as(logits)).unsqueeze(0)])
    return Attribution(writers, shares, of(logits))


class _Parts(NamedTuple):
    """What was written where it is read (writer, row, d_model), by whom, what reads it, its bias, the logits."""

    writers: list[Written]
    written: Tensor
    read: Callable[[Tensor], Tensor]
    bias: Tensor | None
    reader: str
    logits: Tensor


def _parts_of(model: nn.Module, call: Call, position: int | Tensor) -> _Parts:
    """Take apart what is read at one position of each row, and check that it is all of it."""
    if isinstance(model, Pretrained):
        _check_still(model)
        found = foreign_parts(model, call, lambda logits: _places(position, call, logits))
        parts = _Parts([Written(*who) for who in found.writers], *found[1:])
    else:
        seen = _Seen.of(model, call, position)
        writers, written = _taken_apart(seen)
        stack = seen.stack
        parts = _Parts(writers, written, stack.read, stack.bias, stack.reader, seen.logits)
    _check_sum(parts)
    return parts


def _check_still(model: nn.Module) -> None:
    if drops_out(model):
        raise WrongUsage("the model is in training mode and drops out at random; call model.eval() first.")


def _places(position: int | Tensor, call: Call, logits: Tensor) -> Tensor:
    return places_of(position, logits.shape[0], logits.shape[1], call.real).to(logits.device)


def _at(places: Tensor, logits: Tensor) -> Tensor:
    return logits[torch.arange(len(logits), device=logits.device), places]


class _Stack(NamedTuple):
    """The part of a model whose stream is read out: path, blocks, what reads it, and that one's bias and name."""

    path: str
    blocks: list[Block]
    final_norm: nn.Module | None
    read: Callable[[Tensor], Tensor]
    bias: Tensor | None
    reader: str


def _stack_of(model: nn.Module) -> _Stack:
    if not isinstance(model, Decoder | EncoderDecoder | Encoder) or (isinstance(model, Encoder) and model.head is None):
        raise WrongUsage(
            f"a lens reads a decoder, an encoder-decoder, an encoder with classes or a pretrained model from "
            f"attnlab.load; got {type(model).__name__}{' without classes' if isinstance(model, Encoder) else ''}, "
            "which has no read-out."
        )
    inner, path = (model.decoder, "decoder.") if isinstance(model, EncoderDecoder) else (model, "")
    blocks = [block for block in inner.layers if isinstance(block, Block)]
    head = model.head
    if head is None:
        return _Stack(path, blocks, inner.final_norm, inner.embedding.read_out, None, "embedding")
    return _Stack(path, blocks, inner.final_norm, lambda x: F.linear(x, head.weight), head.bias, "head")


class _Seen(NamedTuple):
    """One pass, at the positions that are read: values (row, position, …) by site; logits (row, vocabulary).

    real (row, position): which positions the mean is over; None for all. heads are (row, head, position, width).
    """

    stack: _Stack
    values: dict[str, Tensor]
    logits: Tensor
    real: Tensor | None

    @classmethod
    def of(cls, model: nn.Module, call: Call, position: int | Tensor) -> "_Seen":
        stack = _stack_of(model)
        _check_still(model)
        if isinstance(model, Encoder) and not (isinstance(position, int) and position == -1):
            raise WrongUsage(f"an encoder reads out the mean over its positions, none by itself; got {position=!r}.")
        wanted = [f"{stack.path}embedding"]
        for index, block in enumerate(stack.blocks):
            own = f"{stack.path}layers.{index}"
            wanted += [f"{own}.{site}" for site in block.sites if site.startswith("residual")]
            wanted += [f"{own}.{part}.{site}" for part, site in _PARTS if getattr(block, part) is not None]
        device = next(model.parameters()).device
        with record(model, wanted, keep_on=device) as recording:
            logits = call(model)
        values = {site: recording[site] for site in wanted}
        if isinstance(model, Encoder):  # all positions, for their mean is read out
            return cls(stack, values, logits, call.options.get("real"))
        places = _places(position, call, logits)
        rows = torch.arange(len(logits), device=logits.device)
        values = {
            site: value[rows, :, places].unsqueeze(-2) if site.endswith(".heads") else value[rows, places].unsqueeze(1)
            for site, value in values.items()
        }
        return cls(stack, values, logits[rows, places], None)

    def site(self, name: str) -> str:
        return f"{self.stack.path}{name}"

    def mean(self, x: Tensor) -> Tensor:
        """Bring (…, row, position, d_model) to (…, row, d_model), as the model reads it."""
        if self.real is None:
            return x.mean(-2)
        kept = x.masked_fill(~self.real.unsqueeze(-1), 0.0)
        return kept.sum(-2) / self.real.sum(-1, keepdim=True).clamp(min=1)


_PARTS = (("attention", "heads"), ("cross_attention", "heads"), ("feed_forward", "output"))


def _taken_apart(seen: _Seen) -> tuple[list[Written], Tensor]:
    """Return who wrote what, brought to where it is read: (writer, row, d_model); their sum is what is read."""
    start = seen.values[seen.site("embedding")]
    writers, written = [Written(seen.site("embedding"))], start.unsqueeze(0)  # (writer, row, position, d_model)

    def put(norm: nn.Module | None, name: str) -> None:
        nonlocal written
        if isinstance(norm, LayerNorm | RMSNorm):
            written = _held(norm, written)
            bias = getattr(norm, "bias", None)
            if bias is not None:
                writers.append(Written(f"{name} bias"))
                written = torch.cat([written, bias.expand_as(written[:1])])

    for index, block in enumerate(seen.stack.blocks):
        own = seen.site(f"layers.{index}")
        for part, site in _PARTS:
            module = getattr(block, part)
            if module is None:
                continue
            value = seen.values[f"{own}.{part}.{site}"]
            if isinstance(module, MultiHeadAttention):
                added, who = _of_heads(module, value, f"{own}.{part}")
            else:
                added, who = value.unsqueeze(0), [Written(f"{own}.{part}")]
            writers += who
            written = torch.cat([written, added])
            if block.norm_place == "post":
                put(getattr(block, f"norm_{part}"), f"{own}.norm_{part}")
    put(seen.stack.final_norm, seen.site("final_norm"))
    return writers, seen.mean(written)


def _check_sum(parts: _Parts) -> None:
    """Raise where the parts are not all that was read: an edit of the stream, or a block of another kind."""
    found = parts.read(parts.written.sum(0))
    found = found if parts.bias is None else found + parts.bias
    size = max(1.0, float(parts.logits.abs().amax()))
    if float((found - parts.logits).abs().amax()) > torch.finfo(found.dtype).eps ** 0.5 * size:
        raise WrongUsage(
            "what the parts write does not sum to the logits, so a logit cannot be taken apart: something else changes "
            "the stream. Leave edits of outputs and of the stream first (those of heads may stay)."
        )


def _of_heads(attention: MultiHeadAttention, heads: Tensor, path: str) -> tuple[Tensor, list[Written]]:
    """What each head adds to the stream, and the bias: (row, head, position, w) -> (writer, row, position, d_model)."""
    weight = attention.output.effective_weight()
    num_heads, width = heads.shape[1], heads.shape[-1]
    parts = weight.view(-1, num_heads, width)  # (d_model, head, width)
    added = torch.einsum("rhpw,dhw->hrpd", heads, parts)
    who = [Written(path, head) for head in range(num_heads)]
    bias = getattr(attention.output, "bias", None)
    if bias is not None:
        added, who = torch.cat([added, bias.expand_as(added[:1])]), [*who, Written(f"{path} bias")]
    return added, who


def _held(norm: LayerNorm | RMSNorm, written: Tensor) -> Tensor:
    """Put each part through the norm, with the scale that their sum has: (writer, …, d_model) -> the same."""
    whole = written.sum(0)
    if isinstance(norm, LayerNorm):
        written = written - written.mean(-1, keepdim=True)
        power = whole.var(-1, correction=0, keepdim=True)
    else:
        power = whole.square().mean(-1, keepdim=True)
    return written / (power + norm.epsilon).sqrt() * norm.weight


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    found: Tensor = x if norm is None else norm(x)
    return found


def _checked_ids(name: str, ids: Tensor, logits: Tensor) -> Tensor:
    ids = torch.as_tensor(ids, device=logits.device)
    if ids.shape != logits.shape[:1] or ids.is_floating_point() or ids.dtype == torch.bool:
        raise WrongUsage(
            f"{name} are one id for each of {len(logits)} rows; got {shape_text(ids.shape)} of {ids.dtype}."
        )
    if bool(((ids < 0) | (ids >= logits.shape[-1])).any()):
        raise WrongUsage(f"{name} must be from 0 to {logits.shape[-1] - 1}; got {ids.tolist()[:8]}.")
    return ids
