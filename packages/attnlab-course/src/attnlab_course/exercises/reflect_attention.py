"""In your own words: what scaling, masks and heads are for."""

# %% [course]
from attnlab_course.exercise import Exercise

# %% [markdown]
# # In your own words: attention
#
# You have written attention, its masks and its heads, and predicted what they do. Now explain it
# to a friend who knows what a matrix is and has never seen attention.
#
# **Write** 150 to 300 words into `answer`. Say:
#
# * why scores are divided by √width: what happens to weights and gradients if they are not. Name
#   at least one number that you measured in `scaling` or predicted;
# * why a mask must come before the softmax, and when a large negative number is no substitute for
#   −∞;
# * what several heads can do that one head as wide as all of them cannot;
# * one thing about attention that surprised you, or that you first had wrong, and what convinced
#   you. A picture or a run of your own that shows it is welcome: name it.
#
# A person reads it. Each of the four gives a point; no formula is needed.

# %%
# >>> solution
answer = """
A score sums as many products as queries and keys are wide. At a width of 256 scores spread over
about 16, and e to such distances gives nearly everything to one key: the largest of ten weights
was 0.93 on average. There the softmax is flat, and hardly any gradient comes back. Divided by the
root of the width the scores spread over about 1 at any width, and the largest weight was 0.32.

The softmax hands out a sum of 1. If masked keys are removed after it, their share is lost, and
the rest sums to less. Before it, a score of −∞ takes part with exactly 0. A number such as −100
works while the other scores are far above it. With other scores at −150 the masked keys take
nearly all, and if every key is masked, equal fills share evenly over keys that should be hidden.

One head makes one mean for each query. If a token needs its verb and its adjective, one softmax
must split its weight and blends their values. Two heads find each by its own queries and keys and
keep the two apart for the next layer.

I believed that without positions a shuffled sentence gives other outputs. My picture of the two
maps showed the same rows in another order: each token looks at a set.
"""
# --- starter
# answer = """
# Write here.
# """
# <<< solution


# %% [hints]
# 1. Which of your predictions was wrong, and what did you learn when you saw it?
# 2. Think of one query with ten scores, and tell what happens to it step by step.
# 3. Two sentences for each of the four points are enough. Numbers convince more than adjectives
#    do.

# %% [course]
EXERCISE = Exercise(
    "In your own words: attention",
    kind="text",
    level=2,
    minutes=30,
    needs=("scaling", "multi_head", "predict_attention"),
    rubric=(
        "Scaling: scores spread with the width, the softmax saturates and its gradient vanishes; "
        "with a number that was measured or predicted.",
        "Masks: a sum of 1 is handed out, so what is masked must be out before; a finite fill "
        "fails beside lower scores, or where every key is masked.",
        "Heads: one softmax gives one mean for each query; several keep several relations apart.",
        "A surprise or a mistake of one's own, with what convinced: a run, a picture, a number.",
    ),
)
