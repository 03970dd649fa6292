"""The learning rate of each step: up in a line, down along half a cosine."""

# %% [course]
from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_lines

# %% [markdown]
# # A learning rate that warms up and cools down
#
# Large first steps of Adam can ruin a transformer before it has begun, and large last steps keep it
# from settling. So the rate climbs in a straight line, then falls along half a cosine.
#
# ![the course of the rate](learning_rate.svg)
#
# **Write** `learning_rate(step, peak, warmup, steps, share=0.1)`. It returns a float.
#
# | | |
# | --- | --- |
# | `step` | the step, counted from 0 |
# | `peak` | the highest rate |
# | `warmup` | how many steps the climb takes; may be 0 |
# | `steps` | how many steps there are in all, more than `warmup` |
# | `share` | the last rate, as a share of the peak |
#
# * The climb goes through equal stages and never has a rate of 0: step 0 has `peak / warmup`,
#   step 1 has `2 · peak / warmup`, and step `warmup − 1`, the last of the climb, has `peak`.
# * Step `warmup`, the first of the descent, has `peak` as well.
# * The last step, `steps − 1`, has `share · peak`. Between the two the rate follows half a period
#   of a cosine, from its top to its bottom.
# * Any later step has `share · peak` too.
# * If the descent has only one step, that step has `peak`.

# %%
import math


def learning_rate(step, peak, warmup, steps, share=0.1):
    """Return the learning rate of a step."""
    # >>> solution
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min((step - warmup) / max(steps - 1 - warmup, 1), 1.0)
    height = (1 + math.cos(math.pi * progress)) / 2
    return peak * (share + (1 - share) * height)
    # <<< solution


# %% [hints]
# 1. At which two steps of the descent do you know the rate exactly?
# 2. Write the descent's progress as a number that is 0 at its first step and 1 at its last.
# 3. cos goes from 1 to −1 over half a period, π. Shift and shrink it to go from 1 to 0, then
#    stretch that to go from peak to share · peak.
# 4. If step < warmup: a share (step + 1) of warmup. Else progress, kept at most 1, then the
#    height of the cosine. How many stages lie between the first step of the descent and the
#    last?


# %% [mistakes]
# ## parentheses missing: A division comes before a sum: `1 + cos / 2` is not the mean of 1 and the
# cosine. Parentheses are missing.
# - height = (1 + math.cos(math.pi * progress)) / 2
# + height = 1 + math.cos(math.pi * progress) / 2
# or
# - return peak * (share + (1 - share) * height)
# + return peak * share + (1 - share) * height
# or
# - progress = min((step - warmup) / max(steps - 1 - warmup, 1), 1.0)
# + progress = min(step - warmup / max(steps - 1 - warmup, 1), 1.0)
# ## climbs a step too long: The climb goes on for one step too many, and overshoots the peak.
# - if step < warmup:
# + if step <= warmup and warmup:
# ## decays to zero: The rate falls to 0. It should end at a share of the peak.
# - return peak * (share + (1 - share) * height)
# + return peak * height
# ## divides by zero: With a single step of descent it divides by zero.
# - max(steps - 1 - warmup, 1)
# + (steps - 1 - warmup)
# ## cut off at the share: The cosine falls to 0 and is cut off at the share of the peak. Its bottom
# should lie there.
# - return peak * (share + (1 - share) * height)
# + return peak * max(share, height)


# %% [course]
def case(step, peak, warmup, steps, share=None, words=""):
    """Ask for the rate of one step."""
    settings = {} if share is None else {"share": share}
    args = (step, peak, warmup, steps)
    return Case("learning_rate", args, settings, words=words, tolerance=1e-9)


def sample(random, low=20, high=300):
    """Sample a peak, the length of the climb and the number of steps."""
    warmup = int(random.integers(5, 20))
    return float(random.uniform(0.5, 2.0)), warmup, warmup + int(random.integers(low, high))


def climbing(random):
    """Steps of the climb."""
    yield case(0, 1.0, 4, 20, words="at the first of 4 steps of warm-up")
    yield case(1, 1.0, 4, 20, words="at the second of 4 steps of warm-up")
    peak, warmup, steps = sample(random)
    yield case(warmup // 2, peak, warmup, steps)
    yield case(warmup - 1, peak, warmup, steps, words="at the last step of the climb")


def descending(random):
    """Steps within the descent."""
    yield case(7, 1.0, 4, 11, words="in the middle of the descent")
    peak, warmup, steps = sample(random)
    yield case(warmup + (steps - warmup) // 3, peak, warmup, steps)
    yield case(steps - 3, peak, warmup, steps, words="shortly before the end")


def turning(random):
    """The step at which the climb has ended."""
    peak, warmup, steps = sample(random)
    yield case(warmup, peak, warmup, steps, words="at the first step after the climb")
    yield case(warmup + 1, peak, warmup, steps, words="at the second step after the climb")


def ending(random):
    """The last step."""
    peak, warmup, steps = sample(random)
    yield case(steps - 1, peak, warmup, steps, words="at the last step")


def after(random):
    """Steps after the last."""
    peak, warmup, steps = sample(random, 20, 60)
    for more in (1, 7, steps):
        yield case(steps - 1 + more, peak, warmup, steps, words="after the last step")


def shares(random):
    """Shares other than a tenth."""
    peak, warmup, steps = sample(random)
    middle = warmup + (steps - warmup) // 2
    yield case(middle, peak, warmup, steps, 0.35, words="with share=0.35")
    yield case(steps - 1, peak, warmup, steps, 0.0, words="with share=0")


def without_climb(random):
    """No warm-up at all."""
    peak, _, steps = sample(random)
    yield case(0, peak, 0, steps, words="with no warm-up")
    yield case(steps // 3, peak, 0, steps, words="with no warm-up")


def one_left(random):
    """A descent of a single step."""
    yield case(4, float(random.uniform(0.5, 2.0)), 4, 5, words="where one step is left to descend")


def draw_picture(names):
    """Draw the rate over a hundred steps."""
    steps = range(115)
    rates = [names["learning_rate"](step, 1.0, 10, 100) for step in steps]
    title = "10 steps up, 90 steps down, and after"
    axes = ("step", "share of the peak")
    return draw_lines(title, axes, steps, {"rate": rates}, from_zero=True)


EXERCISE = Exercise(
    "A learning rate that warms up and cools down",
    level=2,
    minutes=15,
    checks=(
        Check("climb", "climbs in equal stages", climbing, points=2),
        Check("descent", "falls along half a cosine", descending, points=2),
        Check("turn", "begins the descent at the peak", turning),
        Check("end", "ends at the share of the peak", ending),
        Check("after", "stays low after the last step", after),
        Check("share", "takes other shares", shares),
        Check("no warm-up", "works without warm-up", without_climb),
        Check("one step", "works with a descent of a single step", one_left),
    ),
    picture=draw_picture,
)
