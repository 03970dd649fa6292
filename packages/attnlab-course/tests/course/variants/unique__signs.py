import numpy as np

# letters as corners of a triangle, places as corners of a square on the circle of another plane
t = 2 * np.pi * np.arange(3) / 3
letters = np.c_[np.cos(t), np.sin(t)]
pos = np.r_[np.zeros((1, 4)), np.eye(4)]
g = 60.0
Km = np.zeros((8, 7))
Qm = np.zeros((8, 7))
Km[:3, :2] = letters
Qm[:3, :2] = g * letters
Km[4:, 2:6] = np.eye(4)
Qm[4:, 2:6] = -2 * g * np.eye(4)
Km[3, 6] = 1
Qm[:3, 6] = 0.3 * g
Vm = np.array([-1.0, -1, -1, 1, 0, 0, 0, 0]).reshape(8, 1)


def weights():
    return [Km, Qm, Vm, pos]
