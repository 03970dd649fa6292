"""A heatmap of attention weights that can be read."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.compare import Figure, show_answer
from attnlab_course.exercise import Case, Check, Exercise, Failure

# %% [markdown]
# # A heatmap of attention
#
# Weights are a matrix, and a matrix is best looked at. But a picture misleads easily: rows and
# columns swapped, words beside the wrong cell, or shades that mean something else in each picture.
# The picture shows what yours may look like; colors and sizes are up to you.
#
# ![a heatmap](attention_heatmap.svg)
#
# **Write** `attention_heatmap(weights, queries, keys, title)`. It returns a matplotlib figure.
#
# | | |
# | --- | --- |
# | `weights` | a tensor (queries, keys) of numbers from 0 to 1 |
# | `queries`, `keys` | the words of the rows and of the columns, two lists; words may occur twice |
# | `title` | the heading |
#
# * One cell for each weight, drawn with `imshow` (or `matshow`, `pcolormesh`). Rows are queries,
#   the first on top; columns are keys, the first on the left. The weights are drawn as they are.
# * Each word is at the middle of its row or column, in full and in order.
# * The axis below is named `key` (or `keys`), the one on the left `query` (or `queries`); any
#   letter case.
# * The shades run from 0 to 1, whatever the weights are, so that two pictures can be compared; a
#   color bar says what they mean.
# * The heading is the title of the axes or of the figure.
# * `weights` may come straight from a model, with gradients attached.
#
# Return the figure; do not show it.

# %%
import matplotlib.pyplot as plt


def attention_heatmap(weights, queries, keys, title):
    """Return a figure of attention weights."""
    # >>> solution
    shown = weights.detach().numpy()
    figure, axes = plt.subplots()
    image = axes.imshow(shown, vmin=0.0, vmax=1.0, cmap="Blues")
    axes.set_xticks(range(len(keys)), keys, rotation=45)
    axes.set_yticks(range(len(queries)), queries)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    axes.set_title(title)
    figure.colorbar(image, label="attention weight")
    return figure
    # <<< solution


# %% [hints]
# 1. Whose weights sum to 1, those of a row or those of a column? Which of the two is a query?
# 2. imshow draws row 0 on top and puts the middle of cell n at n. What must be said besides:
#    where the words stand, and which numbers are the palest and the darkest shade.
# 3. imshow (vmin, vmax) · set_xticks and set_yticks (places, words) · set_xlabel, set_ylabel,
#    set_title · colorbar of the image. A tensor becomes an array after detach.
# 4. Make figure and axes, draw the image, put words at range(len(…)) on both axes, name both,
#    add heading and color bar, and return the figure.

# %% [mistakes]
# ## rows and columns swapped: Rows and columns are swapped: a row should be a query, a column a
# key.
# - weights.detach().numpy()
# + weights.detach().numpy().T
# ## upside down: The first query is at the bottom. Row 0 of a matrix belongs on top.
# - cmap="Blues")
# + cmap="Blues", origin="lower")
# ## words swapped: The rows bear the words of the keys and the columns those of the queries.
# -     axes.set_xticks(range(len(keys)), keys, rotation=45)
# -     axes.set_yticks(range(len(queries)), queries)
# +     axes.set_xticks(range(len(queries)), queries)
# +     axes.set_yticks(range(len(keys)), keys)
# ## half a cell off: The words stand between the cells, not at their middles.
# - axes.set_yticks(range(len(queries)), queries)
# + axes.set_yticks([n + 0.5 for n in range(len(queries))], queries)
# ## axis names swapped: The names of the axes are swapped: keys are the columns, so theirs stands
# below.
# -     axes.set_xlabel("key")
# -     axes.set_ylabel("query")
# +     axes.set_xlabel("query")
# +     axes.set_ylabel("key")
# ## shades of this picture alone: The shades run from the least weight of this picture to its
# largest. In the next picture the same shade means something else.
# - vmin=0.0, vmax=1.0, cmap
# + cmap

# %% [course]
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "more", "old", "red", "roof")


def main_axes(answer):
    """Return the facts of a figure's first axes that show an image, or a failure."""
    if not isinstance(answer, Figure):
        return Failure("expected a figure of matplotlib")
    for axes in answer.axes:
        if axes["images"] and not axes["is_color_bar"]:
            return dict(axes)
    return Failure("the figure shows no map: draw one with imshow, matshow or pcolormesh")


def case(random, queries, keys, look, tracked=False, repeat=False, largest=1.0, words=""):
    """Sample weights and words; `look` judges the axes with the map."""
    weights = random.dirichlet(np.ones(keys), size=queries) * largest
    rows, columns = (
        list(map(str, random.choice(WORDS, size, replace=False))) for size in (queries, keys)
    )
    if repeat:
        columns[-1] = columns[0]
        rows[-1] = rows[1]
    title = f"Head {random.integers(0, 9)}.{random.integers(0, 9)}"
    args = (T.from_numpy(weights).requires_grad_(tracked), rows, columns, title)

    def judge(answer):
        axes = main_axes(answer)
        if isinstance(axes, Failure):
            return axes
        return look(axes, answer, weights, rows, columns, title)

    return Case("attention_heatmap", args, judge=judge, words=words)


def cells_right(axes, figure, weights, *_):
    """The image is the weights, the right way up."""
    image = np.asarray(axes["images"][0], float)
    if image.shape == (weights.size,):
        image = image.reshape(weights.shape)
    if not is_map(image, weights):
        mistake = "rows and columns swapped" if is_map(image, weights.T) else None
        return Failure(
            f"expected a map of {show_answer(weights)}; got {show_answer(image)}", mistake
        )
    left, right, first, last = axes["corners"][0]
    if (axes["xlim"][1] - axes["xlim"][0]) * (right - left) < 0:
        return Failure("the first key is on the right; it belongs on the left")
    if (axes["ylim"][0] - axes["ylim"][1]) * (last - first) < 0:
        return Failure("the first query is at the bottom; it belongs on top", "upside down")
    return None


def is_map(image, weights):
    """Whether an image shows these weights."""
    return image.shape == weights.shape and np.allclose(image, weights, 1e-5, 1e-6)


def words_at(axes, which, count):
    """Return the words of an axis by the number of the cell in whose middle they stand."""
    start, end = axes["corners"][0][:2] if which == "x" else axes["corners"][0][2:]
    places = (np.asarray(axes[f"{which}places"], float) - start) / (end - start) * count - 0.5
    ticks = zip(places.round(2).tolist(), axes[f"{which}ticks"], strict=False)
    return {place: text for place, text in ticks if text}


def words_right(axes, figure, weights, rows, columns, title):
    """Each word is at its cell."""
    for which, side, names, others in (
        ("x", "columns", columns, rows),
        ("y", "rows", rows, columns),
    ):
        words = words_at(axes, which, len(names))
        if words == dict(enumerate(names)):
            continue
        texts = list(words.values())
        if texts == others:
            return Failure(f"the {side} bear the words of the other side", "words swapped")
        if texts == names and all(abs(place - n) == 0.5 for n, place in enumerate(words)):
            return Failure(f"the words of the {side} stand between cells", "half a cell off")
        return Failure(f"expected the words {names} at the cells of the {side}; got {words}")
    return None


def names_right(axes, *_):
    """The two axes are named."""
    below, beside = (axes[name].strip().lower() for name in ("xlabel", "ylabel"))
    if below in ("query", "queries") and beside in ("key", "keys"):
        return Failure("the names of the axes are swapped", "axis names swapped")
    if below not in ("key", "keys") or beside not in ("query", "queries"):
        labels = f"{axes['xlabel']!r} and {axes['ylabel']!r}"
        return Failure(f"expected the axes 'key' and 'query'; got {labels}")
    return None


def heading_right(axes, figure, *expected):
    """The title is there."""
    title = expected[-1]
    if title in (axes["title"], figure.title):
        return None
    return Failure(f"expected the heading {title!r}; got {axes['title'] or figure.title!r}")


def shades_right(axes, figure, weights, *_):
    """The shades run from 0 to 1, and a bar says so."""
    low, high = map(float, axes["colors"][0])
    if not any(part["is_color_bar"] for part in figure.axes):
        return Failure("there is no color bar")
    if (low, high) == (0.0, 1.0):
        return None
    is_alone = np.allclose([low, high], [weights.min(), weights.max()])
    mistake = "shades of this picture alone" if is_alone else None
    return Failure(f"expected shades from 0 to 1; they run from {low:.3g} to {high:.3g}", mistake)


def cells(random):
    """More rows than columns."""
    yield case(random, 3, 2, cells_right, largest=0.7)


def words(random):
    """As many rows as columns, so that swapped words raise no error."""
    yield case(random, 3, 3, words_right)


def axis_names(random):
    """The names of the axes."""
    yield case(random, 2, 3, names_right)


def headings(random):
    """The heading."""
    yield case(random, 2, 3, heading_right)


def shades(random):
    """The meaning of the shades."""
    yield case(random, 3, 4, shades_right, largest=0.6)


def repeated(random):
    """Words that occur twice."""
    yield case(random, 3, 4, words_right, repeat=True, words="with words that occur twice")


def tracked(random):
    """Weights with gradients attached."""
    yield case(random, 2, 3, cells_right, tracked=True, words="with gradients attached")


def draw_picture(names):
    """Draw weights of four queries on five keys."""
    random = np.random.default_rng(1)
    weights = T.from_numpy(random.dirichlet(np.full(5, 0.5), size=4))
    keys = ["the", "cat", "sat", "on", "it"]
    return names["attention_heatmap"](weights, ["it", "was", "a", "cat"], keys, "Head 0.1")


EXERCISE = Exercise(
    "A heatmap of attention",
    level=1,
    minutes=15,
    needs=("attention",),
    checks=(
        Check("cells", "shows the weights, queries as rows from the top", cells, points=2),
        Check("words", "puts each word at its cell", words, points=2),
        Check("axis names", "names the axes", axis_names),
        Check("shades", "has shades from 0 to 1 and a color bar", shades),
        Check("heading", "has the title as its heading", headings),
        Check("twice", "takes words that occur twice", repeated),
        Check("gradients", "takes weights with gradients attached", tracked),
    ),
    picture=draw_picture,
)
