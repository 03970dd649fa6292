"""The effect of edits: the same inputs without and with them, side by side.

    change = effect(model, tokens, ZeroHead(layer=0, head=1), sites="*residual_after")
    print(change)                                  # loss 0.012 -> 1.574 (+1.562) …
    change.logits.difference                       # (row, length, vocabulary)
    change.at("layers.0.residual_after").after

Both passes use the same kernels: where an edit opens an attention, the pass without it does so too,
so that a no-op edit has an effect of exactly 0.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from attnlab.display import count_words, displayed, plain
from attnlab.edits.application import check_edits, edit
from attnlab.edits.certificate import Certificate
from attnlab.edits.coverage import Coverage, check_reach
from attnlab.edits.edit import Edit
from attnlab.edits.effects.baseline import check_plain
from attnlab.edits.effects.metrics import (
    Metric,
    cosine_distance,
    divergence,
    gives_vectors,
    prepare_metric,
    widened,
)
from attnlab.edits.effects.sweep import Script
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call, Inputs
from attnlab.look.recording import Recording, record
from attnlab.look.recording.tokens import Vocabulary, name_of, vocabulary_of
from attnlab.look.target_ids import AnswerTarget, answer_words
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import generate
from attnlab.shapes import require_integer
from attnlab.sites import explicit_attention, installed, part_of, site_names, site_suffix

T = TypeVar("T")
R = TypeVar("R")


@displayed
@dataclass(frozen=True)
class Both(Generic[T]):
    """A value without the edits and with them.

    before: without · after: with them.
    """

    before: T
    after: T

    @property
    def difference(self) -> T:
        """After less before; the shapes must be the same."""
        return self.after - self.before  # type: ignore[operator, no-any-return]

    def map(self, change: Callable[[T], R]) -> "Both[R]":
        """Apply a function to both."""
        return Both(change(self.before), change(self.after))


@displayed
@dataclass(frozen=True)
class Effect:
    """The effect of edits on an output.

    edits: as they print · certificate: of the edits · logits: (row, length, vocabulary), (row,
    classes) or other vectors of the model; of a generation those of its first pass · loss: mean
    cross-entropy of each row's target, nats, None without one · tokens: the generated ones after
    the prompt, None without a generation · recordings: of `sites` · real: (row, length), False at
    padding, which the figures leave out · are_vectors: the output is vectors and no logits ·
    measured: whose loss it is and where, in words.
    """

    edits: tuple[str, ...]
    certificate: Certificate
    logits: Both[Tensor]
    loss: Both[Tensor] | None
    tokens: Both[Tensor] | None
    recordings: Both[Recording] | None
    prompt_length: int = 0
    vocabulary: Vocabulary | None = None
    real: Tensor | None = None
    are_vectors: bool = False
    measured: str = ""

    @property
    def probabilities(self) -> Both[Tensor]:
        """The softmax of the logits, (row, length, vocabulary) or (row, classes)."""
        return self.logits.map(lambda logits: widened(logits).softmax(-1))

    @property
    def choices(self) -> Both[Tensor]:
        """The likeliest token or class everywhere: (row, length) or (row,)."""
        return self.logits.map(lambda logits: logits.argmax(-1))

    @property
    def divergence(self) -> Tensor:
        """Kullback–Leibler divergence from before to after, nats: (row, length) or (row,)."""
        return divergence(self.logits.before, self.logits.after)

    @property
    def diverged_at(self) -> list[int | None] | None:
        """For each row the first step, from 1, whose token differs; None for equal rows."""
        if self.tokens is None:
            return None
        length = min(self.tokens.before.shape[1], self.tokens.after.shape[1])
        differ = self.tokens.before[:, :length] != self.tokens.after[:, :length]
        firsts = (differ.int().argmax(1) - self.prompt_length + 1).tolist()
        return [
            first if is_other else None
            for first, is_other in zip(firsts, differ.any(1).tolist(), strict=True)
        ]

    def text(self, row: int = 0) -> Both[list[str]]:
        """Return the generated tokens of one input by name."""
        if self.tokens is None:
            raise WrongUsage("nothing was generated; pass num_tokens=.")
        number = len(self.tokens.before)
        if row not in range(number):
            raise WrongUsage(f"there are the inputs 0 to {number - 1}; got row={row!r}.")
        names = self.vocabulary
        return self.tokens.map(lambda ids: [name_of(token, names) for token in ids[row].tolist()])

    def at(self, site: str) -> Both[Tensor]:
        """Return the value at a recorded site, without the edits and with them; at `weights`,
        (batch, head, query, key)."""
        if self.recordings is None:
            raise WrongUsage("no sites were recorded; pass sites=.")
        return self.recordings.map(lambda recording: recording[site])

    def to_mapping(self) -> dict[str, object]:
        """Return the main figures as plain values for JSON."""
        is_changed = self.choices.before != self.choices.after
        counted = torch.ones_like(is_changed)
        if self.real is not None and self.real.shape == counted.shape:
            counted = self.real.to(counted.device)
        distances = cosine_distance(self.logits.before, self.logits.after)
        return {
            "edits": list(self.edits),
            "largest_logit_change": float(self.logits.difference[counted].abs().max()),
            "mean_divergence": float(self.divergence[counted].mean()),
            "choices": int(counted.sum()),
            "choices_changed": int(is_changed[counted].sum()),
            "mean_cosine_distance": float(distances[counted].mean()) if self.are_vectors else None,
            "loss": plain(self.loss),
            "tokens": plain(self.tokens),
            "diverged_at": self.diverged_at,
        }

    def __str__(self) -> str:
        mapping: Any = self.to_mapping()
        lines = [", ".join(self.edits)]
        if self.loss is not None:
            before, after = float(self.loss.before.mean()), float(self.loss.after.mean())
            lines.append(
                f"loss {before:.4f} -> {after:.4f} ({after - before:+.4f}) nats{self.measured}"
            )
        if self.are_vectors:
            lines.append(
                f"1 less the cosine of the vectors to what they were: "
                f"{mapping['mean_cosine_distance']:.4g}, mean of {mapping['choices']} tokens"
            )
        else:
            unit, noun = "input", "class"
            if self.logits.before.dim() == 3:
                unit, noun = "position", "token"
            places = count_words(mapping["choices"], unit)
            lines += [
                f"at {mapping['choices_changed']} of {places} the likeliest {noun} changes",
                f"divergence of the probabilities {mapping['mean_divergence']:.4g} nats, mean of "
                f"{places}; largest change of a logit {mapping['largest_logit_change']:.4g}",
            ]
        if self.diverged_at is not None:
            steps = [step for step in self.diverged_at if step is not None]
            first = f", the first at step {min(steps)}" if steps else ""
            lines.append(f"{len(steps)} of {len(self.diverged_at)} generated answers change{first}")
        return "\n".join(lines)


@torch.no_grad()
def effect(
    model: nn.Module,
    inputs: Inputs,
    *edits: Edit,
    target: AnswerTarget = None,
    position: int | Tensor = -1,
    sites: str | Sequence[str] | None = None,
    num_tokens: int = 0,
    vocabulary: Vocabulary | None = None,
    certify: bool = True,
    **generation: Any,
) -> Effect:
    """Compare a model on the same inputs without and with edits.

    A head of a run's model is taken out. Its answer begins at the last position, whose loss is
    shown; the positions before it are inside the prompt, and `fork` shows the whole answer::

        model = attnlab.load("runs/sorting")
        print(attnlab.effect(model, "cab", attnlab.ZeroHead(layer=0, head=0), target="a"))

    Args:
        model: of a run, pretrained, or built of attnlab's parts; in evaluation mode.
        inputs: a text, or several of as many tokens, for the model of a run or a pretrained one; a
            tensor of ids, a tuple (source, target), a mapping of what the model's forward takes.
        edits: see `attnlab.edits`.
        target, position: what is right, for the loss; see `Metric`.
        sites: what to record of both, with `*` for anything.
        num_tokens: generate so many, greedily, from the inputs (a prompt, or source and the
            target's start).
        vocabulary: names of the ids, for edits that name tokens and for `text`; None for a
            pretrained model's own.
        certify: make the certificate, which costs as many passes again, and up to two more.
        **generation: what `generate` takes, such as stop=.

    Returns:
        logits, loss, generated tokens and recordings, each `before` and `after`, with the
        certificate.

    Raises:
        WrongUsage: no edits, one that lands nowhere, a target that does not fit.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> found = effect(model, tokens, attnlab.ZeroHead(layer=0, head=1), target=2)
    >>> found.logits.before.shape, found.certificate.holds  # (row, token, vocabulary)
    (torch.Size([1, 4, 32]), True)
    """
    require_integer("num_tokens", num_tokens, low=0)
    check_edits("effect takes a model, inputs", model, edits)
    call = Call.of(inputs, model)
    vocabulary = vocabulary_of(model, vocabulary)
    check_plain(model)
    if num_tokens == 0:  # generated tokens may bring a name
        _check_inputs(model, call, edits, vocabulary)
    with edit(model, *edits, vocabulary=vocabulary, certify=certify) as certificate:
        after = _run(model, call, sites, num_tokens, **generation)
    explicit = ("scores", "weights")
    edited = {part_of(site) for site in certificate.calls if site_suffix(site) in explicit}
    with explicit_attention(model, edited):
        before = _run(model, call, sites, num_tokens, **generation)
    logits, tokens, recordings = map(_both, before, after)
    loss, measured = None, ""
    if target is not None:
        loss_metric = Metric.of(Metric("loss", target, position=position), None, model, inputs)
        metric = prepare_metric(loss_metric, logits.before, call.real)
        loss = logits.map(lambda tensor: metric(tensor, logits.before)[0])
        answers = metric.answers(model, logits.before.shape[-1])
        has_places = logits.before.dim() == 3
        measured = answer_words(answers, position if has_places else None) if answers else ""
    prompt_length = call.arguments[-1].shape[1] if num_tokens else 0
    names = tuple(map(repr, edits))
    texts = (prompt_length, vocabulary, call.real, gives_vectors(model), measured)
    return Effect(names, certificate, logits, loss, tokens, recordings, *texts)


def _check_inputs(
    model: nn.Module, call: Call, edits: Sequence[Edit], vocabulary: Vocabulary | None
) -> None:
    """Raise, before any pass, where an edit names a token or a position that no input has."""
    known = [ids for ids in map(call.ids_of, ("encoder", "decoder")) if ids is not None]
    has_two_stacks = any("cross_attention" in site for site in site_names(model))
    is_whole = all(isinstance(option, Tensor | bool | None) for option in call.options.values())
    # A cache holds other tokens, a decoder may begin by itself, and vectors have no names.
    if is_whole and len(known) > has_two_stacks:
        longest = max(text.shape[1] for text in known)
        for change in edits:
            check_reach(change, model, longest, call.num_rows)
            if change.names_tokens:
                Coverage(change, vocabulary).check_names(known)


def _both(before: Any, after: Any) -> Any:
    return None if before is None else Both(before, after)


def _run(
    model: nn.Module, call: Call, sites: str | Sequence[str] | None, num_tokens: int, **options: Any
) -> tuple[Any, Any, Any]:
    """Return the logits of the first pass, the generated tokens, and the recording."""
    first, recording = Script(keep=frozenset(["logits"])), None
    with ExitStack() as stack:
        if sites is not None:
            recording = stack.enter_context(record(model, sites))
        if num_tokens == 0:
            return call(model), None, recording
        if call.options or len(call.arguments) != 1 + isinstance(model, EncoderDecoder):
            raise WrongUsage(
                "to generate, give a prompt of ids, all of one length; to an encoder-decoder "
                "(source, the target's start)."
            )
        *source, prompt = call.arguments
        stack.enter_context(installed(model, first))
        predictor: Any = model
        if isinstance(model, EncoderDecoder):
            predictor = model.conditioned(*source)
        tokens = generate(predictor, prompt, num_tokens, **options).tokens
    return first.kept["logits"], tokens, recording
