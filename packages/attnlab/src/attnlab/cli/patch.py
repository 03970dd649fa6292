"""attnlab patch: values of one text put into the run of another, place by place."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from attnlab.cli.options import AsJson, PretrainedOptions, Strings, Switch
from attnlab.cli.output_folder import check_new_folder, create_folder, show_pages
from attnlab.cli.progress import counting
from attnlab.cli.prompts import open_prompts
from attnlab.cli.terminal import print_json, say_lines
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.edits.effects.pairs import PairFile


@Parameter(name="*")
@dataclass(frozen=True)
class PathOptions:
    """Where paths begin and end."""

    senders: Strings = None
    """With paths: the heads where paths begin, LAYER.HEAD such as 3.5; by default all."""

    receivers: Strings = None
    """With paths: the heads where paths end; by default the logits."""

    into: Strings = None
    """With paths: the inputs by which a receiving head is reached: query, key, value; by default
    all."""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `patch_paths`."""
        return {name: value for name, value in vars(self).items() if value is not None}


_ALL_PATHS = PathOptions()


def patch(
    run: str,
    clean: str | None = None,
    corrupted: str | None = None,
    /,
    *,
    pairs: Path | None = None,
    answer: str | None = None,
    wrong: str | None = None,
    what: Literal["stream", "heads", "attentions", "mlps", "paths"] | None = None,
    positions: Switch = False,
    direction: Literal["denoise", "noise"] = "denoise",
    estimate: Literal["gradient", "integrated"] | None = None,
    path_options: PathOptions = _ALL_PATHS,
    ends_in: str | None = None,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Patch values of one text's run into another's, and show which places carry the answer.

    Measured is the logit of the answer less that of the wrong one, at the next token, the masked
    word or the class.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/; or a pretrained model: a folder, a GGUF file or a
        hub id.
    clean
        The clean text, in quotes.
    corrupted
        The corrupted text, of as many tokens.
    pairs
        A CSV file with many pairs instead: the columns clean and corrupted, and answer and wrong
        where there are such. A pair that does not fit is refused, counted and named.
    answer
        The answer that is measured, such as " Mary"; by default the model's to the clean text.
    wrong
        The answer whose logit is subtracted; by default the likeliest other one to the corrupted
        text.
    what
        What is patched: the stream before each layer, position by position (the default); each
        head, the default for --pairs; each layer's attention or feed-forward part (mlps); or paths,
        the direct effect of one head on another or on the logits.
    positions
        Patch heads position by position; all else but paths is anyway.
    direction
        denoise puts clean values into the corrupted run, noise corrupted values into the clean run.
    estimate
        Estimate all patches from one pass with gradients (gradient) or sixteen (integrated),
        instead of patching; how far to trust that, attnlab truth estimates says.
    ends_in
        The model's output layer: none, causal-lm, masked-lm, …; by default the one its files
        name (pretrained models).
    out
        A folder to create: a page with the picture, and all numbers as patches.json.
    as_json
        Print the result as JSON, all numbers included.
    """
    from attnlab.core.store import write_json
    from attnlab.edits.effects import Metric, SweepOptions, patch_all, patch_paths
    from attnlab.edits.effects.pairs import Refusal
    from attnlab.experiments.viewer import show

    texts = _texts(pairs, clean, corrupted, answer, wrong)
    chosen = what or ("stream" if pairs is None else "heads")
    _check_what(chosen, positions, estimate, path_options)
    check_new_folder(out)
    model = open_prompts(run, PretrainedOptions(ends_in=ends_in)).model
    find = partial(patch_all, what=chosen, each_position=positions or None, estimate=estimate)
    if chosen == "paths":
        find = partial(patch_paths, **path_options.given)
    metric = Metric("logit_difference", target=texts.answer, others=texts.wrong)
    with counting(f"patch {chosen}", is_quiet=as_json) as tell:
        how = SweepOptions(progress=tell)
        result = find(
            model, texts.clean, texts.corrupted, metric=metric, direction=direction, how=how
        )
    refused = [Refusal(texts.rows[row], why) for row, why in result.refused]
    result = replace(result, refused=sorted([*texts.refused, *refused]))
    if out is not None:
        create_folder(out)
        write_json(out / "patches.json", result.to_mapping())
        show(result, out=out / "page.html")
    if as_json:
        print_json(result.to_mapping())
        return 0
    say_lines(str(result))
    show_pages(out, "page.html")
    return 0


def _texts(
    pairs: Path | None,
    clean: str | None,
    corrupted: str | None,
    answer: str | None,
    wrong: str | None,
) -> "PairFile":
    """Return the pairs of a file, or the one on the command line."""
    from attnlab.edits.effects.pairs import PairFile, read_pairs

    if pairs is not None:
        if (clean, answer, wrong) != (None, None, None):
            raise WrongUsage(
                "--pairs brings texts and answers; leave those on the command line out."
            )
        return read_pairs(pairs)
    if clean is None or corrupted is None:
        raise WrongUsage(
            "type a clean and a corrupted text after the model, in quotes; or --pairs."
        )
    return PairFile([clean], [corrupted], [answer], [wrong], [0], [])


def _check_what(
    what: str, positions: bool, estimate: str | None, path_options: PathOptions
) -> None:
    """Raise where an option does not go with what is patched."""
    if what != "paths" and path_options != _ALL_PATHS:
        raise WrongUsage("--senders, --receivers and --into go with --what paths.")
    if estimate is not None and what == "paths":
        raise WrongUsage("--estimate is for places; paths are patched.")
    if positions and what in ("paths", "attentions", "mlps"):
        raise WrongUsage(f"--positions is for heads; {what} takes none.")
