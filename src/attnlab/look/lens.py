"""Lenses: the logits of the residual stream after each block, and of each part that writes to it.

    found = logit_lens(model, tokens)            # the prediction after each block
    found = head_lens(model, tokens)             # the prediction of each head by itself
    found = direct_logits(model, tokens)         # the share of each head, MLP and bias in a logit
    print(found)                                 # each prints as a short table

The logit lens (nostalgebraist 2020) puts the stream through the final norm and the read-out.
Attribution (Elhage et al. 2021) decomposes a logit instead: the stream is the sum of what was
written to it, and a norm is linear while its scale is held fixed, so the shares of all parts sum to
the logit, exactly but for rounding. The fixed scale is the one convention in it: no part is
credited with changing the scale. Blocks that normalize after each sum (`post`) are decomposed
through each of these norms likewise. Nothing here is causal; for that, ablate the part.
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
    """A writer to the stream: a part by its path, and the number of its head if it is a head."""

    part: str
    head: int | None = None

    def __str__(self) -> str:
        return self.part if self.head is None else f"head {head_name(self.part, self.head)}"


@displayed
class Lens(NamedTuple):
    """The prediction at each stage: sites of the stream, in order · logits (site, row, vocabulary).

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
        title = "the likeliest token at each stage, and its probability"
        return _table(title, self.sites, self.probabilities, ".2f", self.vocabulary)


@displayed
class HeadLens(NamedTuple):
    """The prediction of each head by itself: its share of all logits, (head, row, vocabulary).

    vocabulary: see `Lens`.
    """

    heads: list[Written]
    logits: Tensor
    vocabulary: Vocabulary | None = None

    def __str__(self) -> str:
        loudest = self.logits.amax(-1).mean(1).argsort(descending=True, stable=True)[:_MOST_LINES]
        which = "each head"
        if len(loudest) < len(self.heads):
            which = f"{len(loudest)} of {len(self.heads)} heads"
        title = f"the token that {which} favors most, and its share of that logit, largest first"
        names = [str(self.heads[index]) for index in loudest.tolist()]
        return _table(title, names, self.logits[loudest], "+.2f", self.vocabulary)


@displayed
class Attribution(NamedTuple):
    """A logit, decomposed: shares (writer, row) sum to logits (row,)."""

    writers: list[Written]
    shares: Tensor
    logits: Tensor

    @property
    def error(self) -> float:
        """The largest difference of the sum of the shares from a logit."""
        return float((self.shares.sum(0) - self.logits).abs().max())

    def table(self) -> tuple[list[str], Tensor]:
        """Return the heads' mean shares: paths of the attentions, and (attention, head), NaN where
        there is no such head."""
        means = self.shares.mean(1)
        heads: dict[str, dict[int, float]] = {}
        for writer, mean in zip(self.writers, means.tolist(), strict=True):
            if writer.head is not None:
                heads.setdefault(writer.part, {})[writer.head] = mean
        width = max((max(each) + 1 for each in heads.values()), default=0)
        found = torch.full((len(heads), width), torch.nan, dtype=means.dtype)
        for row, each in enumerate(heads.values()):
            for head, mean in each.items():
                found[row, head] = mean
        return list(heads), found

    def __str__(self) -> str:
        means = self.shares.double().mean(1)
        ranked = means.abs().argsort(descending=True, stable=True).tolist()
        logit = f"logit of {_inputs(len(self.logits))}: {float(self.logits.double().mean()):.4g}"
        lines = [f"{logit}, the sum of these mean shares, largest first"]
        lines += [
            f"  {float(means[index]):+.4g}  {self.writers[index]}" for index in ranked[:_MOST_LINES]
        ]
        rest = ranked[_MOST_LINES:]
        if rest:
            lines.append(f"  {float(means[rest].sum()):+.4g}  all {len(rest)} others together")
        return "\n".join(lines)


_MOST_LINES = 10
_MOST_INPUTS = 6


def _table(
    title: str, names: Sequence[str], values: Tensor, form: str, vocabulary: Vocabulary | None
) -> str:
    """Show the largest values (line, row, vocabulary) with their tokens: a column for each row."""
    num_rows, size = values.shape[1:]  # a single row has three columns
    top, ids = values[:, :_MOST_INPUTS].topk(min(size, 3 if num_rows == 1 else 1), -1)
    cells = [
        [f"{_shown(token, vocabulary)} {value:{form}}" for token, value in zip(*each, strict=True)]
        for each in zip(ids.flatten(1).tolist(), top.flatten(1).tolist(), strict=True)
    ]
    columns = [[f"  {name}" for name in names], *map(list, zip(*cells, strict=True))]
    widths = [max(map(len, column), default=0) for column in columns]
    shown = _inputs(num_rows)
    if num_rows > _MOST_INPUTS:
        shown = f"the first {_MOST_INPUTS} of {num_rows} inputs"
    lines = [
        "  ".join(map(str.ljust, line, widths)).rstrip() for line in zip(*columns, strict=True)
    ]
    return "\n".join([f"{title}; {shown}", *lines])


def _shown(token: int, vocabulary: Vocabulary | None) -> str:
    """Name an id on one line, quoted if it begins or ends with a blank."""
    try:
        name = name_of(token, vocabulary)
    except WrongUsage:  # fewer names than the read-out has rows, which is common
        return str(token)
    return name if name.isprintable() and name and name == name.strip() else repr(name)


def _inputs(number: int) -> str:
    return "1 input" if number == 1 else f"{number} inputs"


@torch.no_grad()
def logit_lens(
    model: nn.Module,
    inputs: Inputs,
    *,
    position: int | Tensor = -1,
    vocabulary: Vocabulary | None = None,
) -> Lens:
    """Read out the stream before the first block and after each, at one position of each row.

    Args:
        model: a decoder, an encoder–decoder (its decoder's stream is read), or an encoder with
            classes (the mean over its positions is read, as it does itself).
        inputs: a tensor of ids, a tuple (source, target), or a mapping of the model's named inputs.
        position: an integer, or (row,) of them, negative ones from the last token that is not
            padding; not for an encoder.
        vocabulary: the name of each id, for printing: a sequence, a mapping or a function.
    """
    vocabulary = vocabulary_of(model, vocabulary)
    check_vocabulary(vocabulary)
    if isinstance(model, Pretrained):
        _check_still(model)
        call = Call.of(inputs, model)

        def chosen(logits: Tensor) -> Tensor:
            return logits[torch.arange(len(logits)), _places(position, call, logits).cpu()]

        stages, read = foreign_stages(model, call, chosen)
        return Lens(stages, torch.stack(read), vocabulary)
    seen = _Seen.of(model, Call.of(inputs, model), position)
    stack = seen.stack
    sites = [seen.site("embedding")]
    sites += [seen.site(f"layers.{i}.residual_after") for i in range(len(stack.blocks))]
    logits = [stack.read(seen.mean(_normed(stack.final_norm, seen.values[site]))) for site in sites]
    found = torch.stack(logits)
    return Lens(sites, found if stack.bias is None else found + stack.bias, vocabulary)


@torch.no_grad()
def head_lens(
    model: nn.Module,
    inputs: Inputs,
    *,
    position: int | Tensor = -1,
    vocabulary: Vocabulary | None = None,
) -> HeadLens:
    """Read out each head's output by itself, with the scales of norms held fixed; see
    `logit_lens`."""
    vocabulary = vocabulary_of(model, vocabulary)
    check_vocabulary(vocabulary)
    parts = _parts_of(model, Call.of(inputs, model), position)
    chosen = [index for index, writer in enumerate(parts.writers) if writer.head is not None]
    writers = [parts.writers[index] for index in chosen]
    return HeadLens(writers, parts.read(parts.written[chosen]), vocabulary)


@torch.no_grad()
def direct_logits(
    model: nn.Module,
    inputs: Inputs,
    *,
    labels: Tensor | None = None,
    others: Tensor | None = None,
    position: int | Tensor = -1,
) -> Attribution:
    """Return the share of each part in one logit of each row, or in the difference of two.

    Args:
        model, inputs, position: see `logit_lens`.
        labels: (row,) ids; None for the likeliest.
        others: (row,) ids whose logits are subtracted.
    """
    parts = _parts_of(model, Call.of(inputs, model), position)
    writers, logits = parts.writers, parts.logits
    labels = logits.argmax(-1) if labels is None else _checked_ids("labels", labels, logits)

    off = None if others is None else _checked_ids("others", others, logits)

    def of(values: Tensor) -> Tensor:
        """Return the chosen logit, or the difference: (row, vocabulary) -> (row,)."""
        right = values.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return right if off is None else right - values.gather(-1, off.unsqueeze(-1)).squeeze(-1)

    # One by one: vocabularies are large.
    shares = torch.stack([of(parts.read(each)) for each in parts.written])
    if parts.bias is not None:
        writers = [*writers, Written(f"{parts.reader} bias")]
        shares = torch.cat([shares, of(parts.bias.expand_as(logits)).unsqueeze(0)])
    return Attribution(writers, shares, of(logits))


class _Parts(NamedTuple):
    """The parts of the stream (writer, row, d_model), the function that reads it, its bias and
    name, the logits."""

    writers: list[Written]
    written: Tensor
    read: Callable[[Tensor], Tensor]
    bias: Tensor | None
    reader: str
    logits: Tensor


def _parts_of(model: nn.Module, call: Call, position: int | Tensor) -> _Parts:
    """Decompose the stream at one position of each row, and check that the parts sum to it."""
    if isinstance(model, Pretrained):
        _check_still(model)
        found = foreign_parts(model, call, lambda logits: _places(position, call, logits))
        parts = _Parts([Written(*who) for who in found.writers], *found[1:])
    else:
        seen = _Seen.of(model, call, position)
        writers, written = _decomposed(seen)
        stack = seen.stack
        parts = _Parts(writers, written, stack.read, stack.bias, stack.reader, seen.logits)
    _check_sum(parts)
    return parts


def _check_still(model: nn.Module) -> None:
    if drops_out(model):
        raise WrongUsage(
            "the model is in training mode and drops out at random; call model.eval() first."
        )


def _places(position: int | Tensor, call: Call, logits: Tensor) -> Tensor:
    return places_of(position, logits.shape[0], logits.shape[1], call.real).to(logits.device)


class _Stack(NamedTuple):
    """The stack whose stream is read out: path, blocks, the function that reads it, its bias and
    name."""

    path: str
    blocks: list[Block]
    final_norm: nn.Module | None
    read: Callable[[Tensor], Tensor]
    bias: Tensor | None
    reader: str


def _stack_of(model: nn.Module) -> _Stack:
    is_headless = isinstance(model, Encoder) and model.head is None
    if not isinstance(model, Decoder | EncoderDecoder | Encoder) or is_headless:
        got = f"{type(model).__name__}{' without classes' if is_headless else ''}"
        raise WrongUsage(
            "a lens reads a decoder, an encoder-decoder, an encoder with classes or a pretrained "
            f"model from attnlab.load; got {got}, which has no read-out."
        )
    inner, path = (model.decoder, "decoder.") if isinstance(model, EncoderDecoder) else (model, "")
    blocks = [block for block in inner.layers if isinstance(block, Block)]
    head = model.head
    if head is None:
        return _Stack(path, blocks, inner.final_norm, inner.embedding.read_out, None, "embedding")
    return _Stack(
        path, blocks, inner.final_norm, lambda x: F.linear(x, head.weight), head.bias, "head"
    )


class _Seen(NamedTuple):
    """One pass at the positions that are read: values (row, position, …) by site; logits (row,
    vocabulary).

    real (row, position): the positions of the mean; None for all. heads are (row, head, position,
    width).
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
            raise WrongUsage(
                "an encoder reads out the mean over its positions, so leave position out; got "
                f"{position=!r}."
            )
        wanted = [f"{stack.path}embedding"]
        for index, block in enumerate(stack.blocks):
            own = f"{stack.path}layers.{index}"
            wanted += [f"{own}.{site}" for site in block.sites if site.startswith("residual")]
            parts = [each for each in _PARTS if getattr(block, each[0]) is not None]
            wanted += [f"{own}.{part}.{site}" for part, site in parts]
        device = next(model.parameters()).device
        with record(model, wanted, keep_on=device) as recording:
            logits = call(model)
        values = {site: recording[site] for site in wanted}
        if isinstance(model, Encoder):  # all positions: their mean is read out
            return cls(stack, values, logits, call.options.get("real"))
        places = _places(position, call, logits)
        rows = torch.arange(len(logits), device=logits.device)
        for site, value in values.items():
            if site.endswith(".heads"):
                values[site] = value[rows, :, places].unsqueeze(-2)
            else:
                values[site] = value[rows, places].unsqueeze(1)
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


def _decomposed(seen: _Seen) -> tuple[list[Written], Tensor]:
    """Return the writers and their parts of the stream where it is read, (writer, row, d_model)."""
    start = seen.values[seen.site("embedding")]
    writers = [Written(seen.site("embedding"))]
    written = start.unsqueeze(0)  # (writer, row, position, d_model)

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
    """Raise unless the parts sum to the logits: an edit changed the stream, or a block is
    unknown."""
    found = parts.read(parts.written.sum(0))
    found = found if parts.bias is None else found + parts.bias
    size = max(1.0, float(parts.logits.abs().amax()))
    if float((found - parts.logits).abs().amax()) > torch.finfo(found.dtype).eps ** 0.5 * size:
        raise WrongUsage(
            "the parts do not sum to the logits, so a logit cannot be taken apart: something else "
            "changes the stream. Leave edits of outputs and of the stream first (those of heads "
            "may stay)."
        )


def _of_heads(
    attention: MultiHeadAttention, heads: Tensor, path: str
) -> tuple[Tensor, list[Written]]:
    """Return what each head and the bias add to the stream: (row, head, position, width) ->
    (writer, row, position, d_model)."""
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
    """Apply a norm to each part with the scale that their sum has: (writer, …, d_model) -> the
    same."""
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
            f"{name} are one id for each of {len(logits)} rows; got {shape_text(ids.shape)} "
            f"of {ids.dtype}."
        )
    if bool(((ids < 0) | (ids >= logits.shape[-1])).any()):
        raise WrongUsage(
            f"{name} must be from 0 to {logits.shape[-1] - 1}; got {ids.tolist()[:8]}."
        )
    return ids
