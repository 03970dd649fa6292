"""The hook that records: it keeps the values at chosen sites, and changes nothing.

Weights and scores are not computed while the model runs: the recorder keeps the queries, keys and
mask of each attention, and leaves the fused kernel in place. Where an edit opens the attention, or
gradients of weights are recorded, it keeps the weights that the model uses.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attnlab.core.sizes import count_bytes
from attnlab.core.store import JsonObject
from attnlab.errors import CouldNotRun, WrongUsage, model_words, not_none, type_words
from attnlab.look.inputs import Call, is_text
from attnlab.look.readers import model_name, reader_of
from attnlab.look.recording.budget import Budget, to_bytes
from attnlab.look.recording.contents import HAS_KEYS, MADE, Passed, Store, tensors_of
from attnlab.look.recording.kept_call import GrowingTensor, KeptCall, KeptMask, TensorPrefix
from attnlab.look.recording.named_sites import matching_sites, named_sites
from attnlab.look.recording.recording import Recording
from attnlab.look.recording.tokens import StackRead, Vocabulary, stack_of, vocabulary_of
from attnlab.models.storage import MODELS, describe_model
from attnlab.pretrained.model import Pretrained
from attnlab.sites import (
    AttentionCall,
    Hook,
    StackInput,
    in_backward,
    installed,
    parts_of,
    site_of,
    site_suffix,
)


class Reduction(Protocol):
    """The argument `reduce=`: it keeps something smaller of an attention than its weights."""

    def reduce(self, call: AttentionCall) -> Any:
        """Reduce an attention that is about to be computed."""

    def of_weights(self, weights: Tensor) -> Any:
        """Reduce weights that are already computed, (batch, head, query, key)."""


def record(
    model: nn.Module,
    inputs: Any = None,
    sites: str | Sequence[str] | None = None,
    *,
    reduce: Reduction | None = None,
    gradients: bool | str | Sequence[str] | None = None,
    budget: int | str | None = None,
    vocabulary: Vocabulary | None = None,
    keep_on: torch.device | str = "cpu",
) -> Recording:
    """Record a model on inputs at once, or the sites that a pattern names within a `with`.

    In one call, or around calls of your own::

        recording = record(model, "When John and Mary went")      # or tokens: everything
        with record(model, "layers.*.attention.weights") as recording:
            model(tokens)

    Args:
        model: any module built of attnlab's parts, or what `attnlab.load` returns.
        inputs: what the model reads: a text, token ids, a tuple (source, target) or a mapping of
            named inputs; the model of a run is recorded over its whole answer to a text. Or names
            of sites, with `*` for anything: these are recorded within a `with`.
        sites: the sites to record of inputs, with `*` for anything; None for everything.
        reduce: keep its result instead of the weights, such as a summary.
        gradients: keep gradients, too, of all recorded sites or of those that match; they arrive
            when `backward` is called. Those of scores or weights make attention compute these
            explicitly.
        budget: the size limit in bytes or as "2 GiB"; None for half of the available memory.
        vocabulary: the name of each token id: a sequence, a mapping or a function; None for the
            model's own, if any.
        keep_on: the device where values are kept; each is moved there as it passes.

    Returns:
        a mapping from sites to values, with the names of the tokens; within a `with` it fills as
        the model runs.

    Raises:
        WrongUsage: a pattern that matches nothing, or invalid arguments.
        CouldNotRun: a value would not fit in the budget; within a `with` it is raised from the
            model's call.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> recording = record(model, tokens, "*.weights")
    >>> recording["layers.0.attention.weights"].shape  # (batch, head, query, key)
    torch.Size([1, 4, 4, 4])
    """
    if not isinstance(model, nn.Module):
        raise WrongUsage(f"record takes a torch module, then its inputs; got {model_words(model)}.")
    chosen, one_pass = named_sites(inputs, model), None
    if chosen is None:
        if gradients not in (None, False):
            raise WrongUsage(
                "gradients arrive when backward() is called: name the sites, run the model within "
                "a with, and call backward() there."
            )
        model, one_pass = pass_of(inputs, model)
        chosen = matching_sites("*" if sites is None else sites, model)
    elif sites is not None:
        raise WrongUsage(f"sites= goes with inputs, but {inputs!r} names sites already.")
    wanted = _gradient_sites(gradients, chosen, model)
    chosen = list(dict.fromkeys([*chosen, *wanted]))
    _check(reduce, chosen, wanted)
    device, vocabulary = _device(keep_on), vocabulary_of(model, vocabulary)
    limit = Budget(to_bytes(budget, device))
    store = Store(
        tuple(chosen), limit, vocabulary, _description(model), gradients=frozenset(wanted)
    )
    recording = Recording(store, _hooked(model, store, reduce, device))
    if one_pass is None:
        return recording
    call, words = one_pass
    with recording, torch.no_grad():
        call(model)
    return recording.named(words) if words else recording


def _gradient_sites(
    gradients: bool | str | Sequence[str] | None, sites: Sequence[str], model: nn.Module
) -> list[str]:
    """List the sites whose gradients are recorded."""
    if gradients in (None, False):
        return []
    if gradients is True:
        return [site for site in sites if not site.endswith("mask")]
    return matching_sites(gradients, model)  # type: ignore[arg-type]  # patterns


def pass_of(
    inputs: Any, model: nn.Module
) -> tuple[nn.Module, tuple[Call, Mapping[str, Sequence[str]]]]:
    """Return the model that reads the inputs, its call, and the names of the tokens if known."""
    reader = reader_of(model)
    if isinstance(inputs, str) and reader is not None:
        question = reader.ask(model, inputs)
        arguments, options, words = question.pass_inputs()
        return question.model, (Call(arguments, options, 1), words)
    if isinstance(model, Pretrained) and is_text(inputs):
        named = model.inputs(inputs)
        return model, (Call((), named, len(named["input_ids"])), {})
    return model, (Call.of(inputs, model), {})


@contextmanager
def _hooked(
    model: nn.Module, store: Store, reduce: Reduction | None, device: torch.device
) -> Iterator[None]:
    """Record into the store within the `with`."""
    recorder = _Recorder(model, store, reduce, device)
    explicit = [site for site in sorted(store.gradients) if site_suffix(site) in MADE]
    forcing = installed(model, _MakesExplicit(explicit)) if explicit else nullcontext()
    with forcing, installed(model, recorder):
        try:
            yield
        finally:
            recorder.end()


class _Recorder(Hook):
    """Records a model at every hook point."""

    changes = False
    one_thread = True

    def __init__(
        self, model: nn.Module, store: Store, reduce: Reduction | None, keep_on: torch.device
    ) -> None:
        self._store, self._reduce, self._keep_on = store, reduce, keep_on
        self._points = [part for _, part in parts_of(model)]
        self._installed: list[Any] = []
        self.sites = frozenset(store.sites)
        # The mask is taken from the call: at its hook point "causal" would become a tensor.
        self._visited = frozenset(site for site in store.sites if site_suffix(site) != "mask")
        self._asked: dict[str, set[str]] = {}
        for site in store.sites:
            part, _, name = site.rpartition(".")
            self._asked.setdefault(part, set()).add(name)
        self._stacks: dict[str, int] = {}
        self._sides: dict[str, tuple[int | None, int | None]] = {}
        self._cross: set[str] = set()  # attentions that turned out to be cross-attention
        self._masks: dict[str, KeptMask | None] = {}
        self._now: dict[str, tuple[Tensor, Tensor | TensorPrefix]] = {}  # of the running attention
        self._before: dict[str, Tensor | TensorPrefix] = {}
        self._last_mask: Tensor | None = None

    def wants(self, site: str) -> bool:
        return site in self._visited

    def read(self, part: str, reading: StackInput) -> None:
        self._look_around()
        name, tokens = site_of(part, "tokens"), reading.tokens
        ids = real = rows = None
        if not tokens.is_floating_point():
            ids = self._kept(tokens, name, "cpu")
        if reading.real is not None:
            real = self._kept(reading.real, name, "cpu")
        before = self._number_before(part, reading)
        if before is not None and reading.rows is not None:
            rows = reading.rows.cpu()
        shape, edits = (tokens.shape[0], tokens.shape[1]), self._store.edits
        places = reading.places
        read = StackRead(
            part, ids, shape, reading.offset, real, before, edits, rows=rows, places=places
        )
        self._stacks[part] = len(self._store.reads)
        self._store.reads.append(read)
        self._sides.clear()

    def watch(self, part: str, call: AttentionCall) -> None:
        if in_backward():  # activation checkpointing computes again what was recorded
            return
        names = self._asked.get(part)
        if call.is_cross and part not in self._cross:
            # from now on, and in what was just recorded too
            self._cross.add(part)
            self._sides.pop(part, None)
            for name in ("query", "key", "value"):
                if passed := self._store.passed.get(site_of(part, name)):
                    passed[-1].key = self._sides_of(part)[1]
        if names is not None:
            self._look_at(part, call, names)
        self._now = {}

    def visit(self, site: str, value: Tensor) -> Tensor:
        if in_backward():
            return value
        part, _, name = site.rpartition(".")
        if name == "weights" and self._reduce is not None:
            self._add_reduced(site, self._reduce.of_weights(value.detach()), part)
            return value
        is_shared = name in ("query", "key", "value")
        held = self._kept_once(part, name, value, site) if is_shared else self._kept(value, site)
        passed = self._add(site, held, part)
        if site in self._store.gradients and value.requires_grad:
            self._store.budget.take(site, value.nbytes)
            passed.awaits = True
            value.register_hook(partial(self._add_gradient, passed))  # type: ignore[no-untyped-call]
        return value

    def end(self) -> None:
        """Release the model and the values that were kept only for comparison."""
        self._points, self._installed, self._last_mask = [], [], None
        self._now, self._before, self._masks = {}, {}, {}

    def _number_before(self, part: str, reading: StackInput) -> int | None:
        """Return the number of the recorded read that this one continues, or None."""
        number = self._stacks.get(part)
        if number is None or not reading.offset:
            return None
        last, rows = self._store.reads[number], reading.rows
        num_rows, length = last.shape
        if last.offset + length != reading.offset:
            return None
        if rows is None:
            rows = torch.arange(num_rows)
        are_there = (rows >= 0) & (rows < num_rows)
        if len(rows) != len(reading.tokens) or not bool(are_there.all()):
            return None
        return number

    def _look_around(self) -> None:
        """Note the edits of the other hooks, if the hooks have changed."""
        standing = [point._installed for point in self._points]
        if standing != self._installed:
            self._installed = standing
            hooks = dict.fromkeys(place.hook for place in chain.from_iterable(standing))
            self._store.edits = tuple(chain.from_iterable(hook.describe() for hook in hooks))

    def _look_at(self, part: str, call: AttentionCall, wanted: set[str]) -> None:
        self._store.heads[part] = call.query.shape[1]
        mask = self._kept_mask(part, call, wanted)
        self._masks[part] = mask
        if mask is not None and "mask" in wanted and mask.mask is not None:
            self._add(site_of(part, "mask"), mask, part)
        if call.is_explicit:
            return
        names = [name for name in MADE if name in wanted]
        if "weights" in names and self._reduce is not None:
            names.remove("weights")
            self._add_reduced(site_of(part, "weights"), self._reduce.reduce(call), part)
        if not names:
            return
        site = site_of(part, names[0])
        query = self._kept_once(part, "query", call.query, site)
        key = self._kept_once(part, "key", call.key, site)
        assert isinstance(query, Tensor)
        for name in names:
            held = KeptCall(query, key, not_none(mask), call.scale, name)
            self._add(site_of(part, name), held, part)

    def _add(self, site: str, held: Any, part: str) -> Passed:
        if not self._store.reads:
            self._look_around()
        passed = Passed(held, *self._sides_of(part))
        if site_suffix(site) in HAS_KEYS:
            passed.mask = self._masks.get(part)
        self._store.passed.setdefault(site, []).append(passed)
        return passed

    def _add_reduced(self, site: str, value: Any, part: str) -> None:
        self._store.budget.take(site, count_bytes(tensors_of(value)))
        self._add(site, _moved(value, self._keep_on), part)

    def _sides_of(self, part: str) -> tuple[int | None, int | None]:
        """Return the numbers of the reads of a part's queries and keys."""
        if part not in self._sides:
            query = key = stack_of(part, self._stacks)
            if (part in self._cross or part.endswith("cross_attention")) and query is not None:
                above, _, stack_name = self._store.reads[query].part.rpartition(".")
                key = (
                    self._stacks.get(site_of(above, "encoder")) if stack_name == "decoder" else None
                )
            self._sides[part] = query, key
        return self._sides[part]

    def _kept_once(self, part: str, name: str, value: Tensor, site: str) -> Tensor | TensorPrefix:
        """Keep a query, key or value once for all sites that need it."""
        if name in self._now and self._now[name][0] is value:
            return self._now[name][1]
        held: Tensor | TensorPrefix | None = None
        number = self._sides_of(part)[0]
        if number is not None and self._store.reads[number].offset:
            held = self._grown(self._before.get(site_of(part, name)), value, site)
        if held is None:
            held = self._kept(value, site)
        self._now[name] = value, held
        if name != "query":
            self._before[site_of(part, name)] = held
        return held

    def _grown(
        self, before: Tensor | TensorPrefix | None, value: Tensor, site: str
    ) -> TensorPrefix | None:
        """Keep only the new keys or values under a cache, if they continue the held ones
        exactly."""
        if before is None:
            return None
        is_own = isinstance(before, TensorPrefix)
        if not isinstance(before, TensorPrefix):
            before = TensorPrefix(GrowingTensor(before), before.shape[-2])
        grown, length = before
        moved = value.detach().to(self._keep_on)
        if not grown.goes_on(moved, length):
            return None
        room = grown.room_for(moved.shape[-2])
        if room:
            self._store.budget.take(site, room)
            if is_own:
                self._store.budget.give(site, grown.store.nbytes)
        grown.write(moved, length)
        return TensorPrefix(grown, moved.shape[-2])

    def _kept_mask(self, part: str, call: AttentionCall, names: set[str]) -> KeptMask | None:
        if names.isdisjoint(HAS_KEYS):
            return None
        mask = call.mask
        if isinstance(mask, Tensor):
            is_reduced = self._reduce is not None and names.isdisjoint(("scores", "mask"))
            if is_reduced and mask.shape[-2] > 1:
                return None  # a mask for all pairs would be larger than what is kept of the weights
            # Layers mostly share one mask, or make the same one anew.
            if self._last_mask is None or not _is_same(mask, self._last_mask):
                self._last_mask = self._kept(mask, site_of(part, "mask"))
            mask = self._last_mask
        return KeptMask(mask, call.query.shape[-2], call.key.shape[-2], self._keep_on)

    def _kept(self, value: Tensor, site: str, device: torch.device | str | None = None) -> Tensor:
        self._store.budget.take(site, value.nbytes)
        return _copied(value, device or self._keep_on)

    def _add_gradient(self, passed: Passed, gradient: Tensor) -> None:
        moved = _copied(gradient, self._keep_on)
        if passed.gradient is not None:
            moved = passed.gradient + moved
        passed.gradient = moved


class _MakesExplicit(Hook):
    """Makes attention compute scores and weights explicitly, and changes nothing."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.sites: frozenset[str] = frozenset(sites)

    def wants(self, site: str) -> bool:
        return site in self.sites


def _check(reduce: Reduction | None, sites: Sequence[str], gradients: Sequence[str]) -> None:
    if reduce is None:
        return
    if not (hasattr(reduce, "reduce") and hasattr(reduce, "of_weights")):
        raise WrongUsage(f"reduce needs reduce() and of_weights(); got {type_words(reduce)}.")
    weights = [site for site in sites if site_suffix(site) == "weights"]
    if not weights:
        raise WrongUsage("reduce is for weights, but no weights are among the recorded sites.")
    both = sorted(set(weights) & set(gradients))
    if both:
        raise WrongUsage(f"{both[0]} cannot be reduced and have its gradient recorded.")


def _device(name: torch.device | str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise CouldNotRun(f"values cannot be kept on {name!r}: {reason}") from None
    return device


def _description(model: nn.Module) -> JsonObject:
    if any(type(model) is cls for cls, _ in MODELS.values()):
        labels = getattr(model, "head_labels", None)
        named = {} if reader_of(model) is None else {"name": model_name(model)}
        return describe_model(model) | named | ({"heads": dict(labels)} if labels else {})
    if isinstance(model, Pretrained):
        kind = type(model.foreign).__name__
        return {"kind": kind if model.name == kind else f"{model.name}, {kind}"}
    return {"kind": type(model).__name__}


def _is_same(mask: Tensor, kept: Tensor) -> bool:
    if torch._C._are_functorch_transforms_active() or mask.dtype != kept.dtype:
        return False
    return torch.equal(mask.detach().to(kept.device), kept)


def _copied(value: Tensor, device: torch.device | str) -> Tensor:
    """Copy a value even if it is in place already: it may be a view, or be changed later."""
    # Autograd takes no tensor of inference mode, but a copy that is made outside of it.
    with torch.inference_mode(mode=False) if value.is_inference() else nullcontext():
        return value.detach().to(device, copy=True, memory_format=torch.contiguous_format)


def _moved(value: Any, device: torch.device) -> Any:
    """Move the tensors of a value: itself, or the fields of a NamedTuple."""
    if isinstance(value, Tensor):
        return value.detach().to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(field, device) for field in value))
    return value
