import numpy as np

gain = 60.0
pos = np.vstack([np.zeros((1, 4)), np.eye(4)])
Km = np.eye(8)
Qm = np.zeros((8, 8))
Qm[:3, :3] = gain * np.eye(3)
Qm[4:, 4:] = -2 * gain * np.eye(4)
Qm[:3, 3] = gain / 2
Vm = np.array([[-0.4, -0.4, -0.4, 0.4, 0, 0, 0, 0]]).T


def weights():
    return [Km, Qm, Vm, pos]
