"""Attach hook points to a foreign model: it is traced and its structure read, and every model is
verified before it is returned."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, one_line
from attnlab.pretrained.model import Family, Pretrained, family_of
from attnlab.pretrained.model_state import state_kept
from attnlab.pretrained.model_trace import ModelTrace
from attnlab.pretrained.pass_state import uncompiled
from attnlab.pretrained.probe import probe_inputs
from attnlab.pretrained.structure import find_structure
from attnlab.pretrained.text import is_encoder_decoder
from attnlab.pretrained.tracing import Inputs, first_tensor, trace_model
from attnlab.pretrained.verify import require_batch_first, require_visited, verify
from attnlab.sites import STREAM_ADVICE, SitedModule


def attach(
    foreign: nn.Module,
    *,
    tokenizer: Any = None,
    name: str = "",
    example: Inputs | Sequence[Any] | None = None,
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
    if type(foreign).__name__ == "OptimizedModule":  # what torch.compile wraps a model in
        foreign = foreign.get_submodule("_orig_mod")
    _require_hookable(foreign)
    with state_kept(foreign, example), uncompiled():
        with suppress(NotImplementedError):  # of an exported program
            foreign.eval()
        before = dict(foreign.named_modules())
        inputs, trace = _traced(foreign, name, example)
        _require_same_modules(before, foreign)
        has_logits = isinstance(trace.output, Mapping) and "logits" in trace.output
        output = first_tensor(trace.output)
        if has_logits and trace.output["logits"] is not None:
            output = trace.output["logits"]
        _require_numbers(name or type(foreign).__name__, output)
        structure = find_structure(trace, is_encoder_decoder=is_encoder_decoder(foreign))
        family = family or family_of(foreign)
        if family is not None:
            structure = family.corrected(structure, foreign)
        model = Pretrained(
            foreign, structure, tokenizer=tokenizer, name=name, has_logits=has_logits
        )
        model.example = inputs
        model.backends = verify(model, inputs)
        if not trace.is_length_first:
            require_batch_first(model, inputs)
        if family is not None:
            require_visited(model, family, inputs)
        _require_same_modules(before, foreign)
        return model


def _require_hookable(foreign: nn.Module) -> None:
    """Raise unless hooks can be installed in a model as it is."""
    kind = type(foreign).__name__
    if any(isinstance(module, SitedModule) for module in foreign.modules()):
        raise WrongUsage(f"{kind} has hook points already: use it as it is; {STREAM_ADVICE}.")
    if isinstance(foreign, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise WrongUsage(f"{kind} runs copies of a model; load the model itself: model.module.")
    for path, module in foreign.named_modules():
        graph = str(getattr(module, "inlined_graph", ""))
        if "softmax" in graph or "scaled_dot_product_attention" in graph:
            where = f" ({path})" if path else ""
            raise CouldNotRun(
                f"{kind} holds attention compiled to TorchScript{where}, which hooks cannot reach; "
                "load the model that it was made from."
            )
    if any(map(is_lazy, chain(foreign.parameters(), foreign.buffers()))):
        raise CouldNotRun(
            f"{kind} has lazy parameters, which get their shapes in its first pass; run it once, "
            "then load it."
        )


def _require_same_modules(before: Mapping[str, nn.Module], foreign: nn.Module) -> None:
    """Raise if a small pass has replaced or added modules, in which hook points would be lost."""
    now = dict(foreign.named_modules())
    for path in (*now, *before):
        if now.get(path) is not before.get(path):
            raise CouldNotRun(
                f"{type(foreign).__name__} replaces or adds modules while it runs ({path}), so "
                "hook points in them would be lost; the model is as it was before. Run it once "
                "before you load it, choose the attention that stays, or give an example= on "
                "which its modules stay."
            )


def _traced(
    foreign: nn.Module, name: str, example: Inputs | Sequence[Any] | None
) -> tuple[Inputs, ModelTrace]:
    """Trace a model on the example, or on inputs made from its settings; return both."""
    what = "the example"
    try:
        if example is None:
            what = "a small input made from its settings"
            inputs = probe_inputs(foreign)
        else:
            inputs = _named(foreign, example)
        return inputs, trace_model(foreign, inputs)
    except AttnlabError:
        raise
    except Exception as error:  # a stranger's model can fail in any way
        words = one_line(error, 200).rstrip(".")
        takes = ", ".join(inspect.signature(foreign.forward).parameters)
        raise CouldNotRun(
            f"{name or type(foreign).__name__} could not run on {what} ({type(error).__name__}: "
            f"{words}). It takes ({takes}); give small inputs that fit: attnlab.load(model, "
            "example={...})."
        ) from None


def _require_numbers(name: str, output: Tensor | None) -> None:
    """Raise unless a model's output can show the effect of an edit."""
    if output is None or output.dim() == 0:
        kind = "no tensor" if output is None else "a single number"
        raise CouldNotRun(
            f"{name} returns {kind}, which does not show the effect of an edit inside; have it "
            "return logits or vectors, (batch, length, width)."
        )
    if bool(output.isnan().any()):
        raise CouldNotRun(
            f"{name} gives NaN for a small input, which hides the effect of every edit; check its "
            "weights. In half precision, try dtype='float32'."
        )


def _named(foreign: nn.Module, example: Inputs | Sequence[Any]) -> Inputs:
    """Return an example as inputs by name."""
    if isinstance(example, Mapping):
        return dict(example)
    arguments: object = example
    if isinstance(example, Tensor):
        arguments = (example,)
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        raise WrongUsage(f"an example is inputs by name or in their order; got {example!r:.40}.")
    takes = inspect.signature(foreign.forward)
    try:
        named = takes.bind(*arguments).arguments
    except TypeError as error:
        raise WrongUsage(
            f"{type(foreign).__name__} does not take such an example: {error}; it takes {takes}."
        ) from None
    return dict(named)
