import numpy as np

rng = np.random.default_rng(1)
S = 40.0
pos = np.eye(5)
same = np.zeros((9, 9))
same[:3, :3] = S * np.eye(3)
same[:3, 3] = 0.4 * S
same[4:, 4:] = -3 * S * np.eye(5)
R = np.eye(9) + 0.1 * rng.normal(size=(9, 9))
Km = R
Qm = same @ np.linalg.inv(R).T
Vm = np.zeros((9, 1))
Vm[:3] = -2
Vm[3] = 2


def weights():
    return [Km, Qm, Vm, pos]
