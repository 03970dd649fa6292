"""attnlab why: one score of a head, taken apart into the parts of the stream, or its output into
keys."""

import re
from pathlib import Path

from attnlab.cli.options import NO_OPTIONS, AsJson, PretrainedOptions
from attnlab.cli.prompts import ask
from attnlab.cli.terminal import print_json, say, say_lines
from attnlab.errors import WrongUsage


def why(
    run: str,
    /,
    *words: str,
    head: str,
    key: str | None = None,
    query: str = "-1",
    against: str | None = None,
    logit: str | None = None,
    model_options: PretrainedOptions = NO_OPTIONS,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Show why a head's query looks at a key: the terms that its score is the sum of. Without a
    key, show what the head writes there, as a sum over all keys.

    Each term is a part of the query's stream (the tokens, a head, a feed-forward part) times a part
    of the key's stream.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a
        hub id.
    words
        The input, such as cab, or a text in quotes.
    head
        The head, LAYER.HEAD such as 3.5; in an encoder–decoder 'encoder 3.5', 'decoder 3.5' or
        'cross 3.5'.
    key
        The key: a token that is there once, or a position from 0; negative ones count from the end.
    query
        The query, likewise; by default the last position.
    against
        Another key, whose score is subtracted: what makes the head prefer the first.
    logit
        Without a key: a token whose logit is shown too, as what each key adds to it.
    out
        A page to write, with the numbers as a map.
    as_json
        Print the result as JSON, all numbers included.
    """
    from attnlab.experiments.viewer import show
    from attnlab.look.inputs import Call
    from attnlab.look.score_terms import why_of
    from attnlab.look.target_ids import target_ids

    if key is None and against is not None:
        raise WrongUsage("--against compares with the key that --key names; give --key too.")
    if key is not None and logit is not None:
        raise WrongUsage("--logit is for what a head writes; leave --key out.")
    question = ask(run, words, model_options)
    arguments, options, names = question.pass_inputs()
    model, call, ids = (
        question.model,
        Call(arguments, options, 1),
        target_ids(logit, question.model),
    )
    places = {"query": _place(query), "key": _place(key), "against": _place(against)}
    result = why_of(model, call, names, head=head, **places, target=ids)
    if out is not None:
        show(result, out=out)
    if as_json:
        print_json(result.to_mapping())
        return 0
    say_lines(str(result))
    if out is not None:
        say(f"page     {out}")
    return 0


def _place(text: str | None) -> int | str | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else text
