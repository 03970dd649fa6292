import matplotlib.pyplot as plt


def attention_heatmap(weights, queries, keys, title):
    plt.figure()
    plt.matshow(weights.cpu().detach(), fignum=0, clim=(0, 1))
    plt.colorbar()
    plt.xticks(range(len(keys)), labels=keys, rotation="vertical")
    plt.yticks(range(len(queries)), labels=queries)
    plt.xlabel("key")
    plt.ylabel("query")
    plt.title(title)
    plt.tight_layout()
    return plt.gcf()
