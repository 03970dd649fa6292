"""Lenses: the logits of the residual stream after each block, and of each part that writes to it.

    lens = logit_lens(model, tokens)             # the prediction after each block
    lens = head_lens(model, tokens)              # the prediction of each head by itself
    lens = direct_logits(model, tokens)          # the share of each head, MLP and bias in a logit
    print(lens)                                  # a short table

The logit lens (nostalgebraist 2020) puts the stream through the final norm and the read-out.
Attribution (Elhage et al. 2021) decomposes a logit instead: the stream is the sum of what was
written to it, and a norm is linear while its scale is held fixed, so the shares of all parts sum to
the logit, exactly but for rounding. The fixed scale is the one convention in it: no part is
credited with changing the scale. The norms of blocks that normalize after every sum (`post`) are
handled likewise. None of this is causal; for that, ablate the part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab.display import Card, NumberTable, card_text, count_words, displayed, short
from attnlab.errors import WrongUsage
from attnlab.look.heads import layer_name
from attnlab.look.indices import has_integers
from attnlab.look.inputs import Call, Inputs
from attnlab.look.readers import answer_names
from attnlab.look.readout import StreamWriter, parts_of_stream, read_stages, reads_mean
from attnlab.look.recording.tokens import Vocabulary, token_name, vocabulary_of
from attnlab.look.target_ids import AnswerTarget, answer_name, answer_words, target_ids


@displayed
@dataclass(frozen=True)
class Lens:
    """The prediction at each stage of the stream.

    sites: the stages, in order · logits (site, row, vocabulary) · vocabulary: names of the ids, for
    printing; an id without a name is shown by its number · where: the position in words, ", last
    position".
    """

    sites: list[str]
    logits: Tensor
    vocabulary: Vocabulary | None = None
    where: str = ""

    @property
    def probabilities(self) -> Tensor:
        """The softmax of the logits, (site, row, vocabulary)."""
        return self.logits.softmax(-1)

    def __str__(self) -> str:
        title = f"the likeliest token at each stage, and its probability{self.where}"
        return _table(title, self.sites, self.probabilities, ".2f", self.vocabulary)

    def _card(self) -> Card:
        """Show so many stages, from the first to the last, that they have room at the prompt."""
        number = len(self.sites)
        if number <= _SHOWN_STAGES:
            title, *lines = str(self).splitlines()
            return Card(title, lines=lines)
        steps = range(_SHOWN_STAGES)
        shown = [step * (number - 1) // (_SHOWN_STAGES - 1) for step in steps]
        sites = [self.sites[place] for place in shown]
        some = replace(self, sites=sites, logits=self.logits[shown])
        title, *lines = str(some).splitlines()
        return Card(title, lines=[*lines, f"{_SHOWN_STAGES} of {number} stages; print() has all"])


@displayed
@dataclass(frozen=True)
class HeadLens:
    """The prediction of each head by itself.

    heads: which · logits (head, row, vocabulary): the head's share of all logits · vocabulary:
    names of the ids, see `Lens`.
    """

    heads: list[StreamWriter]
    logits: Tensor
    vocabulary: Vocabulary | None = None

    def __str__(self) -> str:
        loudest = self.logits.amax(-1).mean(1).argsort(descending=True, stable=True)[:_MOST_LINES]
        which = f"{len(loudest)} of {len(self.heads)} heads"
        title = f"the tokens that {which} favor most, and their shares of the logits, largest first"
        names = [str(self.heads[index]) for index in loudest.tolist()]
        return _table(title, names, self.logits[loudest], "+.2f", self.vocabulary)


@displayed
@dataclass(frozen=True)
class Attribution:
    """A logit as the sum of what each part adds to it.

    writers: the parts · shares (writer, row): they sum to the logits · logits (row,) · measured:
    whose logit it is, and where.
    """

    writers: list[StreamWriter]
    shares: Tensor
    logits: Tensor
    measured: str

    @property
    def error(self) -> float:
        """The largest difference of the sum of the shares from a logit."""
        return float((self.shares.sum(0) - self.logits).abs().max())

    def table(self) -> tuple[list[str], Tensor]:
        """Return the heads' mean shares: paths of the attentions, and (attention, head), NaN where
        there is no such head."""
        heads: dict[str, list[Tensor]] = {}
        for writer, mean in zip(self.writers, self.shares.mean(1), strict=True):
            if writer.head is not None:
                heads.setdefault(writer.part, []).append(mean)
        rows = list(map(torch.stack, heads.values()))
        return list(heads), pad_sequence(rows, batch_first=True, padding_value=torch.nan)

    def number_tables(self) -> list[NumberTable]:
        """Return the mean shares as tables to draw: layer by head, and all other parts."""
        parts, shares = self.table()
        columns = [str(head) for head in range(shares.shape[1])] if parts else []
        names, rest = [], []
        for writer, mean in zip(self.writers, self.shares.mean(1).tolist(), strict=True):
            if writer.head is None:
                names.append(str(writer))
                rest.append([mean])
        label, layers = f"mean share of the {self.measured}", list(map(layer_name, parts))
        heads = NumberTable("Heads", label, layers, columns, "layer", "head", shares.tolist())
        others = NumberTable("Other parts", label, names, ["share"], "part", "", rest)
        return [table for table in (heads, others) if table.rows]

    def _card(self) -> Card:
        means = self.shares.double().mean(1)
        ranked = means.abs().argsort(descending=True, stable=True).tolist()
        number, mean = count_words(len(self.logits), "input"), float(self.logits.double().mean())
        title = (
            f"{self.measured}, {number}: {mean:.4g}, the sum of these mean shares, largest first"
        )
        rows = []
        for index in ranked[:_MOST_LINES]:
            rows.append([f"{float(means[index]):+.4g}", str(self.writers[index])])
        rest = ranked[_MOST_LINES:]
        if rest:
            others = count_words(len(rest), "other part")
            rows.append([f"{float(means[rest].sum()):+.4g}", f"{others} together"])
        return Card(title, (), ("share", "part"), rows)

    def __str__(self) -> str:
        return card_text(self._card())


_MOST_LINES, _SHOWN_STAGES = 10, 11
_MOST_INPUTS = 6


def _table(
    title: str, names: Sequence[str], values: Tensor, form: str, vocabulary: Vocabulary | None
) -> str:
    """Show the largest values (line, row, vocabulary) with their tokens: a column for each row."""
    num_rows, size = values.shape[1:]
    columns = 3 if num_rows == 1 else 1
    top, ids = values[:, :_MOST_INPUTS].topk(min(size, columns), -1)
    rows = []
    for name, tokens, shares in zip(names, ids.flatten(1), top.flatten(1), strict=True):
        row = [name]
        for token, share in zip(tokens.tolist(), shares.tolist(), strict=True):
            row.append(f"{_shown(token, vocabulary)} {share:{form}}")
        rows.append(row)
    shown = count_words(num_rows, "input")
    if num_rows > _MOST_INPUTS:
        shown = f"the first {_MOST_INPUTS} of {num_rows} inputs"
    return card_text(Card(f"{title}; {shown}", rows=rows))


def _shown(token: int, vocabulary: Vocabulary | None) -> str:
    """Name an id on one line, quoted if it begins or ends with a blank."""
    name = token_name(token, vocabulary)
    if name.isprintable() and name and name == name.strip():
        return name
    return repr(name)


def logit_lens(
    model: nn.Module,
    inputs: Inputs,
    *,
    position: int | Tensor = -1,
    vocabulary: Vocabulary | None = None,
) -> Lens:
    """Read out the stream before the first block and after each, at one position of each row.

    Args:
        model: a decoder, an encoder–decoder (its decoder's stream is read), an encoder that reads
            classes out of each token, or one with classes (the mean over its positions is read, as
            it does itself).
        inputs: a tensor of ids (row, length), a tuple (source, target), or a mapping of the model's
            named inputs; a text for a model that knows its tokens.
        position: an integer, or (row,) of them, negative ones from the last token that is not
            padding; not for an encoder that reads the mean.
        vocabulary: the name of each id, for printing: a sequence, a mapping or a function.

    Returns:
        the logits at each stage, a `Lens`; printed, the likeliest tokens.

    Raises:
        WrongUsage: no such position, or a model without logits or without a stream of blocks.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> logit_lens(model, tokens).logits.shape  # (stage, row, vocabulary)
    torch.Size([2, 1, 32])
    """
    vocabulary = _names_of(model, vocabulary)
    stages = read_stages(model, Call.of(inputs, model), position)
    where = "" if reads_mean(model) else answer_words([], position)
    return Lens(list(stages), torch.stack(list(stages.values())), vocabulary, where)


def _names_of(model: nn.Module, vocabulary: Vocabulary | None) -> Vocabulary | None:
    """Return the names of a model's logits, which may differ from its inputs'."""
    if vocabulary is None:
        vocabulary = answer_names(model)
    return vocabulary_of(model, vocabulary)


@torch.no_grad()
def head_lens(
    model: nn.Module,
    inputs: Inputs,
    *,
    position: int | Tensor = -1,
    vocabulary: Vocabulary | None = None,
) -> HeadLens:
    """Read out each head's output by itself, with the scales of norms held fixed.

    Args:
        model: any with logits whose stream is a sum of its parts.
        inputs: texts, or ids (row, length).
        position, vocabulary: where it is read, and the names of the logits; see `logit_lens`.

    Returns:
        the share of each head in all logits, a `HeadLens`, (head, row, vocabulary).

    Raises:
        WrongUsage: no such position, or a model without logits or whose stream is no sum of its
            parts.
    """
    vocabulary = _names_of(model, vocabulary)
    parts = parts_of_stream(model, Call.of(inputs, model), position)
    heads = [index for index, writer in enumerate(parts.writers) if writer.head is not None]
    writers = [parts.writers[index] for index in heads]
    return HeadLens(writers, parts.read(parts.written[heads]), vocabulary)


@torch.no_grad()
def direct_logits(
    model: nn.Module,
    inputs: Inputs,
    *,
    target: AnswerTarget = None,
    others: AnswerTarget = None,
    position: int | Tensor = -1,
) -> Attribution:
    """Return the share of each part in one logit of each row, or in the difference of two.

    Args:
        model, inputs, position: see `logit_lens`; ids are (row, length).
        target: a token's text or id, or a list with one for each row; None for the likeliest.
        others: the tokens whose logits are subtracted, likewise.

    Returns:
        the share of each part, an `Attribution`: `shares` (part, row) sum to `logits` (row,).

    Raises:
        WrongUsage: no such position or token, or a model whose stream is no sum of its parts.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> attribution = direct_logits(model, tokens)
    >>> [str(writer) for writer in attribution.writers][:3]
    ['embedding', 'head 0.0', 'head 0.1']
    >>> attribution.error < 1e-4  # of a sum of about 50
    True
    """
    parts = parts_of_stream(model, Call.of(inputs, model), position)
    logits = parts.logits
    labels = [logits.argmax(-1)]  # of the answers, and of what is subtracted
    if target is not None:
        labels = [checked_ids("target", target_ids(target, model, inputs), logits)]
    if others is not None:
        labels.append(checked_ids("others", target_ids(others, model, inputs), logits))

    def of(values: Tensor) -> Tensor:
        """Return the chosen logit, or the difference: (…, row, vocabulary) -> (…, row)."""
        rows = torch.arange(len(logits), device=logits.device)
        chosen, *subtracted = (values[..., rows, label] for label in labels)
        return chosen - subtracted[0] if subtracted else chosen

    shares = list(parts.shares(parts.written, of))
    writers = parts.writers
    if bool((parts.bias != 0).any()):
        writers = [*writers, StreamWriter(f"{parts.reader} bias")]
        shares.append(of(parts.bias.expand_as(logits)))
    names, size = [[""] * len(logits)], logits.shape[-1]
    for ids in reversed(labels):
        names.insert(0, [answer_name(number, model, size) for number in ids.tolist()])
    answers = list(zip(names[0], names[1], strict=True))
    at = None if reads_mean(model) else position
    measured = f"logit{answer_words(answers, at)}"
    return Attribution(writers, torch.stack(shares), of(logits), measured)


def checked_ids(name: str, target: Tensor | None, logits: Tensor) -> Tensor:
    """Return a target's ids, one for each row of logits (row, vocabulary)."""
    ids, size = torch.as_tensor(target, device=logits.device), logits.shape[-1]
    if ids.dim() == 0:
        ids = ids.expand(len(logits))
    fits = has_integers(ids) and ids.shape == logits.shape[:1]
    if not fits or bool(((ids < 0) | (ids >= size)).any()):
        raise WrongUsage(
            f"{name}: expected one id for each of {len(logits)} rows, from 0 to {size - 1}; got "
            f"{short(ids)}, {ids.tolist()[:8]}."
        )
    return ids
