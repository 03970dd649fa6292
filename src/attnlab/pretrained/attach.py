"""Attach hook points to a foreign model: it is traced and verified first."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.pretrained.batch_axis import require_batch_first
from attnlab.pretrained.family import Family, family_of, require_visited
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.ownership import uncompiled
from attnlab.pretrained.probe import probe_inputs
from attnlab.pretrained.structure import find_structure
from attnlab.pretrained.tracing import first_tensor, trace_model
from attnlab.pretrained.verify import verify
from attnlab.sites import SitedModule

__all__ = ["attach"]


def attach(
    foreign: nn.Module,
    *,
    tokenizer: Any = None,
    name: str = "",
    example: Mapping[str, Any] | Sequence[Any] | None = None,
    family: Family | None = None,
) -> Pretrained:
    """Give a model hook points at every attention, block and stack that tracing finds in it.

    Args:
        foreign: any torch module; it is traced in evaluation mode, and put back afterwards.
        tokenizer: of transformers, for text.
        name: of the model.
        example: small inputs, by name or in order, where the model's config does not say what it
            takes. Where it attends to a second sequence, give the two different lengths.
        family: the sites that tracing cannot find; None for the family registered for the model's
            type.

    Raises:
        WrongUsage: it has hook points already, or its inputs are unknown.
        CouldNotRun: it fails on these inputs, no attention was found, or verification fails.
    """
    if not isinstance(foreign, nn.Module):
        raise WrongUsage(
            f"hook points are given to a model, a torch module; got a {type(foreign).__name__}."
        )
    if any(isinstance(module, SitedModule) for module in foreign.modules()):
        raise WrongUsage(f"{type(foreign).__name__} has hook points already: use it as it is.")
    if type(foreign).__name__ == "OptimizedModule":  # what torch.compile wraps a model in
        foreign = foreign.get_submodule("_orig_mod")
    training = [module for module in foreign.modules() if module.training]
    foreign.eval()
    try:
        return _attached(foreign, tokenizer, name, example, family)
    finally:
        for module in training:
            module.training = True


def _attached(
    foreign: nn.Module,
    tokenizer: Any,
    name: str,
    example: Mapping[str, Any] | Sequence[Any] | None,
    family: Family | None,
) -> Pretrained:
    with uncompiled(foreign):
        with _explained(
            foreign,
            name,
            "a small input made from its settings" if example is None else "the example",
        ):
            inputs = probe_inputs(foreign) if example is None else _named(foreign, example)
            trace = trace_model(foreign, inputs)
        has_logits = isinstance(trace.output, Mapping) and "logits" in trace.output
        output = trace.output["logits"] if has_logits else None
        output = first_tensor(trace.output) if output is None else output
        if output is None or output.dim() == 0:
            raise CouldNotRun(
                f"{name or type(foreign).__name__} returns "
                f"{'no tensor' if output is None else 'a single number'}, which does not show "
                "the effect of an edit inside; have it return logits or vectors, (batch, length, "
                "width)."
            )
        if bool(output.isnan().any()):
            raise CouldNotRun(
                f"{name or type(foreign).__name__} gives NaN for a small input, which hides the "
                "effect of every edit; are its weights whole? In half precision, try "
                "dtype='float32'."
            )
        is_both = bool(getattr(getattr(foreign, "config", None), "is_encoder_decoder", False))
        structure = find_structure(trace, is_encoder_decoder=is_both)
        family = family_of(foreign) if family is None else family
        if family is not None:
            structure = family.corrected(structure, foreign)
        model = Pretrained(
            foreign, structure, tokenizer=tokenizer, name=name, has_logits=has_logits
        )
        model.example = inputs
        model.backends = verify(model, inputs)
        require_batch_first(model, inputs)
        if family is not None:
            require_visited(model, family, inputs)
        return model


@contextmanager
def _explained(foreign: nn.Module, name: str, what: str) -> Iterator[None]:
    """Raise any failure of the first pass as one sentence that says what the model takes."""
    try:
        yield
    except AttnlabError:
        raise
    except Exception as error:  # a stranger's model can fail in any way
        words = " ".join(str(error).split())[:200].rstrip(".")
        takes = ", ".join(inspect.signature(foreign.forward).parameters)
        raise CouldNotRun(
            f"{name or type(foreign).__name__} could not run on {what} ({type(error).__name__}: "
            f"{words}). It takes ({takes}); give small inputs that fit: attnlab.load(model, "
            "example={...})."
        ) from None


def _named(foreign: nn.Module, example: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return an example as inputs by name."""
    if isinstance(example, Mapping):
        return dict(example)
    given = (example,) if isinstance(example, Tensor) else example
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise WrongUsage(
            "an example is inputs by name or in their order, such as (tokens,); got "
            f"{example!r:.80}."
        )
    takes = inspect.signature(foreign.forward)
    try:
        named = takes.bind(*given).arguments
    except TypeError as error:
        raise WrongUsage(
            f"{type(foreign).__name__} does not take such an example: {error}; it takes {takes}."
        ) from None
    if any(takes.parameters[each].kind is inspect.Parameter.VAR_POSITIONAL for each in named):
        raise WrongUsage(
            f"{type(foreign).__name__} takes {takes}: its inputs have no names, so that they "
            "cannot be told apart."
        )
    return dict(named)
