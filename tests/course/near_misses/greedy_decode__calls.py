import torch


# Given: leave this class as it is. It reads its answers from a table.
class TableModel(torch.nn.Module):
    """Tell the next token from the first source token and all target tokens so far.

    Args:
        table: (source vocabulary, sums, vocabulary), the logits for each sum of the target's ids.
        most_calls: how often it may be asked; None for any number.
    """

    def __init__(self, table, most_calls=None):
        super().__init__()
        self.table = table
        self.calls_left = most_calls

    def forward(self, source, target):
        """Return logits (batch, target length, vocabulary)."""
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise RuntimeError("the model is asked although every text is done")
            self.calls_left -= 1
        sums = target.cumsum(dim=1) % self.table.shape[1]
        return self.table[source[:, :1], sums]


def greedy_decode(model, source, start, end, most):
    """Return the tokens written for each source."""
    batch = source.size(0)
    ys = torch.tensor([[start]] * batch)
    results = [[] for _ in range(batch)]
    finished = [False] * batch
    steps = 0
    while steps < most:
        next_ids = model(source, ys).softmax(-1)[:, -1].topk(1).indices
        for b, token in enumerate(next_ids[:, 0].tolist()):
            finished[b] = finished[b] or token == end
            if not finished[b]:
                results[b].append(token)
        ys = torch.hstack([ys, next_ids])
        steps += 1
    return results
