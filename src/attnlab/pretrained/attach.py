"""Giving a foreign model doors: it is surveyed, and checked, before anything is claimed of it."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.pretrained.checking import check
from attnlab.pretrained.family import Family, family_of, require_met
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.plan import make_plan
from attnlab.pretrained.probing import probe_inputs
from attnlab.pretrained.rows import require_rows
from attnlab.pretrained.standing import uncompiled
from attnlab.pretrained.survey import first_tensor, survey
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
    """Give a model doors at every attention, block and stack that a survey finds in it.

    Args:
        foreign: any torch module; it is put into evaluation mode for the survey and then back.
        tokenizer: of transformers, for text.
        name: of the model.
        example: small inputs, by name or in their order, where its settings do not say what it takes. Where a model
            looks at a second sequence, give the two different lengths.
        family: where sites are that the survey cannot find; None for what was registered for the model's type.

    Raises:
        WrongUsage: it has doors already, or nobody knows what it takes.
        CouldNotRun: it fails on these inputs, no attention was met, or no seam passes the check.
    """
    if not isinstance(foreign, nn.Module):
        raise WrongUsage(f"doors are given to a model, a torch module; got a {type(foreign).__name__}.")
    if any(isinstance(module, SitedModule) for module in foreign.modules()):
        raise WrongUsage(f"{type(foreign).__name__} has doors already: use it as it is.")
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
        with _explained(foreign, name, "a small input made from its settings" if example is None else "the example"):
            inputs = probe_inputs(foreign) if example is None else _named(foreign, example)
            found = survey(foreign, inputs)
        given = found.output.get("logits") if isinstance(found.output, Mapping) else None
        given = first_tensor(found.output) if given is None else given
        if given is None or given.dim() == 0:
            raise CouldNotRun(
                f"{name or type(foreign).__name__} returns {'no tensor' if given is None else 'a single number'}, from "
                "which nobody can tell what is done inside; have it return logits or vectors, (batch, length, width)."
            )
        if bool(given.isnan().any()):
            raise CouldNotRun(
                f"{name or type(foreign).__name__} gives NaN for a small input, so that nothing done to it could be "
                "told; are its weights whole? In half precision, try dtype='float32'."
            )
        is_both = bool(getattr(getattr(foreign, "config", None), "is_encoder_decoder", False))
        plan = make_plan(found, is_encoder_decoder=is_both)
        family = family_of(foreign) if family is None else family
        plan = plan if family is None else family.corrected(plan, foreign)
        has_logits = isinstance(found.output, Mapping) and "logits" in found.output
        model = Pretrained(foreign, plan, tokenizer=tokenizer, name=name, has_logits=has_logits)
        model.example = inputs
        model.seams = check(model, inputs)
        require_rows(model, inputs)
        if family is not None:
            require_met(model, family, inputs)
        return model


@contextmanager
def _explained(foreign: nn.Module, name: str, what: str) -> Iterator[None]:
    """Say in one sentence why a model could not read its first input."""
    try:
        yield
    except AttnlabError:
        raise
    except Exception as error:  # a stranger's model can fail in any way
        words = " ".join(str(error).split())[:200].rstrip(".")
        takes = ", ".join(inspect.signature(foreign.forward).parameters)
        raise CouldNotRun(
            f"{name or type(foreign).__name__} could not run on {what} ({type(error).__name__}: {words}). It takes "
            f"({takes}); give small inputs that fit: attnlab.load(model, example={{...}})."
        ) from None


def _named(foreign: nn.Module, example: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Name inputs as a model does."""
    if isinstance(example, Mapping):
        return dict(example)
    given = (example,) if isinstance(example, Tensor) else example
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise WrongUsage(f"an example is inputs by name or in their order, such as (tokens,); got {example!r:.80}.")
    takes = inspect.signature(foreign.forward)
    try:
        named = takes.bind(*given).arguments
    except TypeError as error:
        raise WrongUsage(
            f"{type(foreign).__name__} does not take such an example: {error}; it takes {takes}."
        ) from None
    if any(takes.parameters[each].kind is inspect.Parameter.VAR_POSITIONAL for each in named):
        raise WrongUsage(
            f"{type(foreign).__name__} takes {takes}: its inputs have no names, so that they cannot be told."
        )
    return dict(named)
