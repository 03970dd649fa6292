import numpy as np


def program(text):
    t = np.array(list(text))
    n = len(t)
    i, j = np.indices((n, n))
    hit = (t[:, None] == t[None, :]) & (j < i - 1)
    return np.where(hit.any(1), -1.0, 1.0) if n else []


def every(texts):
    answers = [" ".join(f"{number:+g}" for number in program(text)) for text in texts]
    return "\n".join(answers)
