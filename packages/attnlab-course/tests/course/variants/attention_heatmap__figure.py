import matplotlib.pyplot as plt
import numpy as np


def attention_heatmap(weights, queries, keys, title):
    fig = plt.figure(figsize=(5, 4))
    ax = fig.add_subplot(111)
    mesh = ax.pcolormesh(np.array(weights.tolist()), vmin=0, vmax=1, cmap="viridis")
    ax.invert_yaxis()
    ax.set_xticks(np.arange(len(keys)) + 0.5)
    ax.set_xticklabels(keys)
    ax.set_yticks(np.arange(len(queries)) + 0.5)
    ax.set_yticklabels(queries)
    ax.set(xlabel="Keys", ylabel="Queries")
    fig.suptitle(title)
    plt.colorbar(mesh)
    return fig
