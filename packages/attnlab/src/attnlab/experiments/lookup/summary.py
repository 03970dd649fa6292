"""The summary of a run of look-up: its paragraphs, with this run's numbers."""

from attnlab.display import plural
from attnlab.experiments.words import Numbers


def subtitle(numbers: Numbers) -> str:
    """Say in a sentence or two what the run is about."""
    sentences = []
    if numbers["table"]:
        sentences.append(
            f"An encoder–decoder of {numbers['parameters']:,} parameters learns three facts from "
            "shuffled words; its encoder has no positions."
        )
    if numbers["readers"]:
        sentences.append(
            "Facts that are new in every sample must be read, which takes bound or ordered words."
        )
    return " ".join(sentences)


def summary(numbers: Numbers) -> str:
    """Say what the run shows: the paragraphs of its parts."""
    paragraphs, table = [], numbers["table"]
    if table:
        paragraphs += [_heads(table), _mismatched(table)]
    if numbers["readers"]:
        paragraphs.append(_new_facts(numbers))
    return "\n\n".join(paragraphs)


def _heads(table: Numbers) -> str:
    heads, more_value = table["heads"], table["more_value"]
    is_so = "That is so" if more_value == heads else "Measured, it is not so"
    seen = "all of them" if table["seen_sets"] == 3 else f"{table['seen_sets']} of them at least"
    return (
        f"One would expect the heads of the cross-attention to copy the value. {is_so}: for the "
        f"query at [SOS], {more_value:,} of {heads:,} heads give more weight to the value than to "
        f"the key ({heads - more_value:,} the other way round); the key gets "
        f"{table['on_key']:.2f} on average and the value {table['on_value']:.2f}, where uniform "
        f"weights over five words would give 0.20. There are only three sets of words, {seen} in "
        "training, and each holds a word that no other has, so recognizing it would be enough."
    )


def _mismatched(table: Numbers) -> str:
    answers, follow, from_table = table["answers"], table["follow"], table["own"]
    so = "So both happen: in training they give the same answers."
    if follow == answers:
        so = "So here the value shown is copied."
    elif from_table == answers:
        so = "So here the key decides, by a table in the weights."
    return (
        "Is the value copied then, or is the table in the weights? Mismatched pairs tell: "
        f"{table['pairs']} keys with a value that is not theirs, put to {table['number']:,} "
        f"{plural(table['number'], 'model')}. Of {answers:,} answers {follow:,} are the value "
        f"shown, {from_table:,} the key's own, which is not in the input, and "
        f"{answers - follow - from_table:,} something else. {so}"
    )


def _new_facts(numbers: Numbers) -> str:
    facts, config = numbers["facts"], numbers["config"]
    so = "So the second part draws the facts" if numbers["table"] else "The facts are drawn"
    return (
        f"{so} afresh: {facts} {plural(facts, 'key')} with {facts} {plural(facts, 'value')}, "
        f"paired at random, a key as the question. There are {numbers['sets']} such sets of facts; "
        f"a model saw at most {numbers['samples']:,} of them, and one in {config.recall_held_out} "
        "pairs of a key and a value, asked afterwards too, never occurs in its training. The "
        "answer cannot be in the weights: it has to be read."
    )
