"""Short texts to read with every head, and what each measure says of a row of weights, by hand."""

import math

import torch

from attnlab.look import record
from tests.random_models import new_model

WORDS = ["the", "cat", "sat", "on", "Mat", "and", "42", ",", "a", "dog"]
TEXTS = [
    "the cat sat on the Mat",
    "a dog , a cat , a Mat and 42",
    "and and and",
    "sat",
    "the dog sat on the dog and the dog sat on the cat and the cat sat on 42",
    "on the Mat , on the Mat",
    "cat dog",
]


def encode(text):
    return [WORDS.index(word) for word in text.split()]


def make_model(kind):
    """Make a model of these words."""
    return new_model(kind, vocab_size=10, max_length=32, d_model=12, num_heads=3)


@torch.no_grad()
def weights_alone(model, text):
    """Record every head on a text by itself: (query, key) by head."""
    with record(model, "*weights") as recording:
        model(torch.tensor([encode(text)]))
    return {
        f"{layer}.{head}": recording[f"layers.{layer}.attention.weights"][0, head]
        for layer in range(2)
        for head in range(3)
    }


def measures_of(weights, ids, query):
    """Measure a row of weights, a list by key; None where there is nothing to measure."""
    keys = range(len(ids))
    places = {
        "previous": [key for key in keys if key == query - 1],
        "first": [0] if query else [],
        "own": [query],
        "duplicate": [key for key in range(query) if ids[key] == ids[query]],
        "induction": [key for key in range(1, query + 1) if ids[key - 1] == ids[query]],
        "number": [key for key in keys if WORDS[ids[key]] == "42"],
        "name": [key for key in keys if WORDS[ids[key]] == "Mat"],
        "punctuation": [key for key in keys if WORDS[ids[key]] == ","],
        "special": [],
    }
    shares = {name: sum(weights[key] for key in at) if at else None for name, at in places.items()}
    mean = sum(weights[key] * (query - key) for key in keys)
    spread = sum(weights[key] * (query - key - mean) ** 2 for key in keys)
    return shares | {
        "largest": max(weights),
        "entropy": -sum(weight * math.log(weight) for weight in weights if weight > 0),
        "distance": mean,
        "spread": math.sqrt(spread),
    }
