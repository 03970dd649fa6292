"""Self-attention and cross-attention are told apart by what keys are made from, not by lengths."""

import torch
from torch import nn

import attnlab


def names(model, *example):
    lab = attnlab.load(model.eval(), example=example)
    return [path for path, _ in lab.attention_points()]


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x, memory):
        scores = self.query(x) @ self.key(memory).mT / 4
        return x + scores.softmax(-1) @ self.value(memory)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Attend(), Attend()

    def forward(self, x, memory):
        x = self.first(x, x)
        return self.second(x, x if memory is None else memory)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x, memory=None):
        for block in self.blocks:
            x = block(x, memory)
        return x


def test_two_self_attentions_of_a_block_are_both_its_own():
    found = names(Stack(), torch.randn(2, 6, 16))
    assert len(found) == 4
    assert not any("cross" in path for path in found)


def test_a_memory_as_long_as_the_stream_is_cross_attention():
    found = names(Stack(), torch.randn(2, 6, 16), torch.randn(2, 6, 16))
    assert [path.rpartition(".")[2] for path in found] == ["attention", "cross_attention"] * 2


class Pooling(nn.Module):
    """Halves the stream: the queries are pooled from the keys before the block."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Attend() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x.unflatten(1, (-1, 2)).mean(2), x)
        return x


def test_queries_pooled_from_the_keys_look_at_themselves():
    assert not any("cross" in path for path in names(Pooling(), torch.randn(2, 8, 16)))


class Exchange(nn.Module):
    """Two streams look at each other by one module, called twice."""

    def __init__(self):
        super().__init__()
        self.look = Attend()

    def forward(self, one, other):
        return self.look(one, other), self.look(other, one)


class Exchanges(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Exchange() for _ in range(2))

    def forward(self, one, other):
        for layer in self.layers:
            one, other = layer(one, other)
        return torch.cat((one, other), 1)


def test_streams_that_have_met_before_still_look_at_each_other():
    for lengths in ((7, 5), (7, 36)):
        found = names(Exchanges(), *(torch.randn(2, length, 16) for length in lengths))
        assert len(found) == 4
        assert all("cross" in path for path in found)
