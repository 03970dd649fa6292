"""A foreign model with hook points: nothing in it is copied or rewritten.

    model = attach(foreign)                                  # any torch module with attention
    with record(model, "layers.*.attention.weights") as rec:
        model(tokens)                               # or foreign(**inputs), or foreign.generate(...)

While one of our hooks is installed, torch's hooks in the foreign model and a backend at its
attention bring the values of every call to the hook points; afterwards they are removed.
"""

import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.pretrained.hook_points import AttentionPoint, BlockPoint, FeedForwardPoint, StackPoint
from attnlab.pretrained.hooks import install_hooks
from attnlab.pretrained.ownership import hooks_hidden, remove_copied_hooks
from attnlab.pretrained.pass_state import PassState
from attnlab.pretrained.predictor import ForeignPredictor
from attnlab.pretrained.structure import (
    AttentionStructure,
    BlockStructure,
    ModelStructure,
    StackStructure,
)
from attnlab.pretrained.text_inputs import text_config, text_inputs
from attnlab.pretrained.token_names import TokenNames
from attnlab.pretrained.tracing import first_tensor
from attnlab.sites import SitedModule

__all__ = ["Pretrained"]

_PADDING = ("src_key_padding_mask", "key_padding_mask")
"""Arguments by which modules of plain torch take padding: True where it is."""

_INPUTS = ("query", "key", "value", "mask")


class Pretrained(SitedModule):
    """A foreign model and its hook points. `foreign` is the model itself, untouched.

    Called with token ids (batch, length), with (source, target) ids, or with the foreign model's
    own named inputs, it returns the logits, or the last hidden states of a model without a head.

    Args:
        foreign: the model.
        structure: which of its modules stand for which sites.
        lazy: paths of the attentions whose weights can be computed later from queries and keys.
        tokenizer: of transformers, or None.
        name: the model's name in recordings.
    """

    def __init__(
        self,
        foreign: nn.Module,
        structure: ModelStructure,
        *,
        lazy: frozenset[str] = frozenset(),
        tokenizer: Any = None,
        name: str = "",
        has_logits: bool = False,
    ) -> None:
        super().__init__()
        self.foreign = foreign
        self.structure = structure
        self.tokenizer, self.name = tokenizer, name or type(foreign).__name__
        sites = []
        for stack in structure.stacks:
            blocks = [_block_point(block) for block in stack.blocks]
            if stack.name:
                self.add_module(stack.name, StackPoint(blocks, self._module_around(stack)))
            else:
                self.layers = nn.ModuleList(blocks)
                sites.append("embedding")
        self.sites = (*sites, "logits") if has_logits else tuple(sites)
        for path, attention in self.attention_points():
            attention.is_lazy = path in lazy
        self.backends: tuple[Any, ...] = ()
        self.fast_path: float | None = None
        """The largest difference of torch's fast path from a hooked pass; None if it takes none."""
        self.source, self.notes = "", tuple[str, ...]()
        self.example: Mapping[str, Any] = {}
        """The small inputs by which the model was traced and verified."""
        self._depth, self._lock, self._hooked = 0, threading.Lock(), ExitStack()
        self._own = threading.local()
        self._takes = {
            each.name: each.kind for each in inspect.signature(foreign.forward).parameters.values()
        }

    def forward(self, *inputs: Tensor, real: Tensor | None = None, **options: Any) -> Tensor:
        """PassState the foreign model.

        Args:
            inputs: token ids (batch, length), or the model's first input; for an encoder–decoder
                also the target's.
            real: (batch, length), False at padding: the foreign model's `attention_mask`.
            options: its other arguments by name.
        """
        named = self.arguments(*inputs, real=real, **options)
        if "use_cache" in self._takes and named.get("past_key_values") is None:
            named.setdefault("use_cache", False)  # the cache would not be returned
        output = self.foreign(**named)
        found = output.get("logits") if isinstance(output, Mapping) else None
        found = first_tensor(output) if found is None else found
        if found is None:
            raise WrongUsage(f"{type(self.foreign).__name__} returns no tensor.")
        return found

    def arguments(
        self, *inputs: Tensor, real: Tensor | None = None, **options: Any
    ) -> dict[str, Any]:
        """Name the inputs as the foreign model does."""
        if any(isinstance(each, str) for each in (*inputs, *options.values())):
            raise WrongUsage(
                "a model reads ids: model(**model.inputs(text)); attnlab.ask(model, text) "
                "reads text."
            )
        main = getattr(self.foreign, "main_input_name", None)
        if main is None:
            ordered = inspect.Parameter.POSITIONAL_OR_KEYWORD
            names = [name for name, kind in self._takes.items() if kind is ordered]
        else:
            names = [main, "decoder_input_ids"]
        if len(inputs) > len(names):
            raise WrongUsage(
                f"at most {len(names)} inputs are taken without a name: {', '.join(names)}."
            )
        named = {**dict(zip(names, inputs, strict=False)), **options}
        if real is None:
            return named
        blocked = next((name for name in _PADDING if name in self._takes), None)
        if main is not None or blocked is None:
            return {**named, "attention_mask": real.long()}
        return {**named, blocked: ~real.bool()}

    def last_alone(self, number: int) -> dict[str, Any]:
        """Return the options that restrict the logits to the last positions; {} if there are
        none."""
        return {"logits_to_keep": number} if "logits_to_keep" in self._takes else {}

    def predictor(self) -> ForeignPredictor:
        """Return a predictor of next tokens, for one `attnlab.generate`.

        Raises:
            WrongUsage: an encoder–decoder, which must read a source first; or a model that does not
                generate.
        """
        if "decoder_input_ids" in self._takes:
            raise WrongUsage(
                f"{self.name} answers a source: attnlab.generate(model.conditioned(source), "
                "start, ...), where start holds the decoder's first ids, (batch, 1)."
            )
        return ForeignPredictor(self, "input_ids", {})

    def conditioned(self, source: Tensor, *, real: Tensor | None = None) -> ForeignPredictor:
        """Return a predictor of an encoder–decoder's target for a source, for one
        `attnlab.generate`."""
        if "decoder_input_ids" not in self._takes:
            raise WrongUsage(
                f"{self.name} has no decoder beside its encoder; generate from the model itself."
            )
        return ForeignPredictor(self, "decoder_input_ids", self.arguments(source, real=real))

    def inputs(
        self,
        text: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        *,
        target: str | Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """Return the model's inputs for one text or several: `model(**model.inputs("a text"))`.

        Args:
            text: one text, or several; shorter ones are padded on the right.
            pair: the second text of each, for models that read two.
            target: what the decoder of an encoder–decoder reads after the start token.
        """
        return text_inputs(self, text, pair, target=target)

    @cached_property
    def vocabulary(self) -> TokenNames | None:
        """The names of the token ids; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        size = getattr(text_config(self.foreign), "vocab_size", None) or 0
        return TokenNames(self.tokenizer, size)

    @property
    def entrance(self) -> nn.Module:
        """The foreign model: direct calls and `generate` start there."""
        return self.foreign

    def _module_around(self, stack: StackStructure) -> nn.Module | None:
        """Return the innermost module around a stack that can be called."""
        for path in reversed(stack.around):
            module = self.foreign.get_submodule(path)
            if path and not isinstance(module, nn.ModuleList | nn.ModuleDict):
                return module
        return None

    def attention_points(self) -> Iterator[tuple[str, AttentionPoint]]:
        """List the hook points of all attentions with their paths."""
        for path, module in self.named_modules():
            if isinstance(module, AttentionPoint):
                yield path, module

    @contextmanager
    def while_hooked(self) -> Iterator[None]:
        """Keep hooks in the foreign model while the `with` lasts."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                try:
                    self._own = threading.local()
                    install_hooks(self, self._hooked)
                except BaseException:
                    self._depth -= 1
                    self._hooked.close()
                    raise
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    self._hooked.close()
                    self._own = threading.local()  # releases the tensors of the last pass

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Use a fresh pass state within the `with`, and restore the present one afterwards."""
        before, self._own.current_pass = self.current_pass, PassState()
        try:
            yield
        finally:
            self._own.current_pass = before

    def unhooked(self) -> AbstractContextManager[None]:
        """Run the foreign model within the `with` as it runs without us, torch's fast path
        included."""
        return hooks_hidden(self.foreign)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, which has no hooks."""
        state = {**super().__getstate__(), "_depth": 0}
        for name in ("_lock", "_own", "_hooked"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy, with a lock and a pass state of its own."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock, self._own, self._hooked = threading.Lock(), threading.local(), ExitStack()
        remove_copied_hooks(self.foreign)

    @property
    def current_pass(self) -> PassState:
        """The state of this thread's pass."""
        found: PassState | None = getattr(self._own, "current_pass", None)
        if found is None:
            found = self._own.current_pass = PassState()
        return found


def _block_point(block: BlockStructure) -> BlockPoint:
    parts: dict[str, SitedModule] = {each.name: _attention_point(each) for each in block.attentions}
    feed_forward = {"hidden": block.down, "output": block.adds}
    own = tuple(site for site, call in feed_forward.items() if call is not None)
    if own:
        parts["feed_forward"] = FeedForwardPoint()
        parts["feed_forward"].sites = own
    sites: list[str] = []
    if block.place is not None:
        sites.append("residual_before")
        last = {each.name.startswith("cross"): each.after for each in block.attentions}
        if last.get(False) is not None:
            sites.append("residual_between")
        if last.get(True) is not None:
            sites.append("residual_after_cross")
        if block.end is not None:
            sites.append("residual_after")
    return BlockPoint(sites, parts)


def _attention_point(attention: AttentionStructure) -> AttentionPoint:
    sites = [] if attention.backend == "softmax" else list(_INPUTS)
    sites += ["scores", "weights"]
    if attention.shows_heads:
        sites.append("heads")
    if attention.adds is not None:
        sites.append("output")
    return AttentionPoint(
        sites,
        backend=attention.backend,
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        is_cross=attention.name.startswith("cross"),
    )
