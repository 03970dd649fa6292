import torch
from math import pi, sin


def learning_rate(step, peak, warmup, steps, share=0.1):
    if step < warmup:
        return torch.tensor(peak * (step + 1) / warmup, dtype=torch.float64).item()
    span = steps - warmup - 1
    done = 0 if span == 0 and step < steps else 1 if step >= steps else (step - warmup) / span
    return peak - (peak - share * peak) * sin(pi / 2 * done) ** 2
