import numpy as np


def learning_rate(step, peak, warmup, steps, share=0.1):
    low = share * peak
    if step + 1 <= warmup:
        return (step + 1) * (peak / warmup)
    last = steps - 1
    if step > last:
        return low
    if last == warmup:
        return peak
    p = (step - warmup) / (last - warmup)
    return float(low + 0.5 * (peak - low) * (1 + np.cos(np.pi * p)))
