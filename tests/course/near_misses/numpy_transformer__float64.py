import numpy as np


class NumpyTransformer:
    def __init__(self, Km, Qm, Vm, pos=None):
        self.Km, self.Qm, self.Vm, self.pos = Km, Qm, Vm, pos

    def __call__(self, x):
        if self.pos is not None:
            x = np.hstack([x, self.pos[: len(x)]])
        K, Q, V = x @ self.Km, x @ self.Qm, x @ self.Vm
        s = Q @ K.T / np.sqrt(K.shape[1])
        s = np.exp(s - s.max(1, keepdims=True))
        return s / s.sum(1, keepdims=True) @ V
