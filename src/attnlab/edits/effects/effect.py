"""The effect of edits: the same inputs without and with them, side by side.

    found = effect(model, tokens, ZeroHead(layer=0, head=1), sites="*residual_after")
    print(found)                                   # loss 0.012 -> 1.574 (+1.562) …
    found.logits.difference                        # (row, length, vocabulary)
    found.at("layers.0.residual_after").after

Both passes take the same kernels: where an edit makes attention compute openly, the pass without it
does so too, so that an edit that changes nothing has an effect of exactly 0.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from attnlab.display import displayed
from attnlab.edits.application import edit
from attnlab.edits.certificate import Certificate
from attnlab.edits.edit import Edit
from attnlab.edits.effects.baseline import check_plain
from attnlab.edits.effects.metrics import Metric, divergence, make_ready, widened
from attnlab.edits.where import own_name
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call, Inputs
from attnlab.look.recording import Recording, record
from attnlab.look.recording.tokens import Vocabulary, name_of, vocabulary_of
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import generate
from attnlab.shapes import require_integer
from attnlab.sites import Hook, installed

T = TypeVar("T")
R = TypeVar("R")


@displayed
@dataclass(frozen=True)
class Both(Generic[T]):
    """A value without the edits and with them."""

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
    """What edits did to an output.

    edits: as they print · certificate: that they landed · logits: (row, length, vocabulary), (row,
    classes) or whatever vectors the model puts out; of a generation those of its first pass · loss:
    mean cross-entropy of each row's labels, nats, None without labels · tokens: what was generated,
    prompt included, None where nothing was · recordings of the sites that were asked for · real:
    (row, length), False at padding, which the figures that are told leave out.
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

    @property
    def probabilities(self) -> Both[Tensor]:
        """The softmax of the logits."""
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
    def parted_at(self) -> list[int | None] | None:
        """For each row the first step, from 1, whose token differs; None for rows that do not
        part."""
        if self.tokens is None:
            return None
        before, after = self.tokens.before, self.tokens.after
        length = min(before.shape[1], after.shape[1])
        found: list[int | None] = []
        for row in before[:, :length] != after[:, :length]:
            places = row.nonzero().flatten().tolist()
            found.append(places[0] - self.prompt_length + 1 if places else None)
        return found

    def text(self, row: int = 0) -> Both[list[str]]:
        """Return what was generated for one input, as words."""
        if self.tokens is None:
            raise WrongUsage("nothing was generated; ask for it with num_tokens=.")
        number = len(self.tokens.before)
        if row not in range(number):
            raise WrongUsage(f"there are the inputs 0 to {number - 1}; got row={row!r}.")
        return self.tokens.map(
            lambda ids: [name_of(token, self.vocabulary) for token in ids[row].tolist()]
        )

    def at(self, site: str) -> Both[Tensor]:
        """Return what was recorded at a site, without the edits and with them."""
        if self.recordings is None:
            raise WrongUsage("no sites were recorded; ask for them with sites=.")
        return self.recordings.map(lambda recording: recording[site])

    def to_mapping(self) -> dict[str, Any]:
        """Return the main figures as plain values for JSON."""
        choices = self.choices
        counted = torch.ones_like(choices.before, dtype=torch.bool)
        if self.real is not None and self.real.shape == counted.shape:
            counted = self.real.to(counted.device)
        found: dict[str, Any] = {
            "edits": list(self.edits),
            "largest_logit_change": float(self.logits.difference[counted].abs().max()),
            "mean_divergence": float(self.divergence[counted].mean()),
            "choices": int(counted.sum()),
            "choices_changed": int((choices.before != choices.after)[counted].sum()),
        }
        for name, both in (("loss", self.loss), ("tokens", self.tokens)):
            if both is not None:
                found[name] = {"before": both.before.tolist(), "after": both.after.tolist()}
        if self.tokens is not None:
            found["parted_at"] = self.parted_at
        return found

    def __str__(self) -> str:
        told = self.to_mapping()
        lines = [", ".join(self.edits)]
        if self.loss is not None:
            before, after = float(self.loss.before.mean()), float(self.loss.after.mean())
            lines.append(f"loss {before:.4f} -> {after:.4f} ({after - before:+.4f}) nats")
        lines.append(f"{told['choices_changed']} of {told['choices']} likeliest tokens change")
        lines.append(
            f"divergence {told['mean_divergence']:.4g} nats, largest change of a logit "
            f"{told['largest_logit_change']:.4g}"
        )
        if self.parted_at is not None:
            lines.append(_generations(self.parted_at))
        return "\n".join(lines)


def _generations(parted_at: Sequence[int | None]) -> str:
    number, steps = len(parted_at), [step for step in parted_at if step is not None]
    if steps:
        change = f"{len(steps)} of {number} generated answers change"
        return f"{change}, the first at step {min(steps)}"
    if number == 1:
        return "the generated answer stays the same"
    return f"all {number} generated answers stay the same"


@torch.no_grad()
def effect(
    model: nn.Module,
    inputs: Inputs,
    *edits: Edit,
    labels: Tensor | None = None,
    position: int | Tensor = -1,
    sites: str | Sequence[str] | None = None,
    num_tokens: int = 0,
    vocabulary: Vocabulary | None = None,
    certify: bool = True,
    **generation: Any,
) -> Effect:
    """Compare a model on the same inputs without and with edits.

    Args:
        model: made of attnlab's parts, in evaluation mode.
        inputs: a tensor of ids, a tuple (source, target), a mapping of what the model's forward
            takes; of a pretrained model also a text, or several of as many tokens.
        edits: see `attnlab.edits`.
        labels, position: what is right, for the loss; see `Metric`.
        sites: what to record of both, with `*` for anything.
        num_tokens: generate so many, greedily, from the inputs (a prompt, or source and the
            target's start).
        vocabulary: names of the ids, for edits that name tokens and for `text`; None for a
            pretrained model's own.
        certify: make the certificate, which costs as many passes again, and up to two more.
        **generation: what `generate` takes, such as stop=.

    Raises:
        WrongUsage: no edits, one that lands nowhere, labels that do not fit.
    """
    require_integer("num_tokens", num_tokens, low=0)
    call = Call.of(inputs, model)
    vocabulary = vocabulary_of(model, vocabulary)
    check_plain(model)
    with edit(model, *edits, vocabulary=vocabulary, certify=certify) as certificate:
        after = _run(model, call, sites, num_tokens, **generation)
    with installed(model, _OpenAlike(certificate.calls)):
        before = _run(model, call, sites, num_tokens, **generation)
    runs, loss, tokens, recordings = Both(before, after), None, None, None
    if labels is not None:
        metric = make_ready(Metric("loss", labels, position=position), before.logits, call.real)
        loss = runs.map(lambda run: metric(run.logits, before.logits)[0])
    if before.tokens is not None and after.tokens is not None:
        tokens = Both(before.tokens, after.tokens)
    if before.recording is not None and after.recording is not None:
        recordings = Both(before.recording, after.recording)
    return Effect(
        edits=tuple(map(repr, edits)),
        certificate=certificate,
        logits=runs.map(lambda run: run.logits),
        loss=loss,
        tokens=tokens,
        recordings=recordings,
        prompt_length=call.arguments[-1].shape[1] if num_tokens else 0,
        vocabulary=vocabulary,
        real=call.real,
    )


class _OpenAlike(Hook):
    """Makes attentions compute openly where edits of these sites do, and changes nothing."""

    def __init__(self, edited: Iterable[str]) -> None:
        self.sites: set[str] = {site for site in edited if own_name(site) in ("scores", "weights")}

    def wants(self, site: str) -> bool:
        return site in self.sites


class _First(Hook):
    """Keeps the logits of the first pass."""

    sites = ("logits",)
    changes = False
    logits: Tensor | None = None

    def wants(self, site: str) -> bool:
        return site == "logits" and self.logits is None

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.logits = value
        return value


@dataclass(frozen=True)
class _Run:
    """One run: logits, what was generated, what was recorded."""

    logits: Tensor
    tokens: Tensor | None
    recording: Recording | None


def _run(
    model: nn.Module, call: Call, sites: str | Sequence[str] | None, num_tokens: int, **options: Any
) -> _Run:
    recording = None
    with ExitStack() as stack:
        if sites is not None:
            recording = stack.enter_context(record(model, sites))
        if num_tokens == 0:
            return _Run(call(model), None, recording)
        first = _First()
        stack.enter_context(installed(model, first))
        tokens = _generated(model, call, num_tokens, **options)
    assert first.logits is not None
    return _Run(first.logits, tokens, recording)


def _generated(model: nn.Module, call: Call, num_tokens: int, **options: Any) -> Tensor:
    if call.options or not 1 <= len(call.arguments) <= 2:
        raise WrongUsage(
            "to generate, give a prompt of ids, or (source, the target's start), all of one length."
        )
    *source, prompt = call.arguments
    if isinstance(model, EncoderDecoder):
        if not source:
            raise WrongUsage(
                "an encoder-decoder generates from (source, the target's start); got one tensor."
            )
        return generate(model.conditioned(source[0]), prompt, num_tokens, **options).tokens
    return generate(model, call.arguments[0], num_tokens, **options).tokens
