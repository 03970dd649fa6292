import numpy as np


def score_table(Km, Qm):
    s = Qm @ Km.T / np.sqrt(Km.shape[1])
    return s - s.mean(1, keepdims=True)


def change(Km, Qm, R):
    return Km @ R, Qm @ np.linalg.inv(R).T


def same_head(one, other):
    a, b = (Qm @ Km.T / np.sqrt(Km.shape[1]) for Km, Qm, _ in (one, other))
    return (
        one[2].shape == other[2].shape
        and np.allclose(a, b, 0, 1e-6)
        and np.allclose(one[2], other[2], 0, 1e-6)
    )
