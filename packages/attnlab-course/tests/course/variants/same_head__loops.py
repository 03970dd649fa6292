import math
import numpy as np


def score_table(Km, Qm):
    tokens, d = Km.shape
    S = np.empty((tokens, tokens))
    for q in range(tokens):
        for k in range(tokens):
            S[q, k] = np.dot(Qm[q], Km[k]) / math.sqrt(d)
        S[q] -= np.average(S[q])
    return S


def change(Km, Qm, R):
    return np.matmul(Km, R), np.linalg.solve(R, Qm.T).T


def same_head(one, other):
    if one[2].shape != other[2].shape:
        return False
    for a, b in ((score_table(*one[:2]), score_table(*other[:2])), (one[2], other[2])):
        if not np.allclose(a, b, rtol=0, atol=1e-6):
            return False
    return True
