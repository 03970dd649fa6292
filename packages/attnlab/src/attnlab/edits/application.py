"""Edit: change values inside a model while a `with` lasts, and prove that the change landed.

with edit(model, ZeroHead(layer=0, head=1)) as certificate:
    model(tokens)
print(certificate)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from torch import nn

from attnlab.edits.certificate import Certificate
from attnlab.edits.checks import Checks
from attnlab.edits.edit import Edit
from attnlab.edits.editor import Editor
from attnlab.errors import CouldNotRun, WrongUsage, model_words
from attnlab.look.recording.tokens import Vocabulary, vocabulary_of
from attnlab.sites import installed


@contextmanager
def edit(
    model: nn.Module, *edits: Edit, vocabulary: Vocabulary | None = None, certify: bool = True
) -> Iterator[Certificate]:
    """Apply edits to a model while the `with` lasts.

    Edits of one site are applied in the order given; between sites the order is the model's own:
    mask, scores, weights, heads. A recording made at the same time, inside or around, shows the
    edited values. The numbers are the same with a key/value cache and without, except for edits
    that let a query see later keys. Blocks under activation checkpointing cannot be edited.

    Edits inside others are applied after them. Each certificate covers its own edits alone: what
    they did to the model as the outer edits had left it, without the inner ones.

    Args:
        model: of a run, pretrained, or built of attnlab's parts.
        edits: what to change, see `attnlab.edits`.
        vocabulary: names for token ids, by number (or a function of it), for edits that name
            tokens; None for the model's own, if any.
        certify: fill the certificate, which holds only while the parameters stay: pass False to
            train under edits. Each forward pass is made once more without the edits (inside
            others, up to twice), and the first up to twice more; with False, only landing is
            checked.

    Returns:
        a context manager; `as` gives the `Certificate`, which is complete when the `with` ends.

    Raises:
        WrongUsage: at the start, a site, layer, head, shape, token or position that the model does
            not have; at the end, an edit that landed nowhere.
        CouldNotRun: the certificate has failures; or a checkpointed block is edited.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> with edit(model, attnlab.ZeroHead(layer=0, head=1)) as certificate:
    ...     logits = model(tokens)
    >>> certificate.holds, certificate.parameters_unchanged
    (True, True)
    """
    check_edits("edit takes a model", model, edits)
    editor = Editor(model, edits, vocabulary_of(model, vocabulary), certify=certify)
    certificate, checks = editor.certificate, Checks(model, editor)
    try:
        with installed(model, editor), checks.watching() if certify else nullcontext():
            yield certificate
    finally:
        certificate.not_checked += _not_checked(editor, checks, certify)
    # Reached only where nothing else went wrong inside: another error is never hidden behind this
    # one.
    failures = list(filter(None, (coverage.failure() for coverage in editor.coverages)))
    if failures:
        raise WrongUsage("\n  ".join(failures))
    if certificate.failures:
        raise CouldNotRun(f"do not trust these edits: {'; '.join(certificate.failures)}.")


def check_edits(takes: str, model: nn.Module, edits: Sequence[Edit]) -> None:
    """Raise unless there is a model and at least one edit; `takes` says what the call takes."""
    if not isinstance(model, nn.Module):
        raise WrongUsage(f"{takes}, then edits; got {model_words(model)}.")
    if not edits or not all(isinstance(edit, Edit) for edit in edits):
        raise WrongUsage(
            f"{takes} and at least one edit, such as ZeroHead(head=1); got {edits!r:.80}."
        )


def _not_checked(editor: Editor, checks: Checks, certify: bool) -> list[str]:
    """List what the certificate has not checked when the edits have ended."""
    notes = []
    for coverage in editor.coverages:
        for name in sorted(coverage.unknown):
            notes.append(
                f"whether {coverage.edit!r} missed some {name!r}: the tokens at some positions, "
                "such as those that a cache held when the edit began, are unknown"
            )
    which = ""
    if not editor.certificate.effects:
        which = "all"
    if checks.left_out:
        which = f"{checks.left_out} more"
    if not certify:
        notes.append("anything but that the edits landed; pass certify=True")
    elif which and editor.certificate.calls:
        notes.append(
            f"what the edits did to the output of {which} forward passes: "
            "they were compiled or interrupted, continued a cache that existed before or that "
            "later edits have changed, or reordered its rows"
        )
    return notes
