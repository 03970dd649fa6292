import numpy as np


def score_table(Km, Qm):
    S = np.einsum("qc,kc->qk", Qm, Km) * Km.shape[-1] ** -0.5
    n = len(S)
    return S @ (np.eye(n) - 1 / n)


def change(Km, Qm, R):
    return [Km.dot(R), Qm.dot(np.linalg.inv(R.T))]


def same_head(one, other):
    a, b, v = one
    c, d, w = other
    if v.shape != w.shape:
        return np.bool_(False)
    close = np.abs(np.r_[(score_table(a, b) - score_table(c, d)).ravel(), (v - w).ravel()]) < 1e-6
    return close.all()
