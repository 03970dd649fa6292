"""Optional libraries: imported when they are needed, and transformers kept quiet."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnlab.errors import CouldNotRun


@contextmanager
def needed(name: str, what: str) -> Iterator[None]:
    """Import an optional library within the `with`; without it, raise what to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ImportError as error:
        raise CouldNotRun(
            f"{what} needs {name}, which cannot be imported ({error}): pip install 'attnlab[hf]'."
        ) from None


def import_transformers(what: str = "opening a pretrained model") -> Any:
    """Return transformers; without it, raise what to install."""
    with needed("transformers", what):
        import transformers
    return transformers


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars, warnings and advice off the terminal."""
    logging = import_transformers().utils.logging
    level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()
