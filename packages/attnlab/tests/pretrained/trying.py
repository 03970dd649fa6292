"""Models of the families with their hook points, made once and shared."""

import copy
import re
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property, partial
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import attnlab
from attnlab.pretrained.attach import attach
from attnlab.pretrained.attention_call import SOFTMAXES, BlockPoint
from attnlab.pretrained.backends import caches
from attnlab.pretrained.backends.registry import is_replaced
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.probe import probe_inputs
from tests.pretrained.families import FAMILIES


class Tried:
    """One model of a family: `foreign` with its hook points, `model`."""

    def __init__(self, family, dtype=torch.float32):
        self.family = family
        self.foreign = family.build().to(dtype)
        self.inputs = probe_inputs(self.foreign)
        self.model: Pretrained = attach(self.foreign)
        self.plain = self.run()

    @property
    def first_row(self):
        """The inputs without all rows but the first."""
        tensors = {name: value for name, value in self.inputs.items() if torch.is_tensor(value)}
        rows = {name: value[:1] if value.dim() else value for name, value in tensors.items()}
        return {**self.inputs, **rows}

    def run(self):
        """Run the model through its hook points."""
        with torch.no_grad():
            return self.model(**self.inputs)

    @cached_property
    def eager(self):
        """A copy that uses the family's own open attention."""
        return eager_copy(self.foreign)

    @cached_property
    def own_weights(self):
        """The weights that the family itself gives, in the order of the hook points."""
        if not self.family.gives_weights:
            return self._returned_weights()
        output = self.run_eager(output_attentions=True)
        encoder, decoder, cross = (
            list(output.get(f"{name}attentions") or ())
            for name in ("encoder_", "decoder_", "cross_")
        )
        if decoder:
            return [*encoder, *(each for both in zip(decoder, cross, strict=True) for each in both)]
        return list(output["attentions"])

    def _returned_weights(self):
        """What the attention modules of the eager copy return beside their output."""
        found: list[Tensor] = []
        with ExitStack() as stack:
            for _, plan in self.model.structure.attentions:
                module = self.eager.get_submodule(plan.place.path)
                hook = module.register_forward_hook(lambda _, args, output: found.append(output[1]))
                stack.callback(hook.remove)
            self.run_eager()
        return found

    @property
    def points(self):
        """Paths of the attentions, in the order in which they run."""
        return [path for path, _ in self.model.attention_points()]

    @property
    def blocks(self):
        """Paths of the blocks, in the order in which they run."""
        points = self.model.named_modules()
        blocks = [path for path, point in points if isinstance(point, BlockPoint)]
        return [path for path in blocks if not path.endswith("feed_forward")]

    def heads(self, point):
        """How many heads an attention has."""
        return dict(self.model.attention_points())[point].layout.num_heads

    def stacks(self):
        """Every stack by hand, with the paths of its blocks."""
        first, *others = self.family.anatomy
        sizes = [len(modules_of(self.foreign, each, "")) for each in others]
        start = len(self.blocks) - sum(
            sizes
        )  # layers that share their weights are one module in the first
        found = [(first, self.blocks[:start])]
        for anatomy, size in zip(others, sizes, strict=True):
            found.append((anatomy, self.blocks[start : start + size]))
            start += size
        return found

    def place(self, block):
        """Which stack a block is of by hand, and its number there."""
        return next(
            (anatomy, blocks.index(block)) for anatomy, blocks in self.stacks() if block in blocks
        )

    def run_eager(self, **options):
        """Run the copy that uses the family's own open attention."""
        with torch.no_grad(), _mended(self.family.name):
            return self.eager(**self.inputs, **options)

    def own(self, where):
        """What a hook at a part of every block sees, by the path of the block."""
        seen: dict[str, Tensor] = {}

        def keep(blocks, value, block):
            seen[blocks[block]] = value.detach().clone()

        with ExitStack() as stack:
            for anatomy, blocks in self.stacks():
                if where(anatomy):
                    kept = partial(keep, blocks)
                    stack.enter_context(changed_at(self.foreign, anatomy, where(anatomy), kept))
            self.run()
        return seen


@cache
def tried(name, dtype=torch.float32):
    """Make the model of a family once."""
    return Tried(FAMILIES[name], dtype)


def logits_of(output):
    """Return what a model of transformers put out."""
    return output["logits"] if "logits" in output else next(iter(output.values()))


def eager_copy(foreign):
    """Copy a model, and have it use its own open attention."""
    copied = copy.deepcopy(foreign)
    copied.set_attn_implementation("eager")
    if (
        copied.config._attn_implementation != "eager"
    ):  # falcon refuses to be asked, and goes by the setting
        copied.config._attn_implementation = "eager"
    return copied


def modules_of(foreign, anatomy, below):
    """List the modules of a part, block by block."""
    pattern = re.escape(anatomy.blocks).replace(r"\*", r"\d+") + (
        re.escape(f".{below}") if below else ""
    )
    found = [module for path, module in foreign.named_modules() if re.fullmatch(pattern, path)]
    assert found, f"no module matches {anatomy.blocks} {below}"
    return found


def split(where):
    """Read "in PATH@1/2" as when, path, and which of the calls."""
    when, _, path = where.rpartition(" ")
    path, _, which = path.partition("@")
    first, _, step = which.partition("/")
    return when, path, slice(int(first or 0), None, int(step or 1))


@contextmanager
def changed_at(foreign, anatomy, where, change):
    """Pass what goes in or comes out through `change(value, block)`; None leaves it."""
    when, path, which = split(where)
    calls = [0]

    def number():
        calls[0] += 1
        chosen = range(calls[0])[which]
        return len(chosen) - 1 if calls[0] - 1 in chosen else None

    def before(_, args, kwargs):
        block = number()
        by_name = "hidden_states" in kwargs
        value = kwargs["hidden_states"] if by_name else args[0]
        new = None if block is None else change(value, block)
        if new is None:
            return None
        return (args, {**kwargs, "hidden_states": new}) if by_name else ((new, *args[1:]), kwargs)

    def after(_, args, output):
        block = number()
        is_one_of = isinstance(output, tuple | list | Mapping)
        new = None if block is None else change(output[0] if is_one_of else output, block)
        if new is None:
            return None
        return type(output)((new, *output[1:])) if is_one_of else new

    with ExitStack() as stack:
        for module in modules_of(foreign, anatomy, path):
            hook = (
                module.register_forward_pre_hook(before, with_kwargs=True)
                if when == "in"
                else module.register_forward_hook(after)
            )
            stack.callback(hook.remove)
        yield


def head_zeroed(each, point, head):
    """Zero a head's slice before the output projection of its attention."""
    anatomy, number = each.place(point.rpartition(".")[0])
    projection = anatomy.cross if point.endswith("cross_attention") else anatomy.projection

    def zero(value, block):
        if block != number:
            return None
        width = value.shape[-1] // each.heads(point)
        return value.clone().index_fill(-1, torch.arange(head * width, (head + 1) * width), 0.0)

    return changed_at(each.foreign, anatomy, f"in {projection}", zero)


class InFull(TorchFunctionMode):
    """Computes every softmax in the dtype of its scores."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in SOFTMAXES and kwargs.get("dtype") == torch.float32:
            kwargs = {**kwargs, "dtype": args[0].dtype}
        return func(*args, **kwargs)


@contextmanager
def _mended(name):
    """Undo a mistake of transformers: falcon's eager attention adds ALiBi twice."""
    if name != "falcon (ALiBi)":
        yield
        return
    from transformers.models.falcon import modeling_falcon

    made = modeling_falcon.build_alibi_tensor
    with mock.patch.object(
        modeling_falcon, "build_alibi_tensor", lambda *args, **named: made(*args, **named) / 2
    ):
        yield


def recorded_weights(each):
    """The weights of all attentions as a recording has them, and the output of that pass."""
    with attnlab.record(each.model, "*.weights") as recording:
        output = each.run()
    return [recording[f"{point}.weights"] for point in each.points], output


def furthest(found, expected):
    """The largest difference of any two tensors."""
    return max(difference(one, other) for one, other in zip(found, expected, strict=True))


def same(each):
    """Edits that open every attention, and change nothing."""
    return [
        attnlab.edits.Temperature(site=point, head=head, temperature=1.0)
        for point in each.points
        for head in range(each.heads(point))
    ]


def difference(found, expected):
    """The largest difference of two tensors."""
    assert found.shape == expected.shape, f"{tuple(found.shape)} against {tuple(expected.shape)}"
    return float((found - expected).abs().max())


@contextmanager
def broken_off(each, point, number, error):
    """Have a call of an attention's module, counted from 1, fail in the middle of its pass."""
    calls = [0]
    module = each.foreign.get_submodule(dict(each.model.structure.attentions)[point].place.path)

    def fail(*_):
        calls[0] += 1
        if calls[0] == number:
            raise error

    hook = module.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()


def installed_hooks(model):
    """What stands in a model or in the program that was not there before anybody looked."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    found = []
    for path, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            found.append(path)
    found += list(ALL_ATTENTION_FUNCTIONS._local_mapping) + ["covered"] * is_replaced()
    found += ["caches"] * bool(caches._originals)
    return found + ["a mode"] * torch._C._len_torch_function_stack()
