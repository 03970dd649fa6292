"""The key/value cache: kept by generation so that each new token costs one step.

A model's cache holds one `LayerCache` for each attention part, under the part's name, made when
first asked for.
"""

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, not_none


class LayerCache:
    """Keys and values of one attention part, (batch, kv_head, key, width), growing along the key
    axis.

    Room is doubled when it runs out, so that n appended tokens cost O(n) copies, not O(n²).
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions and return all that are held, the new ones last."""
        if self._keys is not None and self._keys.shape[0] != key.shape[0]:
            raise WrongUsage(
                f"this cache holds a batch of {self._keys.shape[0]}; got a batch of "
                f"{key.shape[0]}. Start a new cache for each generation."
            )
        self._keys = self._with_room(self._keys, key)
        self._values = self._with_room(self._values, value)
        end = self.length + key.shape[-2]
        self._keys[..., self.length : end, :] = key
        self._values[..., self.length : end, :] = value
        self.length = end
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """Return what is held; the cache must not be empty."""
        keys, values = not_none(self._keys), not_none(self._values)
        return keys[..., : self.length, :], values[..., : self.length, :]

    def _with_room(self, store: Tensor | None, new: Tensor) -> Tensor:
        needed = self.length + new.shape[-2]
        if store is not None and store.shape[-2] >= needed:
            return store
        room = max(needed, 2 * self.length, 16)
        larger = torch.zeros(
            (*new.shape[:-2], room, new.shape[-1]), dtype=new.dtype, device=new.device
        )
        if store is not None:
            larger[..., : self.length, :] = store[..., : self.length, :]
        return larger


class Cache:
    """All layer caches of one generation, by the name of the attention part."""

    def __init__(self) -> None:
        self._layers: dict[str, LayerCache] = {}
        self.length = 0

    @property
    def lengths(self) -> dict[str, int]:
        """How many positions each attention part holds."""
        return {name: layer.length for name, layer in self._layers.items()}

    def layer(self, name: str) -> LayerCache:
        """Return the cache of one attention part."""
        return self._layers.setdefault(name, LayerCache())

    def advance(self, num_tokens: int) -> None:
        """Count tokens that have passed through the whole model."""
        self.length += num_tokens
