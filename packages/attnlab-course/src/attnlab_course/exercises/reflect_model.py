"""What a trained model shows, and what it does not, in the student's words."""

# %% [course]
from attnlab_course.exercise import Exercise

# %% [markdown]
# # What does the model know?
#
# You have built a model, trained it and looked into it. Write 200 to 300 words to a colleague who
# has seen only its validation accuracy and wants to use it. Tell her what you would trust it with.
#
# **Write** your text between the quotes of `answer`. It should
#
# * give at least two figures of your own runs, each with what it was measured on;
# * say how your data were split, and what the figures would mean if they had been split otherwise;
# * describe one text, or one source, on which the model is wrong or unsure, with the attention map
#   that goes with it, and say what the map shows and what it cannot show;
# * name one change to the model or the data, what you expect of it, and the measurement that would
#   show you wrong.
#
# Where you do not know, say so. Name the run or the figure that you speak of.

# %%
# >>> solution
answer = """
I would trust the model with nothing that matters yet, and here is why. I trained it three times on
twenty verdicts on films, each ten times, with seed 0 of the sentiment run. Split by text, four
texts were held out, and the trainings ended with 50, 100 and 75 per cent of them right. Split by
row, where copies of a text fall on both sides, all three ended with 100 per cent, and 19 of the 19
held-out texts had been trained on. That says that the model has a memory. Only
the other split says something about new texts, and with four of them little: one text is 25 points.

It is wrong on "a gloomy and soggy film": positive, at 0.65. It says the same, to the last digit, of
"a splendid and zany film", since all four words are missing in its vocabulary and get one id. The
maps are the same too. Head 0.0 puts 0.51 of its weight on "and". That is where the head looks; it
does not say that "and" made the verdict. For that I would have to change the weight and see what
becomes of the answer, which I have not done. I do not know what the model makes of denials either:
"not bad at all" came out negative, but "bad" was an unknown word there.

The change I would make first is more texts, not more layers. I expect the spread between trainings
to shrink. With two hundred distinct texts, forty held out, and ten seeds, I would be shown wrong if
the accuracy still differed by more than twenty points from seed to seed, or if the word counts of
the baseline were as often right as the model.
"""
# --- starter
# answer = """
# """
# <<< solution

# %% [hints]
# 1. Which of your figures would change most if another text, or another seed, were taken?
# 2. A map shows where a head looked. What would you have to change in the model to learn whether
#    it mattered?
# 3. A claim is worth more with the measurement that could have refuted it beside it.

# %% [course]
EXERCISE = Exercise(
    "What does the model know?",
    level=3,
    minutes=40,
    kind="text",
    needs=("train", "predict_sentiment", "scramble_test"),
    rubric=(
        "Two figures or more, of own runs, each with the data that it was measured on.",
        "The split is described, and what a leak would have done to the figures.",
        "A wrong or unsure case with its map; where a head looks is kept apart from why.",
        "A change, an expectation, and a measurement that could refute it; 200 to 300 words.",
    ),
)
