"""The layout `sequential` with every batch divided among several processes."""

import copy
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from attnlab.train.config import TrainConfig
from attnlab.train.distributed import ProcessGroup, explained
from attnlab.train.layouts.layout import Batches, Loss, Progress
from attnlab.train.layouts.sequential import Sequential


class Distributed:
    """Members as in `Sequential`, with the same checkpoints, so either resumes the other's.

    The loss must be a mean over the rows of a batch, and call the model once.
    """

    name, is_compiled = "sequential", False

    def __init__(
        self,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        loss: Loss,
        noise: Sequence[int],
        group: ProcessGroup,
    ) -> None:
        self._group = group
        own = [copy.deepcopy(model).to(group.device) for model in models]
        wrapped = {id(model): DistributedDataParallel(model) for model in own}

        def shared(model: nn.Module, *batch: Tensor) -> Tensor:
            # The gradients are averaged over the processes, so each loss counts by its share of the
            # rows.
            rows, weight = group.share(batch)
            return loss(wrapped[id(model)], *rows) * weight

        self._sequential = Sequential(own, configs, shared, [group.noise(seed) for seed in noise])

    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> Progress:
        """Take the steps; a stop of one process stops all, after the same step."""
        with explained():
            progress = self._sequential.advance(
                batches, rates, first, lambda: self._group.any(should_stop())
            )
        return Progress(self._group.mean(progress.losses), progress.norms)

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter, and every buffer that is kept, by name: (member, …)."""
        return _on_cpu(self._sequential.parameters())

    def state(self) -> dict[str, Tensor]:
        """Return copies of all that the next step depends on."""
        return _on_cpu(self._sequential.state())

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        self._sequential.load_state(state)


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}
