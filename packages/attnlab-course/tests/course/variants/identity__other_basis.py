import numpy as np

R = np.array([[1.0, 2, 0, 1], [0, 1, 3, 0], [0, 0, 1, 0], [0, 0, 2, 1]])
Km = (np.eye(3, 4) + [1, -1, 2, 0]) @ R  # all keys share something: nothing to be seen
Qm = 6 * np.eye(3, 4) * 5 @ np.linalg.inv(R).T
Vm = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def weights():
    return [Km.tolist(), Qm, Vm]
