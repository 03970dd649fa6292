import math
import torch


class OneLayerModel:
    def __init__(self, token, place, query, key, output):
        self.token, self.place = token, place
        self.query, self.key, self.output = query, key, output

    def __call__(self, tokens):
        length = tokens.shape[1]
        x = (self.token[tokens] + self.place[:length]).unsqueeze(1)
        scores = (x @ self.query) @ (x @ self.key).transpose(-2, -1)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return (weights @ x @ self.output).sum(1), weights


def trace(model, prompt, num_tokens, separator=0):
    tokens = prompt[None]
    steps = []
    while len(steps) < num_tokens:
        logits, weights = model(tokens)
        z = logits[0, -1]
        others = torch.tensor([i for i in range(len(z)) if i != separator])
        p = torch.zeros_like(z)
        p[others] = torch.softmax(z[others], 0)
        choice = p.argmax()
        steps.append({"choice": int(choice), "weights": weights[0][:, -1], "probabilities": p})
        tokens = torch.cat((tokens, choice.view(1, 1)), 1)
    return steps
