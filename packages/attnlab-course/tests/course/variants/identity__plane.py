import numpy as np

# three directions in a plane, 120 degrees apart
angles = np.array([0, 2, 4]) * np.pi / 3
Km = np.stack([np.cos(angles), np.sin(angles)], 1)
Qm = 10 * Km
Vm = np.identity(3)


def weights():
    return [Km, Qm, Vm]
