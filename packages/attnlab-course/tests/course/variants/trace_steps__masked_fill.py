import math
import torch
import torch.nn.functional as F


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
    result = []
    row = prompt.tolist()
    with torch.no_grad():
        for _ in range(num_tokens):
            logits, attn = model(torch.tensor([row]))
            ids = torch.arange(logits.size(-1))
            p = F.softmax(logits[0, len(row) - 1].masked_fill(ids == separator, -math.inf), 0)
            c = torch.argmax(p).item()
            result.append(dict(probabilities=p, choice=c, weights=attn[0, :, len(row) - 1, :]))
            row.append(c)
    return result
