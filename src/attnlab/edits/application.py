"""Edit: change what goes on inside a model while a `with` lasts, and know that it landed.

with edit(model, ZeroHead(layer=0, head=1)) as certificate:
    model(tokens)
print(certificate)
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import nn

from attnlab.edits.certificate import Certificate
from attnlab.edits.checks import Checks
from attnlab.edits.edit import Edit
from attnlab.edits.editor import Editor, Watcher
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.recording.tokens import Vocabulary, vocabulary_of
from attnlab.sites import installed

__all__ = ["edit"]


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

    Args:
        model: any module built of attnlab's parts.
        edits: what to change, see `attnlab.edits`.
        vocabulary: names for token ids, by number (or a function of it), for edits that name
            tokens; None for the model's own, if any.
        certify: fill the certificate. Each forward pass is made once more without the edits, and
            the first up to twice more; without, only landing is checked.

    Raises:
        WrongUsage: at the start, a site, layer, head or shape that the model does not have; at the
            end, an edit that landed nowhere.
        CouldNotRun: what the certificate found speaks against trusting the edits.
    """
    if not isinstance(model, nn.Module):
        raise WrongUsage(f"edit takes a model, then edits; got a {type(model).__name__}.")
    for each in edits:
        if not isinstance(each, Edit):
            raise WrongUsage(
                f"edit takes a model and edits, such as ZeroHead(head=0); got {each!r:.80}."
            )
    if not edits:
        raise WrongUsage(
            "edit needs at least one edit, such as ZeroHead(layer=0, head=1); got none."
        )
    checks = Checks(model)
    names = vocabulary_of(model, vocabulary)
    editor = Editor(model, edits, names, checks if certify else Watcher())
    try:
        with (
            installed(model, editor),
            editor.recomputation.watching(model),
            checks.watching(editor) if certify else nullcontext(),
        ):
            yield checks.certificate
    finally:
        checks.concluded(editor.coverages, is_checked=certify, is_due=editor.recomputation.is_due)
    # Reached only where nothing else went wrong inside: another error is never hidden behind this
    # one.
    failures = [
        failure for coverage in editor.coverages if (failure := coverage.failure()) is not None
    ]
    if failures:
        raise WrongUsage("\n  ".join(failures))
    if checks.certificate.off_target or checks.certificate.identity:
        raise CouldNotRun(
            f"these edits are not to be trusted: {'; '.join(checks.certificate.failures)}."
        )
