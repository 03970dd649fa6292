"""Every input of a sorting run at once: which answers are right, and by how much."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import nn

from attnlab.configs import Config
from attnlab.core.sizes import count_numbers
from attnlab.edits import Edit, edit
from attnlab.errors import WrongUsage
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.experiments.sorting.sorting_claims import with_separator
from attnlab.tasks.sequences import SEPARATOR

_MOST = 1_000


@torch.no_grad()
def answer_all(model: nn.Module, config: Config, edits: Sequence[Edit]) -> dict[str, object]:
    """Answer every input greedily, SEP forbidden, under edits.

    A margin is by how much the right letter's logit leads, at the letter where it leads least.
    """
    if not isinstance(config, SortingConfig):
        raise WrongUsage("only the inputs of a run of sorting can all be answered at once.")
    task = config.sequence_task()
    if task.num_prompts > _MOST:
        raise WrongUsage(f"{_MOST:,} inputs can be answered at once; got {task.num_prompts:,}.")
    prompts = task.all_prompts()
    expected = task.answer(prompts)
    tokens = with_separator(prompts)
    margins = torch.full((len(prompts),), torch.inf)
    changed = edit(model, *edits, vocabulary=task.vocabulary, certify=False)
    with changed if edits else nullcontext():
        for right in torch.split(expected, 1, dim=1):
            logits = model(tokens)[:, -1]
            logits[:, SEPARATOR] = -torch.inf
            others = logits.scatter(1, right, -torch.inf).amax(1)
            margins = margins.minimum(logits.gather(1, right).squeeze(1) - others)
            tokens = torch.cat((tokens, logits.argmax(1, keepdim=True)), 1)
    answers = tokens[:, task.prompt_length + 1 :]
    return {
        "inputs": list(map(task.text, prompts)),
        "answers": list(map(task.text, answers)),
        "right": (answers == expected).all(1).tolist(),
        "margins": margins.tolist(),
        "vocabulary": task.vocabulary,
        "parameters": count_numbers(model.parameters()),
    }
