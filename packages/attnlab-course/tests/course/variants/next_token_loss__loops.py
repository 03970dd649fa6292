import torch, math


def next_token_loss(logits, tokens, padding=None):
    total, n = logits.new_zeros(()), 0
    B, L = tokens.shape
    for b in range(B):
        for t in range(L - 1):
            target = tokens[b, t + 1].item()
            if target == padding:
                continue
            total = total + torch.logsumexp(logits[b, t], 0) - logits[b, t, target]
            n += 1
    if n == 0:
        return total
    return total / n


def loss_floor(num_letters, num_free, row_length):
    total = 0.0
    for place in range(1, row_length):
        if place < num_free:
            total += math.log(num_letters)
    return total / (row_length - 1)
