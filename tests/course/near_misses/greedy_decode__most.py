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
    texts = []
    for row in source:
        ids = [start]
        while len(ids) <= most + 1:
            logits = model(row[None], torch.tensor([ids]))
            token = logits[0, -1].argmax().item()
            if token == end:
                break
            ids.append(token)
        texts.append(ids[1:])
    return texts
