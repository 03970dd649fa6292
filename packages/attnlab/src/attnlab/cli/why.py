"""attnlab why: one score of a head, taken apart into the parts of the stream."""

import re
from pathlib import Path

from attnlab.cli.options import NO_OPTIONS, AsJson, PretrainedOptions
from attnlab.cli.output_folder import show_page
from attnlab.cli.prompts import ask
from attnlab.cli.terminal import print_json, say_lines


def why(
    run: str,
    /,
    *words: str,
    head: str,
    key: str,
    query: str = "-1",
    against: str | None = None,
    model_options: PretrainedOptions = NO_OPTIONS,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Show why a head's query looks at a key: the terms that its score is the sum of.

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
    out
        A page to write, with the terms as a map.
    as_json
        Print the result as JSON, all terms included.
    """
    from attnlab.experiments.viewer import show
    from attnlab.look.inputs import Call
    from attnlab.look.score_terms import score_terms

    question = ask(run, words, model_options)
    arguments, options, names = question.passage()
    terms = score_terms(
        question.model,
        Call(arguments, options, 1),
        names,
        head=head,
        query=_place(query),
        key=_place(key),
        against=None if against is None else _place(against),
    )
    if out is not None:
        show(terms, out=out)
    if as_json:
        print_json(terms.to_mapping())
        return 0
    say_lines(str(terms))
    if out is not None:
        show_page(out.parent, out.name)
    return 0


def _place(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else text
