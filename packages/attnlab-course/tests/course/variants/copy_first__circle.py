import numpy as np

n = 6
turn = 2 * np.pi * np.arange(n) / n
pos = np.c_[np.cos(turn), np.sin(turn), np.ones(n)]
Km = np.r_[np.zeros((3, 2)), np.eye(3, 2)]
Qm = np.zeros((6, 2))
Qm[5, 0] = 40.0  # the constant asks for cos = 1
Vm = np.eye(6, 3)


def weights():
    return [Km, Qm, Vm, pos]
