import numpy as np

# one number a place; every letter asks for a small one
pos = np.array([[0.0], [1.0], [2.0], [3.0]])
Km = np.array([[0.0], [0], [0], [-1]])
Qm = np.array([[30.0], [30], [30], [0]])
Vm = np.concatenate([np.eye(3), np.zeros((1, 3))])


def weights():
    return [Km, Qm, Vm, pos]
