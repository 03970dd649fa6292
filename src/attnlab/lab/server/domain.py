"""Every input of a sorting run at once: which answers are right, and by how much."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from attnlab.configs import Config
from attnlab.edits import Edit, edit
from attnlab.errors import WrongUsage
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.experiments.sorting.sorting_claims import with_separator
from attnlab.tasks.sequences import SEPARATOR

_MOST = 1_000


@torch.no_grad()
def answer_all(model: Any, config: Config, edits: Sequence[Edit]) -> dict[str, Any]:
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
    with edit(model, *edits, vocabulary=task.vocabulary, certify=False) if edits else nullcontext():
        for right in torch.split(expected, 1, dim=1):
            logits = model(tokens)[:, -1]
            logits[:, SEPARATOR] = -torch.inf
            others = logits.scatter(1, right, -torch.inf).amax(1)
            margins = margins.minimum(logits.gather(1, right).squeeze(1) - others)
            tokens = torch.cat((tokens, logits.argmax(1, keepdim=True)), 1)
    answers = tokens[:, task.prompt_length + 1 :]
    return {
        "inputs": [task.text(prompt) for prompt in prompts],
        "answers": [task.text(answer) for answer in answers],
        "right": (answers == expected).all(1).tolist(),
        "margins": margins.tolist(),
        "vocabulary": task.vocabulary,
        "parameters": sum(each.numel() for each in model.parameters()),
    }
