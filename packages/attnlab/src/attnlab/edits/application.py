"""Edit: change what goes on inside a model while a `with` lasts, and know that it landed.

with edit(model, ZeroHead(layer=0, head=1)) as certificate:
    model(tokens)
print(certificate)
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import nn

from attnlab.edits.certificate import Certificate
from attnlab.edits.checks import Checks, backends_of
from attnlab.edits.edit import Edit
from attnlab.edits.editor import Editor
from attnlab.errors import CouldNotRun, WrongUsage, type_words
from attnlab.look.inputs import Extent
from attnlab.look.recording.tokens import Vocabulary, vocabulary_of
from attnlab.sites import installed


@contextmanager
def edit(
    model: nn.Module, *edits: Edit, vocabulary: Vocabulary | None = None, certify: bool = True
) -> Iterator[Certificate]:
    """Apply edits to a model while the `with` lasts.

    At one site they follow one another in the order given; between sites the order is the model's
    own: mask, scores, weights, heads. A recording made under it, in either order, shows what went
    on. With a key/value cache and without, the same edits make the same numbers, but for those that
    let a query see what comes after it. With activation checkpointing `backward()` belongs inside
    the `with`; after it, it is refused.

    Edits inside edits come after them, and each certificate speaks of its own change alone: of what
    its edits did to the model as those that began before had left it, without those that began
    later.

    Args:
        model: any module built of attnlab's parts.
        edits: what to change, see `attnlab.edits`.
        vocabulary: names for token ids, by number (or a function of it), for edits that name
            tokens; None for the model's own, if any.
        certify: fill the certificate, which holds only while the parameters stay: pass False to
            train under edits. Each forward pass is made once more without the edits (inside
            others, up to twice for each), and the first up to twice more; without, only landing is
            checked.

    Raises:
        WrongUsage: at the start, a site, layer, head, shape, token or position that the model does
            not have; at the end, an edit that landed nowhere.
        CouldNotRun: what the certificate found speaks against trusting the edits.
    """
    _check_given(model, edits)
    certificate = Certificate(backend=backends_of(model))
    editor = Editor(model, edits, vocabulary_of(model, vocabulary))
    if certify:
        editor.certificate = certificate
    certificate.edits = [coverage.change for coverage in editor.coverages]
    checks = Checks(model, editor, certificate)
    try:
        with ExitStack() as stack:
            stack.enter_context(installed(model, editor))
            stack.enter_context(editor.recomputation.watching(model))
            if certify:
                stack.enter_context(checks.watching())
            yield certificate
    finally:
        certificate.not_checked += _not_checked(editor, checks, certify)
    # Reached only where nothing else went wrong inside: another error is never hidden behind this
    # one.
    _raise_failures(editor, certificate)


def _check_given(model: object, edits: tuple[object, ...]) -> None:
    if not isinstance(model, nn.Module):
        raise WrongUsage(f"edit takes a model, then edits; got {type_words(model)}.")
    if not edits or not all(isinstance(edit, Edit) for edit in edits):
        raise WrongUsage(
            f"edit takes a model and edits, at least one edit, ZeroHead(head=1); got {edits!r:.80}."
        )


def check_edits(
    model: nn.Module,
    edits: Sequence[Edit],
    vocabulary: Vocabulary | None,
    extent: Extent | None,
    whose: str,
) -> None:
    """Check edits of inputs that are known before any pass is made.

    Args:
        model, edits, vocabulary: as `edit` takes them.
        extent: what the passes to come can read; None where that is unknown.
        whose: the inputs, for messages.

    Raises:
        WrongUsage: a site, layer, head, shape, token or position that is not there.
    """
    _check_given(model, tuple(edits))
    editor = Editor(model, edits, vocabulary_of(model, vocabulary))
    if extent is not None:
        editor.check_extent(extent, whose)


def _raise_failures(editor: Editor, certificate: Certificate) -> None:
    """Raise where an edit has not landed, or is not to be trusted."""
    failures = list(filter(None, (coverage.failure() for coverage in editor.coverages)))
    if failures:
        raise WrongUsage("\n  ".join(failures))
    if certificate.failures:
        raise CouldNotRun(f"these edits are not to be trusted: {'; '.join(certificate.failures)}.")


def _not_checked(editor: Editor, checks: Checks, certify: bool) -> list[str]:
    """Say what is not known of the edits when they have ended."""
    notes = []
    for coverage in editor.coverages:
        for name in sorted(coverage.unknown):
            notes.append(
                f"whether {name!r} is where {coverage.edit!r} passed it by: of some positions, as "
                "those that a cache held when the edit began, it is unknown what was read"
            )
    if editor.recomputation.is_due:
        notes.append(
            "gradients: activation checkpointing computes edited blocks again in backward(), "
            "which is refused from now on"
        )
    which = ""
    if not checks.certificate.effects:
        which = "all"
    if checks.left_out:
        which = f"{checks.left_out} more"
    if not certify:
        notes.append("all but that the edits landed; say certify=True")
    elif which and checks.certificate.calls:
        notes.append(
            f"what the edits did to the output of {which} forward passes: "
            "they were compiled, broke off, went on from keys and values that were there before, "
            "or their rows were put in another order"
        )
    return notes
