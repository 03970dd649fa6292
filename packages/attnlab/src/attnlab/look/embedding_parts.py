"""The embedding, taken apart into tokens, positions and what else a model adds before its first
block."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.look.anatomy import are_close
from attnlab.look.inputs import foreign_of
from attnlab.look.readout import FrozenNorm, StreamWriter, is_norm
from attnlab.models.embedding import Embedding
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.tracing import first_tensor


@dataclass
class EmbeddingParts:
    """What embeddings and norms gave in one pass: names with outputs · norms with inputs and
    outputs."""

    outputs: list[tuple[str, Tensor]] = field(default_factory=list)
    norms: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)

    @torch.no_grad()
    def split(
        self, start: str, embedding: Tensor, places: Tensor
    ) -> tuple[list[StreamWriter], Tensor]:
        """Split the embedding (1, length, d_model) of one input at some positions: writers, and
        what each wrote, (writer, position, d_model). One that is no sum, or a norm of one, stays
        whole.

        start: its site.
        """
        whole = embedding[0, places]
        summed = self._summed(embedding, whole, places)
        if summed is not None:
            return summed
        for module, read, output in self.norms:
            if output.shape != embedding.shape or not are_close(output, embedding):
                continue
            summed = self._summed(embedding, read[0, places], places)
            norm = FrozenNorm.of(module.forward, read[0, places], whole)
            if summed is not None and norm is not None:
                writers, parts = summed
                parts = torch.cat([norm.linear(parts), norm.bias.unsqueeze(0)])
                return [*writers, StreamWriter("embedding norm bias")], parts
        return [StreamWriter(start)], whole.unsqueeze(0)

    def _summed(
        self, embedding: Tensor, whole: Tensor, places: Tensor
    ) -> tuple[list[StreamWriter], Tensor] | None:
        """Return the embeddings of which this is the sum; None if it is not, or of one."""
        length, width = embedding.shape[1:]
        there = {
            name: output.reshape(-1, width)[places % (output.numel() // width)]
            for name, output in self.outputs
            if output.shape[-1] == width and output.numel() in (width, length * width)
        }
        if len(there) < 2:
            return None
        parts = torch.stack(list(there.values())).to(whole)
        return (list(map(StreamWriter, there)), parts) if are_close(parts.sum(0), whole) else None


@contextmanager
def embedding_parts(model: nn.Module) -> Iterator[EmbeddingParts]:
    """Note what the embeddings and norms of a model give in one pass within the `with`."""
    parts = EmbeddingParts()
    with ExitStack() as stack:
        for path, module in foreign_of(model).named_modules():
            if isinstance(module, Embedding):
                note: Any = partial(_note_own, parts, path)
            elif isinstance(model, Pretrained) and (_is_embedding(module) or is_norm(module)):
                note = partial(_note, parts, path)
            else:
                continue
            stack.callback(module.register_forward_hook(note).remove)
        yield parts


def _note_own(
    parts: EmbeddingParts, path: str, module: Embedding, args: Any, output: Tensor
) -> None:
    """Note what an embedding of attnlab gives: tokens, and the rest, which is positions."""
    with torch.no_grad():
        tokens = module.tokens(args[0]) * module.scale
        if args[0].dim() == 3:
            tokens = tokens.sum(-2)
        padded = torch.zeros_like(output)
        padded[..., : tokens.shape[-1]] = tokens
    stack = path.removesuffix("embedding").replace(".", " ")
    parts.outputs.append((f"{stack}tokens", padded))
    if not torch.equal(output, padded):
        parts.outputs.append((f"{stack}positions", output - padded))


def _note(parts: EmbeddingParts, path: str, module: nn.Module, args: Any, output: Any) -> None:
    """Note what a module of a foreign model gives, if it is an embedding or a norm."""
    value = first_tensor(output)
    if value is None:
        return
    if _is_embedding(module):
        parts.outputs.append((path, value))
    elif args and isinstance(args[0], Tensor):
        parts.norms.append((module, args[0], value))


def _is_embedding(module: nn.Module) -> bool:
    """Is a module an embedding by its type's name?"""
    return "embedding" in type(module).__name__.lower() and not any(module.children())
