"""A foreign model with hook points: nothing in it is copied or rewritten.

    model = attach(foreign)                                  # any torch module with attention
    with record(model, "layers.*.attention.weights") as rec:
        model(tokens)                               # or foreign(**inputs), or foreign.generate(...)

While one of our hooks is installed, torch's hooks in the foreign model and a backend at its
attention bring the values of every call to the hook points; afterwards they are removed.

Families name the sites in the blocks of one type of model where tracing cannot find them:

    register_family(Family("granite", attention="self_attn.o_proj", down="mlp.down_proj",
    feed_forward="mlp"))

They are seldom needed: tracing finds most sites from the numbers of one pass. It leaves out those
that it cannot verify, such as an output that the model scales before it is added to the stream.
"""

import inspect
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage, did_you_mean, type_words
from attnlab.pretrained.attention_call import AttentionPoint, BlockPoint, StackPoint
from attnlab.pretrained.card import pretrained_card
from attnlab.pretrained.hooks import ForeignHooks
from attnlab.pretrained.model_trace import ModuleCall
from attnlab.pretrained.module_sites import add_matching_sites, add_site, module_path
from attnlab.pretrained.pass_state import ForeignModel, PassState, hooks_hidden, remove_copied_hooks
from attnlab.pretrained.structure import AttentionStructure, BlockStructure, ModelStructure
from attnlab.pretrained.text import TokenNames, text_config, text_inputs
from attnlab.pretrained.tracing import Inputs, tensor_of
from attnlab.sites import SitedModule


class ForeignPredictor:
    """One generation of a foreign model.

    Args:
        model: with hook points.
        reads: the name of its argument for the generated tokens.
        given: its other arguments, such as the source of an encoder–decoder.

    Raises:
        WrongUsage: the model does not generate.
    """

    def __init__(self, model: "Pretrained", reads: str, inputs: Inputs) -> None:
        can_generate = getattr(model.foreign, "can_generate", None)
        if "logits" not in model.sites or (callable(can_generate) and not can_generate()):
            kind = type(model.foreign).__name__
            advice = "."
            if "logits" not in model.sites:
                advice = ', unless its forward returns {"logits": ...}.'
            who = f"{model.name}, a {kind}," if model.name != kind else kind
            raise WrongUsage(f"{who} does not generate text token by token{advice}")
        self._model, self._reads, self._given = model, reads, inputs
        self._past: Any = None
        self._read: Tensor | None = None

    def __call__(self, tokens: Tensor, *, cache: object = None) -> Tensor:
        """Return the logits, (batch, positions, vocabulary), the last of them of the next token.

        tokens: all of them without a cache; with one, those since the last call.
        """
        options = {**self._given, **self._model.last_alone(1)}
        logits: Tensor
        if cache is None:
            logits = self._model(**{**options, self._reads: tokens})
            return logits
        if self._read is not None:
            self._read = torch.cat((self._read, tokens), 1)
        else:
            self._read = tokens
        new = tokens if self._past is not None else self._read
        cached = {}
        if "past_key_values" in self._model._takes:
            cached = {"past_key_values": self._past, "use_cache": True}
        output = self._model.foreign(**{**options, **cached, self._reads: new})
        self._past = output.get("past_key_values")  # None: the model reads all tokens each time
        memory = output.get("encoder_last_hidden_state")
        if memory is not None:
            self._given = {**self._given, "encoder_outputs": (memory,)}
        logits = output["logits"]
        return logits


_PADDING = ("src_key_padding_mask", "key_padding_mask")
"""Arguments by which modules of plain torch take padding: True where it is."""


_ELSEWHERE = {
    "run_with_cache": "attnlab.record(model, text)",
    "run_with_hooks": "attnlab.edit(model, edit)",
    "add_hook": "attnlab.edit(model, edit)",
    "reset_hooks": "the end of `with attnlab.edit(model, edit):`",
    "trace": "attnlab.record(model, text), or attnlab.edit(model, edit)",
    "to_tokens": "model.inputs(text)",
    "to_str_tokens": "attnlab.record(model, text).tokens(site)",
    "generate": "attnlab.ask(model, text)",
    "blocks": "model.layers",
    "cfg": "model.foreign.config",
} | dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "OV", "QK"), "attnlab.circuits(model)")
"""What models of other libraries have, and what it is here."""


@displayed
class Pretrained(ForeignModel):
    """A foreign model and its hook points. `foreign` is the model itself, untouched.

    Called with token ids (batch, length), with (source, target) ids, or with the foreign model's
    own named inputs, it returns the logits, or the last hidden states of a model without a head.

    Args:
        foreign: the model.
        structure: which of its modules stand for which sites.
        tokenizer: of transformers, or None.
        name: the model's name in recordings.
    """

    def __init__(
        self,
        foreign: nn.Module,
        structure: ModelStructure,
        *,
        tokenizer: Any = None,
        name: str = "",
        has_logits: bool = False,
    ) -> None:
        super().__init__()
        self.foreign = foreign
        self.structure = structure
        self.tokenizer, self.name = tokenizer, name or type(foreign).__name__
        self.sites = ("logits",) if has_logits else ()
        for stack in structure.stacks:
            blocks = list(map(_block_point, stack.blocks))
            if stack.name:
                self.add_module(stack.name, StackPoint(blocks, stack.module_in(foreign)))
            else:
                self.layers = nn.ModuleList(blocks)
                self.sites = ("embedding", *self.sites)
        self.backends: tuple[Any, ...] = ()
        self.fast_path: float | None = None
        """The largest difference of torch's fast path from a hooked pass; None if it takes none."""
        self.source, self.notes = "", tuple[str, ...]()
        self.example: Inputs = {}
        """The small inputs by which the model was traced and verified."""
        self._depth, self._lock, self._hooked = 0, threading.Lock(), ExitStack()
        self._foreign_hooks: ForeignHooks | None = None
        takes = inspect.signature(foreign.forward).parameters
        self._takes = {name: parameter.kind for name, parameter in takes.items()}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            if name not in _ELSEWHERE:
                raise
            raise AttributeError(f"{error}; here it is {_ELSEWHERE[name]}.") from None

    def _card(self) -> Card:
        return pretrained_card(self)

    def forward(self, *inputs: Tensor, real: Tensor | None = None, **options: Any) -> Tensor:
        """Run the foreign model.

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
        logits: Tensor | None = None
        if isinstance(output, Mapping):
            logits = output.get("logits")
        if logits is None:
            return tensor_of(output)
        return logits

    def arguments(
        self, *inputs: Tensor, real: Tensor | None = None, **options: Any
    ) -> dict[str, Any]:
        """Name the inputs as the foreign model does."""
        if any(isinstance(value, str) for value in (*inputs, *options.values())):
            raise WrongUsage("give ids, model(**model.inputs(text)), or attnlab.ask(model, text).")
        names = self.input_names
        if len(inputs) > len(names):
            raise WrongUsage(f"at most {len(names)} inputs have no name: {', '.join(names)}.")
        named = {**dict(zip(names, inputs, strict=False)), **options}
        if real is None:
            return named
        blocked = [name for name in _PADDING if name in self._takes]
        if blocked and self._main_input is None:
            named[blocked[0]] = ~real.bool()
        elif self.takes_padding:
            named["attention_mask"] = real.long()
        else:
            raise WrongUsage(
                f"{self.name} takes no mask of padding, so the texts of one call need one length; "
                "or let its forward take attention_mask, (batch, length), 0 at padding."
            )
        return named

    @property
    def takes_padding(self) -> bool:
        """Can texts of several lengths be read together, with a mask of their padding?"""
        takes_any = inspect.Parameter.VAR_KEYWORD in self._takes.values()
        return takes_any or not self._takes.keys().isdisjoint(("attention_mask", *_PADDING))

    @property
    def _main_input(self) -> str | None:
        """The first input of a model of transformers; None for another model."""
        return getattr(self.foreign, "main_input_name", None)

    @property
    def input_names(self) -> list[str]:
        """List the inputs that may come without a name, in their order."""
        if self._main_input is not None:
            return [str(self._main_input), "decoder_input_ids"]
        ordered = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [name for name, kind in self._takes.items() if kind is ordered]

    def last_alone(self, number: int) -> dict[str, int]:
        """Return the options that restrict the logits to the last positions; {} if there are
        none."""
        if "logits_to_keep" not in self._takes:
            return {}
        return {"logits_to_keep": number}

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
        return ForeignPredictor(self, self.input_names[0], {})

    def conditioned(self, source: Tensor, *, real: Tensor | None = None) -> ForeignPredictor:
        """Return a predictor of an encoder–decoder's target for a source, for one
        `attnlab.generate`."""
        if "decoder_input_ids" not in self._takes:
            raise WrongUsage(
                f"{self.name} has no decoder beside its encoder; generate from it itself."
            )
        return ForeignPredictor(self, "decoder_input_ids", self.arguments(source, real=real))

    inputs = text_inputs
    """The model's inputs for one text or several: `model(**model.inputs("a text"))`."""

    @cached_property
    def vocabulary(self) -> TokenNames | None:
        """The names of the token ids; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        size = getattr(text_config(self.foreign), "vocab_size", None) or 0
        return TokenNames(self.tokenizer, size)

    def add_site(self, path: str) -> str:
        """Make the output of a module of the foreign model a site, and return the site's name.

        path: as Python has it, `model.layers[3].mlp.down_proj`. Of an output with several tensors
        the site is the first. With `*` for anything, as in `model.layers[*].mlp`, all modules that
        match become sites; the returned pattern of their names says at the prompt how many, and
        has their `names`, and the modules `refused` with the reasons.

        Raises:
            WrongUsage: there is no such module; or it, or all of several, return no tensor, several
                in one pass, or one before the first block.
        """
        if isinstance(path, str) and "*" in path:
            return add_matching_sites(self, path, self.example)
        return add_site(self, path, self.example)

    def advice(self, name: str) -> str:
        """Say how a module's path becomes a site."""
        path = module_path(self, name.removesuffix(".output"))
        if path is None:
            return ""
        return f"it is a module, whose output becomes a site by model.add_site({path!r})."

    @property
    def entrance(self) -> nn.Module:
        """The foreign model: direct calls and `generate` start there."""
        return self.foreign

    def attention_points(self) -> Iterator[tuple[str, AttentionPoint]]:
        """List the hook points of all attentions with their paths."""
        for path, module in self.named_modules():
            if isinstance(module, AttentionPoint):
                yield path, module

    @contextmanager
    def while_hooked(self, sites: Collection[str] | None = None) -> Iterator[None]:
        """Keep hooks in the foreign model while the `with` lasts.

        sites: where; None for those that the hooks installed here are about.
        """
        with self._lock:
            self._depth += 1
            try:
                if self._foreign_hooks is None:
                    self._own = threading.local()
                    self._foreign_hooks = ForeignHooks(self, self._hooked)
                self._foreign_hooks.install(self._asked_sites() if sites is None else sites)
            except BaseException:
                self._release()
                raise
        try:
            yield
        finally:
            with self._lock:
                self._release()

    def _release(self) -> None:
        """Remove the hooks from the foreign model after the last `while_hooked`."""
        self._depth -= 1
        if not self._depth:
            self._hooked.close()
            self._foreign_hooks = None
            self._own = threading.local()  # releases the tensors of the last pass

    def _asked_sites(self) -> set[str] | None:
        """Return the sites that our hooks are about; None for all, also where there is no hook."""
        sites: set[str] = set()
        for path, hook in self._installed:
            if hook.sites is None:
                return None
            sites.update(site.removeprefix(f"{path}.") for site in hook.sites)
        return sites

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

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a copy, which has no hooks."""
        state = {**super().__getstate__(), "_depth": 0}
        for name in ("_lock", "_own", "_hooked", "_foreign_hooks"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore a copy, with a lock and a pass state of its own."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock, self._own, self._hooked = threading.Lock(), threading.local(), ExitStack()
        self._foreign_hooks = None
        remove_copied_hooks(self.foreign)


def _block_point(block: BlockStructure) -> BlockPoint:
    parts: dict[str, SitedModule] = {
        attention.name: _attention_point(attention) for attention in block.attentions
    }
    feed_forward = {"hidden": block.down, "output": block.adds}
    if any(feed_forward.values()):
        present_sites = [site for site, call in feed_forward.items() if call is not None]
        parts["feed_forward"] = BlockPoint(present_sites, {})
    last = {attention.name.startswith("cross"): attention.after for attention in block.attentions}
    streams = {
        "residual_before": block.place,
        "residual_between": last.get(False),
        "residual_after_cross": last.get(True),
        "residual_after": block.end,
    }
    sites = [site for site, call in streams.items() if block.place is not None and call is not None]
    return BlockPoint(sites, parts)


def _attention_point(attention: AttentionStructure) -> AttentionPoint:
    sites = ["mask", "scores", "weights"]
    if attention.backend != "softmax":
        sites = ["query", "key", "value", *sites]
    elif attention.shows_product:  # the softmax's scores do not say what is mixed
        sites = ["value", "weights"]
    else:
        sites = ["value", *sites]
    if attention.shows_heads:
        sites.append("heads")
    if attention.adds is not None:
        sites.append("output")
    num_heads, num_kv_heads = attention.num_heads, attention.num_kv_heads
    is_cross = attention.name.startswith("cross")
    point = AttentionPoint(sites, attention.backend, num_heads, num_kv_heads, is_cross)
    point.shows_product = attention.shows_product
    return point


@dataclass(frozen=True)
class Family:
    """What a family of models has in a block: paths of modules; None leaves one to tracing.

    Args:
        model_type: as in `config.json`.
        attention, cross_attention: the modules whose outputs are `attention.output` and
            `cross_attention.output`.
        down: the projection of the hidden layer back to d_model; its input is
            `feed_forward.hidden`.
        feed_forward: the module whose output is `feed_forward.output`.
    """

    model_type: str
    attention: str | None = None
    cross_attention: str | None = None
    down: str | None = None
    feed_forward: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.model_type, str) and self.model_type):
            raise WrongUsage(
                "a family is named by the model_type of config.json, such as 'gpt2'; got "
                f"{self.model_type!r}."
            )

    def corrected(self, structure: ModelStructure, foreign: nn.Module) -> ModelStructure:
        """Return a traced structure with the family's modules.

        Raises:
            WrongUsage: a block has no such module, or no block has any.
        """
        stacks = []
        for stack in structure.stacks:
            blocks = tuple(self._block(block, foreign) for block in stack.blocks)
            stacks.append(replace(stack, blocks=blocks))
        if not any(block.place is not None for stack in stacks for block in stack.blocks):
            raise WrongUsage(f"family {self.model_type!r}: tracing found no blocks in this model.")
        return ModelStructure(tuple(stacks))

    @property
    def sites(self) -> list[str]:
        """The ends of the names of the sites that it defines."""
        named = {
            ".attention.output": self.attention,
            ".cross_attention.output": self.cross_attention,
            ".feed_forward.hidden": self.down,
            ".feed_forward.output": self.feed_forward,
        }
        return [site for site, path in named.items() if path is not None]

    def _block(self, block: BlockStructure, foreign: nn.Module) -> BlockStructure:
        if block.place is None:
            return block
        names = dict(foreign.get_submodule(block.place.path).named_modules()).keys() - {""}

        def place(path: str | None, traced: ModuleCall | None) -> ModuleCall | None:
            if path is None or block.place is None:
                return traced
            if path not in names:
                raise WrongUsage(
                    f"family {self.model_type!r}: the block {block.place.path} has no module "
                    f"{path!r}; {did_you_mean(path, names)}"
                )
            return ModuleCall(f"{block.place.path}.{path}", block.place.number)

        attentions = []
        for attention in block.attentions:
            path = self.attention
            if attention.name.startswith("cross"):
                path = self.cross_attention
            attentions.append(replace(attention, adds=place(path, attention.adds)))
        down, adds = place(self.down, block.down), place(self.feed_forward, block.adds)
        return replace(block, attentions=tuple(attentions), down=down, adds=adds)


_FAMILIES: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Use a family for all models of its type that are opened from now on, in this process.

    Args:
        family: what differs in its models from what is found by itself.

    Raises:
        WrongUsage: it is no `Family`.
    """
    if not isinstance(family, Family):
        raise WrongUsage(f"a family is a Family(model_type, …); got {type_words(family)}.")
    _FAMILIES[family.model_type] = family


def family_of(foreign: nn.Module) -> Family | None:
    """Return the family registered for a model's type, or None."""
    return _FAMILIES.get(str(getattr(getattr(foreign, "config", None), "model_type", "")))
