"""In your own words: what designing weights by hand has shown."""

# %% [course]
from attnlab_course.exercise import Exercise

# %% [markdown]
# # In your own words: designed and learned
#
# You have written heads by hand and can have the same tasks learned: `attnlab run handmade` trains
# a head for each of the three and shows it beside a designed one. Run it, look at the eight panels
# of both heads for one task, and answer in **5 to 10 sentences**:
#
# * Which of the panels can be compared between a designed and a learned head, and which cannot? Say
#   what makes the difference, with an example from your run.
# * Did the learned head find your idea, or another one? Name what you looked at: an input, a
#   weight, a score.
# * What did you have to know about the longest input when you chose your gain, and what happens to
#   your head, and to the learned one, on an input that is longer?
#
# Name the run, the task and the seed that your numbers come from, so that a reader can look too.

# %%
answer = """
"""

# %% [hints]
# 1. If you multiply Km by 2 and divide Qm by 2, which of the eight panels look different, and
#    which could a reader of the outputs ever notice?
# 2. Put an input to both heads on which two ideas would differ: look at where the weight goes,
#    not at the matrices.
# 3. For the last question, write down how much weight the wrong keys get together, as a function
#    of their number.

# %% [course]
EXERCISE = Exercise(
    "In your own words: designed and learned",
    level=3,
    minutes=40,
    kind="text",
    needs=("identity", "copy_first", "same_head"),
    rubric=(
        "Says that Km, Qm, K and Q cannot be compared one by one, that Qm Kmᵀ, the attention and "
        "the outputs can, and why: another basis between keys and queries cancels.",
        "Compares the two heads by what they do on at least one named input, with numbers that "
        "the run contains.",
        "Explains how the needed gain grows with the length, and why a head can fail on inputs "
        "longer than those it was made for or trained on.",
        "Is precise and checkable: run, task and seed are named, and claims are no wider than "
        "what was looked at.",
    ),
)
