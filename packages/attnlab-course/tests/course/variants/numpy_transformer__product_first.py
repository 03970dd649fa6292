import numpy as np


class NumpyTransformer:
    def __init__(self, Km, Qm, Vm, pos=None):
        # only the product of the two matters
        self.M = np.asarray(Qm, dtype="float64") @ np.asarray(Km, dtype="float64").T
        self.M /= np.shape(Km)[1] ** 0.5
        self.Vm = np.asarray(Vm, dtype="float64")
        self.pos = pos

    def features(self, x):
        x = np.asarray(x, dtype="float64")
        if self.pos is None:
            return x
        return np.c_[x, self.pos[: x.shape[0], :]]  # numpy refuses what is too long

    def __call__(self, x):
        f = self.features(x)
        s = np.einsum("ia,ab,jb->ij", f, self.M, f)
        s -= np.max(s, axis=-1)[:, None]
        w = np.exp(s)
        return np.einsum("ij,jv->iv", w / np.sum(w, axis=-1)[:, None], f @ self.Vm)
