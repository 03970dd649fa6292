"""A foreign model with doors: nothing in it is copied or rewritten, and while nobody looks nothing stands in it.

    model = attach(foreign)                                  # any torch module with attention
    with record(model, "layers.*.attention.weights") as rec:
        model(tokens)                                        # or foreign(**inputs), or foreign.generate(...)

While an instrument is installed, hooks in the foreign model and a seam at its attention bring values to the doors, of
whoever calls it; afterwards they are gone.
"""

import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.pretrained.doors import AttentionDoor, BlockDoor, FeedForwardDoor, StackDoor
from attnlab.pretrained.plan import AttentionPlan, BlockPlan, Plan
from attnlab.pretrained.posts import stand
from attnlab.pretrained.predictor import ForeignPredictor
from attnlab.pretrained.running import Run
from attnlab.pretrained.standing import hooks_hidden, leave_posts
from attnlab.pretrained.survey import first_tensor
from attnlab.pretrained.texts import text_config, text_inputs
from attnlab.pretrained.wording import TokenNames
from attnlab.sites import SitedModule

__all__ = ["Pretrained"]

_PADDING = ("src_key_padding_mask", "key_padding_mask")
"""How modules of plain torch are told of padding: True where it is."""

_ALL = ("query", "key", "value", "mask", "scores", "weights")


class Pretrained(SitedModule):
    """A foreign model and its doors. `foreign` is the model itself, untouched.

    Called with token ids (batch, length), with (source, target) ids, or with what the foreign model takes by name, it
    returns the logits, or the last hidden states of a model without a head.

    Args:
        foreign: the model.
        plan: which of its modules stand for which sites.
        lazy: paths of the attention doors whose weights can be made later from queries and keys.
        tokenizer: of transformers, or None.
        name: what the model is called in recordings.
    """

    def __init__(
        self,
        foreign: nn.Module,
        plan: Plan,
        *,
        lazy: frozenset[str] = frozenset(),
        tokenizer: Any = None,
        name: str = "",
        has_logits: bool = False,
    ) -> None:
        super().__init__()
        self.foreign = foreign
        self.plan, self.tokenizer, self.name = plan, tokenizer, name or type(foreign).__name__
        stacks = {stack.name: [_block_door(block) for block in stack.blocks] for stack in plan.stacks}
        for stack, blocks in stacks.items():
            if stack:
                self.add_module(stack, StackDoor(blocks, self._called(stack)))
            else:
                self.layers = nn.ModuleList(blocks)
        self.sites = (("embedding",) if "" in stacks else ()) + (("logits",) if has_logits else ())
        for path, attention in self.attention_doors():
            attention.is_lazy = path in lazy
        self.seams: tuple[Any, ...] = ()
        self.fast_path: float | None = None  # how far torch's fast path is from what is watched; None: it takes none
        self.source, self.notes = "", tuple[str, ...]()
        self.example: Mapping[str, Any] = {}  # small inputs that it has read
        self._depth, self._lock, self._hooked = 0, threading.Lock(), ExitStack()
        self._own = threading.local()
        self._takes = {each.name: each.kind for each in inspect.signature(foreign.forward).parameters.values()}

    def forward(self, *inputs: Tensor, real: Tensor | None = None, **options: Any) -> Tensor:
        """Run the foreign model.

        Args:
            inputs: token ids (batch, length), or whatever its first input is; for an encoder–decoder also the target's.
            real: (batch, length), False at padding: the foreign model's `attention_mask`.
            options: what it takes by name.
        """
        named = self.arguments(*inputs, real=real, **options)
        if "use_cache" in self._takes and named.get("past_key_values") is None:
            named.setdefault("use_cache", False)  # what it would hold of this pass, nobody is given
        output = self.foreign(**named)
        found = output.get("logits") if isinstance(output, Mapping) else None
        found = first_tensor(output) if found is None else found
        if found is None:
            raise WrongUsage(f"{type(self.foreign).__name__} returns no tensor.")
        return found

    def arguments(self, *inputs: Tensor, real: Tensor | None = None, **options: Any) -> dict[str, Any]:
        """Name the inputs as the foreign model does."""
        if any(isinstance(each, str) for each in (*inputs, *options.values())):
            raise WrongUsage("a model reads ids: model(**model.inputs(text)); attnlab.ask(model, text) reads text.")
        main = getattr(self.foreign, "main_input_name", None)
        names = [name for name, kind in self._takes.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        names = names if main is None else [main, "decoder_input_ids"]
        if len(inputs) > len(names):
            raise WrongUsage(f"at most {len(names)} inputs are taken without a name: {', '.join(names)}.")
        named = {**dict(zip(names, inputs, strict=False)), **options}
        if real is None:
            return named
        blocked = next((name for name in _PADDING if name in self._takes), None)
        if main is not None or blocked is None:
            return {**named, "attention_mask": real.long()}
        return {**named, blocked: ~real.bool()}

    def last_alone(self, number: int) -> dict[str, Any]:
        """Return the options by which the logits of so many last positions are computed alone; none if it has none."""
        return {"logits_to_keep": number} if "logits_to_keep" in self._takes else {}

    def predictor(self) -> ForeignPredictor:
        """Return what `attnlab.generate` asks for the next token; one for each generation.

        Raises:
            WrongUsage: an encoder–decoder, which must read a source first; or a model that does not generate.
        """
        if "decoder_input_ids" in self._takes:
            raise WrongUsage(
                f"{self.name} answers a source: attnlab.generate(model.conditioned(source), start, ...), where start "
                "holds the decoder's first ids, (batch, 1)."
            )
        return ForeignPredictor(self, "input_ids", {})

    def conditioned(self, source: Tensor, *, real: Tensor | None = None) -> ForeignPredictor:
        """Return a predictor of what an encoder–decoder answers to a source, for one `attnlab.generate`."""
        if "decoder_input_ids" not in self._takes:
            raise WrongUsage(f"{self.name} has no decoder beside its encoder; generate from the model itself.")
        return ForeignPredictor(self, "decoder_input_ids", self.arguments(source, real=real))

    def inputs(
        self,
        text: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        *,
        target: str | Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """Return what the model takes for a text or several, by name: `model(**model.inputs("a text"))`.

        Args:
            text: one text, or several, of which shorter ones are padded on the right.
            pair: the second text of each, for models that read two.
            target: of an encoder–decoder, what its decoder reads after the start token.
        """
        return text_inputs(self, text, pair, target=target)

    @cached_property
    def vocabulary(self) -> TokenNames | None:
        """What the ids are called; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return TokenNames(self.tokenizer, getattr(text_config(self.foreign), "vocab_size", None) or 0)

    @property
    def entrance(self) -> nn.Module:
        """The foreign model: who calls it directly, or has it generate, comes in there."""
        return self.foreign

    def _called(self, stack: str) -> nn.Module | None:
        """Return the innermost module around a stack that can be called."""
        around = next(each.around for each in self.plan.stacks if each.name == stack)
        modules = [self.foreign.get_submodule(path) for path in around if path]
        return next((each for each in reversed(modules) if not isinstance(each, nn.ModuleList | nn.ModuleDict)), None)

    def attention_doors(self) -> Iterator[tuple[str, AttentionDoor]]:
        """List the doors of all attentions with their paths."""
        for path, module in self.named_modules():
            if isinstance(module, AttentionDoor):
                yield path, module

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Stand in the foreign model while anybody looks."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                try:
                    self._stand(self._hooked)
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
                    self._own = threading.local()  # tensors of the last pass are let go of

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Begin anew with what is known of passes, and go on afterwards as before."""
        before, self._own.run = self.run, Run()
        try:
            yield
        finally:
            self._own.run = before

    def unhooked(self) -> AbstractContextManager[None]:
        """Let the foreign model run as it does when it is called without us, by torch's fast path too."""
        return hooks_hidden(self.foreign)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is attended by nobody."""
        left = ("_lock", "_own", "_hooked")
        return {**{name: each for name, each in super().__getstate__().items() if name not in left}, "_depth": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make anew what cannot be copied."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock, self._own, self._hooked = threading.Lock(), threading.local(), ExitStack()
        leave_posts(self.foreign)

    @property
    def run(self) -> Run:
        """What is known of the pass that this thread is in."""
        found: Run | None = getattr(self._own, "run", None)
        if found is None:
            found = self._own.run = Run()
        return found

    def _stand(self, stack: ExitStack) -> None:
        self._own = threading.local()
        stand(self, stack)


def _block_door(plan: BlockPlan) -> BlockDoor:
    parts: dict[str, SitedModule] = {each.name: _attention_door(each) for each in plan.attentions}
    own = [name for name, each in (("hidden", plan.down), ("output", plan.adds)) if each is not None]
    if own:
        parts["feed_forward"] = FeedForwardDoor()
        parts["feed_forward"].sites = tuple(own)
    sites: list[str] = []
    if plan.place is not None:
        after = {"cross" if each.name.startswith("cross") else "own": each.after for each in plan.attentions}
        sites = ["residual_before"]
        sites += ["residual_between"] if after.get("own") is not None else []
        sites += ["residual_after_cross"] if after.get("cross") is not None else []
        sites += ["residual_after"] if plan.end is not None else []
    return BlockDoor(sites, parts)


def _attention_door(plan: AttentionPlan) -> AttentionDoor:
    sites = [] if plan.seam == "softmax" else list(_ALL[:4])
    sites += ["scores", "weights", *(["heads"] if plan.shows_heads else [])]
    sites += ["output"] if plan.adds is not None else []
    return AttentionDoor(
        sites,
        seam=plan.seam,
        num_heads=plan.num_heads,
        num_kv_heads=plan.num_kv_heads,
        is_cross=plan.name.startswith("cross"),
    )
