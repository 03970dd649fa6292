"""Forbids with a float32 tensor, as models in float32 allow."""

import math

import torch


class TableModel:
    def __init__(self, following, memory, place):
        self.following, self.memory, self.place = following, memory, place

    def __call__(self, tokens):
        remembered = self.memory[tokens].cumsum(1)
        return self.following[tokens] + remembered + self.place[: tokens.shape[1]]


def generate(model, prompt, num_tokens, separator=0):
    row = prompt
    for _ in range(num_tokens):
        last = model(row)[:, -1]
        seen = row.eq(separator).any(1).nonzero()[:, 0]
        columns = torch.full_like(seen, separator)
        last = last.index_put((seen, columns), torch.tensor(-math.inf))
        row = torch.cat((row, torch.topk(last, 1, dim=-1).indices), 1)
    return row.clone()
