"""The inputs of a model, in one form for a tensor of ids, for a source and a target, and for inputs
with padding."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeGuard, cast

import torch
from torch import Tensor, nn

from attnlab.display import short
from attnlab.errors import WrongUsage, is_integer, type_words
from attnlab.look.indices import has_integers
from attnlab.look.readers import reader_of
from attnlab.parts.masks import Mask, real_positions
from attnlab.pretrained.model import Pretrained

Inputs: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, object] | str | Sequence[str]
"""A tensor, a tuple of them (source, target), or the model's inputs by name (tokens=, real=, mask=
…); for a pretrained model, or one of a run, also a text, or several of as many tokens."""

_OF_ROWS = ("attention_mask", "padding_mask")
"""The names of padding masks (batch, length) in foreign models."""

_OF_IMAGES = ("pixel_values", "pixel_attention_mask", "image_grid_thw", "image_sizes")
"""Arguments of chat models that may have several rows, of images or patches, for each input."""


@dataclass(frozen=True)
class Call:
    """The arguments of one forward pass, and their number of rows (inputs of the batch)."""

    arguments: tuple[Tensor, ...]
    options: Mapping[str, object]
    num_rows: int

    @classmethod
    def of(cls, inputs: "Inputs | Call", model: nn.Module | None = None) -> Self:
        """Make a call of a user's inputs; texts are tokenized by the model's tokenizer.

        Raises:
            WrongUsage: no tensor, no rows, or tensors with different numbers of rows; texts of
                unequal lengths.
        """
        if isinstance(inputs, cls):
            return inputs
        if is_text(inputs) and model is not None:
            inputs = read_texts(inputs, model)
        arguments, options = _sorted(inputs)
        tensors = [value for value in (*arguments, *options.values()) if isinstance(value, Tensor)]
        first: Any = options.get("input_ids", next(iter(tensors), None))
        num_rows = len(first) if isinstance(first, Tensor) and first.dim() else 0
        if not num_rows or not all(isinstance(argument, Tensor) for argument in arguments):
            raise WrongUsage(
                "inputs are a tensor, a tuple of tensors such as (source, target), or a mapping "
                f'such as {{"tokens": tokens, "mask": mask}}, with a row; got {short(inputs)}.'
            )
        call = cls(arguments, options, num_rows)
        call._check_rows()
        return call

    def __call__(self, model: nn.Module) -> Tensor:
        """Run the model, and return its logits or output vectors."""
        try:
            output = model(*self.arguments, **self.options)
        except TypeError:
            self._check_fits(model)
            raise
        except IndexError as error:
            self._check_ids(model, error)
            raise
        if not isinstance(output, Tensor):  # a single head returns an Attention
            output = getattr(output, "output", None)
        if not isinstance(output, Tensor):
            raise WrongUsage(f"{type(model).__name__} returns no tensor to measure.")
        return output

    @property
    def real(self) -> Tensor | None:
        """The tokens that are not padding, of the sequence that the output belongs to: (batch,
        length)."""
        names: tuple[str, ...] = ("real", "attention_mask")
        mask = "mask"
        if len(self.arguments) > 1 or {"target", "decoder_input_ids"} & set(self.options):
            names, mask = ("decoder_attention_mask",), "target_mask"  # the others are of the source
        for name in names:
            mask_tensor = self.options.get(name)
            if isinstance(mask_tensor, Tensor):
                return mask_tensor.bool() if mask_tensor.dim() == 2 else None
        return real_positions(cast(Mask, self.options.get(mask)), self.num_rows)

    def ids_of(self, stack: str) -> Tensor | None:
        """Return the ids (row, length) that a stack reads; None if it reads none."""
        place = int(stack == "decoder" and len(self.arguments) > 1)
        names = ("target", "decoder_input_ids") if stack == "decoder" else ("source", "input_ids")
        ids: Any = self.arguments[place] if place < len(self.arguments) else None
        for name in (*names, "tokens"):
            ids = self.options.get(name, ids)
        is_ids = isinstance(ids, Tensor) and ids.dim() == 2 and has_integers(ids)
        return ids.cpu() if is_ids else None

    def repeated(self, times: int) -> "Call":
        """Repeat all rows `times` times: row r of copy c is row c · num_rows + r."""
        return self.rows(torch.arange(self.num_rows).repeat(times))

    def rows(self, chosen: slice | Tensor) -> "Call":
        """Keep some rows."""
        index = torch.arange(self.num_rows)[chosen]

        def kept(name: str, value: Any) -> Any:
            if not _has_rows(name, value):
                return value
            if name in _OF_IMAGES:
                of_inputs = value.unflatten(0, (self.num_rows, -1))
                return of_inputs[index.to(value.device)].flatten(0, 1)
            return value[index.to(value.device)]

        arguments = tuple(kept("", argument) for argument in self.arguments)
        options = {name: kept(name, option) for name, option in self.options.items()}
        return Call(arguments, options, len(index))

    def copies(self) -> Tensor:
        """Number the rows, (row,), equal rows with the same number."""
        numbers = []
        for tensor in self._of_rows().values():
            numbers.append(_numbered(tensor.reshape(self.num_rows, -1)).cpu())
        return _numbered(torch.stack(numbers, 1))

    def portions(self, size: int) -> "list[tuple[slice, Call]]":
        """Split the rows evenly into runs of `size` or slightly more, each with its slice."""
        number = max(1, self.num_rows // size)
        if number == 1:
            return [(slice(0, self.num_rows), self)]
        portions, start = [], 0
        for index in range(1, number + 1):
            span = slice(start, self.num_rows * index // number)
            portions.append((span, self.rows(span)))
            start = span.stop
        return portions

    def _of_rows(self) -> dict[str, Tensor]:
        """Return the arguments that have a row for each input, or several; by name or number."""
        named = {str(number): argument for number, argument in enumerate(self.arguments)}
        tensors = {}
        for name, value in {**named, **self.options}.items():
            if isinstance(value, Tensor) and _has_rows(name, value):
                tensors[name] = value
        return tensors

    def _check_rows(self) -> None:
        """Raise unless every argument has as many rows, or as many images for each."""
        for name, tensor in self._of_rows().items():
            rows = len(tensor)
            if rows % self.num_rows if name in _OF_IMAGES else rows != self.num_rows:
                raise WrongUsage(
                    "inputs need the same number of rows, or of images for each; got "
                    f"{self.num_rows} and {rows}."
                )

    def _check_ids(self, model: nn.Module, error: IndexError) -> None:
        """Raise if an id or a position may be beyond a table of the model."""
        tables = []
        for path, module in model.named_modules():
            if isinstance(module, nn.Embedding):
                tables.append(f"{path.removeprefix('foreign.')} has {module.num_embeddings:,}")
        tensors = list(filter(has_integers, self._of_rows().values()))
        if tables and tensors and "out of range" in str(error):
            ids = torch.cat([tensor.flatten().cpu() for tensor in tensors])
            raise WrongUsage(
                f"an id or a position is beyond an embedding of {type(model).__name__}: the inputs "
                f"have ids from {int(ids.min()):,} to {int(ids.max()):,} and up to "
                f"{max(tensor.shape[-1] for tensor in tensors):,} positions, and "
                f"{', '.join(tables)} rows."
            ) from error

    def _check_fits(self, model: nn.Module) -> None:
        """Raise unless the model's forward takes these arguments."""
        signature = inspect.signature(model.forward)
        try:
            signature.bind(*self.arguments, **self.options)
        except TypeError as error:
            parameters = signature.parameters.items()
            needed = [
                name for name, parameter in parameters if parameter.default is parameter.empty
            ]
            got = [*map(type_words, self.arguments), *map("{}=".format, self.options)]
            raise WrongUsage(
                f"the inputs of {type(model).__name__} are ({', '.join(needed)}); got "
                f"{', '.join(got)}: {error}."
            ) from error


def foreign_of(model: nn.Module) -> nn.Module:
    """Return the foreign model within a pretrained one; a model of ours is returned itself."""
    return model.foreign if isinstance(model, Pretrained) else model


def places_of(position: Any, num_rows: int, length: int, real: Tensor | None = None) -> Tensor:
    """Return the index of a position in each row, (row,), from 0.

    Args:
        position: an integer, or one for each row; negative ones count from the end of each row's
            own tokens.
        num_rows, length: of the inputs.
        real: (row, length), False at padding; None, or another shape, without padding.

    Raises:
        WrongUsage: it is something else, or a row has no such position.
    """
    try:
        places = torch.as_tensor(position).cpu()
    except (TypeError, ValueError, RuntimeError):
        places = torch.tensor(0.5)
    if not has_integers(places) or places.shape not in ((), (num_rows,)):
        raise WrongUsage(f"position is an integer or {num_rows} of them; got {position!r}.")
    ends = torch.full((num_rows,), length)
    if real is not None and real.shape == (num_rows, length):
        ends = length - real.flip(1).int().argmax(1).to(ends)
    positions = torch.where(places < 0, places + ends, places)
    if bool(((positions < 0) | (positions >= length)).any()):
        raise WrongUsage(f"position must be from {-int(ends.min())} to {length - 1}: {position!r}.")
    return positions


def _sorted(inputs: Any) -> tuple[tuple[Any, ...], dict[str, object]]:
    """Return inputs in order, and by name."""
    if isinstance(inputs, list | tuple) and _are_ids(inputs):
        inputs = torch.tensor(inputs)
    if isinstance(inputs, Tensor):
        is_row = inputs.dim() == 1 and has_integers(inputs)
        return (inputs.unsqueeze(0) if is_row else inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        return tuple(inputs), {}
    return (), {}


def _are_ids(values: Sequence[Any]) -> bool:
    """Are these ids of one input, or of several of one length?"""
    if values and all(isinstance(value, list | tuple) for value in values):
        lengths = set(map(len, values))
        return len(lengths) == 1 and all(map(_are_ids, values))
    return bool(values) and all(map(is_integer, values))


def _numbered(rows: Tensor) -> Tensor:
    numbers: Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    return numbers


def is_text(inputs: Any) -> TypeGuard[str | Sequence[str]]:
    """Are these inputs a text or several?"""
    is_list = isinstance(inputs, Sequence) and len(inputs) > 0
    return isinstance(inputs, str) or (is_list and all(isinstance(text, str) for text in inputs))


def texts_of(inputs: Any) -> list[str]:
    """Return inputs that are a text or several as a list; of all else an empty one."""
    if not is_text(inputs):
        return []
    return [inputs] if isinstance(inputs, str) else list(inputs)


def read_texts(texts: str | Sequence[str], model: nn.Module) -> Inputs:
    """Return a model's inputs for texts: the ids alone if nothing else is needed.

    Raises:
        WrongUsage: the texts differ in their numbers of tokens, or the model reads ids alone.
    """
    reader = reader_of(model)
    if reader is not None:
        return _joined([reader.ask(model, text).prompt_inputs() for text in texts_of(texts)])
    if not isinstance(model, Pretrained):
        raise WrongUsage(
            f"inputs are a tensor of ids (row, length): this {type(model).__name__} does not know "
            "the names of its tokens; load it from its run, which does."
        )
    tensors = model.inputs(texts)
    real = tensors.get("attention_mask")
    if real is not None and not bool(real.all()):
        lengths = real.sum(-1).tolist()
        raise WrongUsage(
            f"the texts have {min(lengths)} to {max(lengths)} tokens, and positions are the same "
            "in all: give texts with the same number of tokens, or model.inputs(texts) with a "
            "position for each."
        )
    if tensors.keys() <= {"input_ids", "attention_mask"}:
        return tensors["input_ids"]
    return tensors


def _joined(every: Sequence[Mapping[str, Tensor]]) -> dict[str, object]:
    """Join the inputs of several texts, row by row."""
    for other in every:
        for name, tensor in other.items():
            if tensor.shape != every[0][name].shape:
                raise WrongUsage("the texts have different numbers of tokens; give equally many.")
    return {name: torch.cat([tensors[name] for tensors in every]) for name in every[0]}


def _has_rows(name: str, value: object) -> bool:
    """Does an argument have a row for each input? Masks (query, key), (head, query, key) or (1, …)
    are for all rows."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return False
    if name in _OF_IMAGES or (name.endswith(_OF_ROWS) and value.dim() == 2):
        return True
    return not name.endswith("mask") or (value.dim() == 4 and value.shape[0] > 1)
