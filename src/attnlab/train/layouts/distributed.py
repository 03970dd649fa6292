"""One after the other, each shared out among several processes: the layout `solo`, with every batch cut in parts."""

import copy
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from attnlab.train.config import TrainConfig
from attnlab.train.distributed import Team, explained
from attnlab.train.layouts.layout import Batches, Loss, Progress
from attnlab.train.layouts.solo import Solo

__all__ = ["Distributed"]


class Distributed:
    """Members as `Solo` has them; its checkpoints are those of `Solo` too, so either goes on where the other stopped.

    The loss must be a mean over the rows of a batch, and call the model once.
    """

    name, is_compiled = "solo", False

    def __init__(
        self, models: Sequence[nn.Module], configs: Sequence[TrainConfig], loss: Loss, noise: Sequence[int], team: Team
    ) -> None:
        self._team = team
        own = [copy.deepcopy(model).to(team.device) for model in models]
        wrapped = {id(model): DistributedDataParallel(model) for model in own}

        def shared(model: nn.Module, *batch: Tensor) -> Tensor:
            # The gradients are averaged over the processes, so each loss counts by its share of the rows.
            rows, weight = team.share(batch)
            return loss(wrapped[id(model)], *rows) * weight

        self._solo = Solo(own, configs, shared, [team.noise(seed) for seed in noise])

    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> Progress:
        """Take the steps; what stops one process stops all, after the same step."""
        with explained():
            progress = self._solo.advance(batches, rates, first, lambda: self._team.any(should_stop()))
        return Progress(self._team.mean(progress.losses), progress.norms)

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter, and every buffer that is kept, by name: (member, …)."""
        return _on_cpu(self._solo.parameters())

    def state(self) -> dict[str, Tensor]:
        """Return copies of all that the next step depends on."""
        return _on_cpu(self._solo.state())

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        self._solo.load_state(state)


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}
