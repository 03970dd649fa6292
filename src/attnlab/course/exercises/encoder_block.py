"""An encoder block with the normalization after each sum."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.attention_mistakes import swapped_mistake
from attnlab.course.material.tensors import as_tensors

# %% [markdown]
# # An encoder block
#
# A transformer is a stack of blocks. In each of them the positions first look at one another, then
# each thinks by itself. What a part finds is added to what came in, so nothing is lost, and the sum
# is normalized. The picture shows the weights of one head of a fresh block, with a mask that hides
# the last two positions.
#
# ![weights](encoder_block.svg)
#
# **Write** the class `EncoderBlock(d_model, num_heads, d_ff, dropout=0.1)` from the parts that are
# given, `nn.LayerNorm` and `nn.Dropout`. Its call takes `x` and `mask=None` and returns the new x
# and the weights of attention.
#
# | | shape |
# | --- | --- |
# | `x` | (batch, length, d_model) |
# | `mask` | (length, length) or (batch, 1, length), boolean; **True = may attend** |
# | new x | (batch, length, d_model) |
# | weights | (batch, num_heads, length, length), as `attention` returns them |
#
# The order is that of the first transformer, with the norm after each sum:
#
# * a = norm1(x + dropout(attention of x))
# * new x = norm2(a + dropout(feed-forward of a))
#
# A mask of shape (length, length) holds for all texts. One of shape (batch, 1, length) is a padding
# mask: it says of each text which keys are real, the same for all queries. Attention takes both.
#
# Name the parts `attention`, `feed_forward`, `norm1` and `norm2`; the checks put their parameters
# in by these names. The two norms are two modules, and keep PyTorch's eps. `FeedForward` has its
# own dropout inside, with the same chance. In training with a chance of 1 the block gives
# norm2(norm1(x)).

# %%
import torch
from torch import nn


class SelfAttention(nn.Module):
    """Attention with several heads. It is given; leave it as it is."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        """(batch, length, d_model) -> the same, and weights (batch, head, length, length)."""
        shape = (*x.shape[:2], 3, self.num_heads, -1)
        q, k, v = self.project_in(x).view(shape).permute(2, 0, 3, 1, 4)
        fit = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            allowed = mask if mask.dim() == 2 else mask.unsqueeze(1)
            fit = fit.masked_fill(allowed.logical_not(), float("-inf"))
        weights = fit.softmax(-1)
        return self.project_out((weights @ v).transpose(1, 2).flatten(2)), weights


class FeedForward(nn.Sequential):
    """Two layers with ReLU and dropout between them. It is given; leave it as it is."""

    def __init__(self, d_model, d_ff, dropout):
        wide, back = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        super().__init__(wide, nn.ReLU(), nn.Dropout(dropout), back)


class EncoderBlock(nn.Module):
    """Attention and feed-forward, each added to its input and normalized."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        # >>> solution
        self.attention = SelfAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        # <<< solution

    def forward(self, x, mask=None):
        """Return the new x, and the weights of attention."""
        # >>> solution
        mixed, weights = self.attention(x, mask)
        x = self.norm1(x + self.dropout(mixed))
        thought = self.feed_forward(x)
        x = self.norm2(x + self.dropout(thought))
        return x, weights
        # <<< solution


# %% [course]
def sizes(width, hidden):
    """Return the shapes of all parameters by name."""
    shapes = {
        "attention.project_in.weight": [3 * width, width],
        "attention.project_in.bias": [3 * width],
        "attention.project_out.weight": [width, width],
        "attention.project_out.bias": [width],
        "feed_forward.0.weight": [hidden, width],
        "feed_forward.0.bias": [hidden],
        "feed_forward.3.weight": [width, hidden],
        "feed_forward.3.bias": [width],
    }
    norms = {f"norm{n}.{part}": [width] for n in (1, 2) for part in ("weight", "bias")}
    return shapes | norms


def attend(query, key, value, heads, may):
    """Attend head by head and query by query; return the heads side by side, and the weights."""
    length, width = query.shape
    size = width // heads
    joined, weights = np.zeros((length, width)), np.zeros((heads, length, length))
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        for place in range(length):
            fits = key[:, own] @ query[place, own] / size**0.5
            grown = np.where(may[place], np.exp(fits), 0.0)
            weights[head, place] = grown / grown.sum()
            joined[place, own] = weights[head, place] @ value[:, own]
    return joined, weights


def norm(rows, state, name):
    """Normalize each row with the parameters of a norm."""
    result = np.zeros_like(rows)
    for place, row in enumerate(rows):
        spread = (((row - row.mean()) ** 2).mean() + 1e-5) ** 0.5
        scaled = (row - row.mean()) / spread * state[f"{name}.weight"]
        result[place] = scaled + state[f"{name}.bias"]
    return result


def oracle(x, state, heads, may):
    """Compute the block for one text, from its formula."""
    ins = np.split(x @ state["attention.project_in.weight"].T, 3, axis=1)
    biases = np.split(state["attention.project_in.bias"], 3)
    query, key, value = (each + bias for each, bias in zip(ins, biases, strict=True))
    joined, weights = attend(query, key, value, heads, may)
    mixed = joined @ state["attention.project_out.weight"].T + state["attention.project_out.bias"]
    a = norm(x + mixed, state, "norm1")
    wide = np.maximum(a @ state["feed_forward.0.weight"].T + state["feed_forward.0.bias"], 0)
    thought = wide @ state["feed_forward.3.weight"].T + state["feed_forward.3.bias"]
    return norm(a + thought, state, "norm2"), weights


def case(random, shape, heads, hidden, mask=None, dropout=0.0, show="both", **more):
    """Draw x and all parameters; `show` says which of the two answers is compared."""
    x = random.normal(size=shape)
    batch, length, width = shape
    state = {name: random.normal(size=size) * 0.7 for name, size in sizes(width, hidden).items()}
    may = np.broadcast_to(True if mask is None else mask, (batch, length, length))
    parts = [oracle(x[b], state, heads, may[b]) for b in range(batch)]
    output, weights = (T.from_numpy(np.stack(each)) for each in zip(*parts, strict=True))
    expected = [None if show == "weights" else output, None if show == "output" else weights]
    args = [T.from_numpy(x)] if mask is None else [T.from_numpy(x), T.from_numpy(mask)]
    state = as_tensors(state)
    build = ((width, heads, hidden, dropout), {})
    given = {"expected": expected, **more}
    return Case("EncoderBlock", tuple(args), build=build, state=state, **given)


def values(random):
    """Sizes that all differ; only the new x is compared."""
    yield case(random, (1, 2, 4), 1, 3, show="output")
    yield case(random, (2, 5, 6), 3, 7, show="output")


def weights(random):
    """The second part of the answer."""
    yield case(random, (2, 3, 4), 2, 5, show="weights")


def one_position(random):
    """A text of one position."""
    yield case(random, (1, 1, 4), 2, 3, words="with one position")


def masked(random):
    """Masks for all and for each."""
    mask = random.random((5, 5)) < 0.6
    mask |= np.eye(5, dtype=bool)
    mask[0, 1] = False
    yield case(random, (2, 5, 4), 2, 3, mask, show="output", words="with a mask for all texts")
    mask = np.ones((2, 1, 5), bool)
    mask[0, :, 3:] = False
    yield case(random, (2, 5, 4), 2, 3, mask, show="output", words="with a mask for each text")


def dropped(random):
    """Training in which all is dropped, and in which nothing is."""
    shape = (2, 3, 4)
    made = case(random, shape, 2, 5, dropout=1.0, training=True)
    state = {name: each.numpy() for name, each in made.state.items()}
    rows = made.args[0].numpy().reshape(-1, 4)
    rows = norm(norm(rows, state, "norm1"), state, "norm2")
    expected = [T.from_numpy(rows.reshape(shape)), None]
    yield Case(
        made.call, made.args, build=made.build, state=made.state, expected=expected,
        training=True, words="in training, with dropout 1",
    )  # fmt: skip
    words = "in training, with dropout 0"
    yield case(random, shape, 2, 5, training=True, show="output", words=words)


def evaluation(random):
    """Evaluation with a high chance of dropping."""
    yield case(random, (2, 3, 4), 2, 5, dropout=0.9, show="output", words="in evaluation")


def parameters(random):
    """The names and shapes of all parameters."""
    build = ((6, 3, 5), {})
    yield Case("EncoderBlock", build=build, expected=sizes(6, 5), answer="parameters")


def draw_picture(names):
    """Draw one head's weights with the last two positions hidden."""
    from attnlab.draw.attention import draw_head

    T.manual_seed(8)
    block = names["EncoderBlock"](16, 2, 32).eval()
    with T.no_grad():
        for each in block.attention.parameters():
            each.mul_(3)
        mask = T.tensor([[True] * 5 + [False] * 2])[None]
        shown = block(T.randn(1, 7, 16), mask)[1]
    return draw_head(shown[0, 0], tokens=[f"p{place}" for place in range(7)])


_ONE = "x = self.norm1(x + self.dropout(mixed))"
_TWO = "x = self.norm2(x + self.dropout(thought))"
_THINK = "thought = self.feed_forward(x)"

EXERCISE = Exercise(
    "An encoder block",
    level=3,
    minutes=25,
    needs=("multi_head", "layer_norm", "feed_forward"),
    checks=(
        Check("values", "gives the right new x", values, points=3),
        Check("parameters", "has its parts under the names that are asked", parameters),
        Check("weights", "returns the weights of attention", weights),
        Check("mask", "hands the mask to attention", masked),
        Check("dropout", "drops what both parts found, and nothing else", dropped, 2, graded=True),
        Check("evaluation", "drops nothing in evaluation", evaluation, graded=True),
        Check("one position", "works with a single position", one_position, graded=True),
    ),
    mistakes=(
        Mistake(
            "norm before",
            f"mixed, weights = self.attention(x, mask)\n        {_ONE}\n        {_THINK}\n"
            f"        {_TWO}",
            "mixed, weights = self.attention(self.norm1(x), mask)\n"
            "        x = x + self.dropout(mixed)\n"
            "        x = x + self.dropout(self.feed_forward(self.norm2(x)))",
            "The norms come before the parts, as in newer models. Here they come after each sum.",
        ),
        Mistake(
            "first sum missing",
            _ONE,
            "x = self.norm1(self.dropout(mixed))",
            "x is not added to what attention found, so what stood there is lost.",
        ),
        Mistake(
            "second sum missing",
            _TWO,
            "x = self.norm2(self.dropout(thought))",
            "What came in is not added to what feed-forward found.",
        ),
        Mistake(
            "first sum late",
            _ONE,
            "x = x + self.norm1(self.dropout(mixed))",
            "After attention the norm comes first and the sum second.",
        ),
        Mistake(
            "second sum late",
            _TWO,
            "x = x + self.norm2(self.dropout(thought))",
            "After feed-forward the norm comes first and the sum second.",
        ),
        Mistake(
            "norm used twice",
            _TWO,
            "x = self.norm1(x + self.dropout(thought))",
            "One norm is used twice; the other is never asked.",
        ),
        Mistake(
            "norms shared",
            "self.norm2 = nn.LayerNorm(d_model)",
            "self.norm2 = self.norm1",
            "Both norms are one module with two names, so they cannot learn different things.",
        ),
        Mistake(
            "norms exchanged",
            f"{_ONE}\n        {_THINK}\n        {_TWO}",
            "x = self.norm2(x + self.dropout(mixed))\n"
            "        x = self.norm1(x + self.dropout(self.feed_forward(x)))",
            "norm1 and norm2 are exchanged.",
        ),
        Mistake(
            "first norm missing",
            _ONE,
            "x = x + self.dropout(mixed)",
            "The first sum is not normalized.",
        ),
        Mistake(
            "second norm missing",
            _TWO,
            "x = x + self.dropout(thought)",
            "The second sum is not normalized.",
        ),
        Mistake(
            "mask lost",
            "self.attention(x, mask)",
            "self.attention(x)",
            "The mask is not handed on to attention.",
        ),
        Mistake(
            "inverted mask",
            "self.attention(x, mask)",
            "self.attention(x, None if mask is None else ~mask)",
            "The mask is handed on the wrong way round: True means that a position may be attended "
            "to.",
        ),
        Mistake(
            "side by side",
            f"{_ONE}\n        {_THINK}",
            "thought = self.feed_forward(x)\n        x = self.norm1(x + self.dropout(mixed))",
            "Feed-forward gets the block's input. It gets what the first norm returned.",
        ),
        Mistake(
            "first input added",
            f"{_ONE}\n        {_THINK}\n        {_TWO}",
            "a = self.norm1(x + self.dropout(mixed))\n"
            "        x = self.norm2(x + self.dropout(self.feed_forward(a)))",
            "The block's input is added twice. The second sum adds what the first norm returned.",
        ),
        Mistake(
            "attention undropped",
            _ONE,
            "x = self.norm1(x + mixed)",
            "What attention found is never dropped.",
        ),
        Mistake(
            "thought undropped",
            _TWO,
            "x = self.norm2(x + thought)",
            "What feed-forward found is never dropped. Its own dropout is inside, before its last "
            "layer.",
        ),
        Mistake(
            "sums dropped",
            f"{_ONE}\n        {_THINK}\n        {_TWO}",
            "x = self.norm1(self.dropout(x + mixed))\n"
            "        x = self.norm2(self.dropout(x + self.feed_forward(x)))",
            "Dropout is applied to the sums, so the way past the parts is cut as well.",
        ),
        Mistake(
            "norms dropped",
            f"{_ONE}\n        {_THINK}\n        {_TWO}",
            "x = self.dropout(self.norm1(x + mixed))\n"
            "        x = self.dropout(self.norm2(x + self.feed_forward(x)))",
            "Dropout comes after the norms. It comes before the sums.",
        ),
        Mistake(
            "always dropped",
            "self.dropout(mixed)",
            "nn.functional.dropout(mixed, self.dropout.p)",
            "Numbers are dropped in evaluation as well: a function does not know the mode unless "
            "it is told.",
        ),
        Mistake(
            "weights averaged",
            "return x, weights",
            "return x, weights.mean(dim=1)",
            "The weights are averaged over the heads. Return those of every head.",
        ),
        swapped_mistake("return x, weights", "return weights, x"),
        Mistake(
            "no weights",
            "return x, weights",
            "return x",
            "Only the new x is returned. The weights of attention are asked as well.",
        ),
        Mistake(
            "another eps",
            "self.norm1 = nn.LayerNorm(d_model)",
            "self.norm1 = nn.LayerNorm(d_model, eps=1e-3)",
            "norm1 has another eps than PyTorch's own.",
        ),
    ),
    hints=(
        "What is at a position if a part of the block finds nothing and returns 0?",
        "Two times the same three steps: a part, a sum with its own input, a norm.",
        "x → attention → dropout → + x → norm1 = a; a → feed-forward → dropout → + a → norm2.",
        "Call attention with x and the mask and keep both answers. Overwrite x with the first "
        "normalized sum before feed-forward reads it.",
    ),
    banned=("TransformerEncoderLayer", "TransformerEncoder", "MultiheadAttention"),
    picture=draw_picture,
)  # fmt: skip
