"""The progress bar of a notebook; scripts show none, and the command line has its own."""

import html
import sys
import time
from collections.abc import Mapping
from typing import Any

_PATIENCE = 0.5  # seconds before it appears: what is quick needs none
_PAUSE = 0.2  # seconds between two drawings


def is_notebook() -> bool:
    """Is this a notebook kernel, not a terminal?"""
    return getattr(_shell(), "kernel", None) is not None


def is_marimo() -> bool:
    """Is this a marimo notebook?"""
    return bool(getattr(sys.modules.get("marimo"), "running_in_notebook", lambda: False)())


def shows_pages() -> bool:
    """Is this a notebook of any kind, which shows pages in it?"""
    return is_notebook() or is_marimo()


def notebook_bar(title: str) -> "Bar | None":
    """Return a bar where IPython runs, in a notebook or a terminal; else None."""
    return None if _shell() is None else Bar(title)


class Bar:
    """One line, rewritten in its place; it observes a training, and counts anything else by
    `count`."""

    def __init__(self, title: str) -> None:
        self._title, self._stage, self._sentence = title, "", ""
        self._done, self._total = 0, 0
        self._figures: dict[str, float] = {}
        self._handle: Any = None
        self._drawn = time.monotonic() + _PATIENCE - _PAUSE

    def stage(self, name: str) -> None:
        """Begin another stage."""
        self._stage, self._figures, self._done, self._total = name, {}, 0, 0
        self._draw()

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Show the progress; `steps` is 0 if their number is unknown."""
        self._figures |= figures
        self._done, self._total = step, steps
        self._draw(is_last=step == steps)

    def tell(self, sentence: str) -> None:
        """Show a sentence beside the bar from now on."""
        self._sentence = sentence
        self._draw()

    def count(self, done: int, total: int = 0) -> None:
        """Show how many of a total are done."""
        self.step(done, total, {})

    def __repr__(self) -> str:
        stage = f"{self._title}: {self._stage}" if self._stage else self._title
        far = ""
        if self._total:
            far = f"{self._done:,} of {self._total:,}"
        elif self._done:
            far = f"{self._done:,}"
        return "  ".join(filter(None, (stage, far, figures_text(self._figures), self._sentence)))

    def _repr_html_(self) -> str:
        bar = ""  # without a total, it would look unfinished in a saved notebook
        if self._total:
            bar = f'<progress value="{self._done}" max="{self._total}"></progress> '
        return f'<div>{bar}<span role="status">{html.escape(repr(self))}</span></div>'

    def _draw(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if now - self._drawn < _PAUSE and not (is_last and self._handle is not None):
            return
        self._drawn = now
        if not is_notebook():
            self._handle = sys.stderr
            self._handle.write(f"\r\x1b[K{self!r}" + "\n" * is_last)
            self._handle.flush()
        elif self._handle is None:
            from IPython.display import display

            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)


def figures_text(figures: Mapping[str, float]) -> str:
    """Write the figures of a training in a few words."""
    shown = []
    if "loss" in figures:
        shown.append(f"loss {figures['loss']:.4f}")
    if "loss_low" in figures:
        shown[-1] += f" ({figures['loss_low']:.4f} to {figures['loss_high']:.4f})"
    for name, word in (("accuracy", "right"), ("solved", "solved")):
        if name in figures:
            shown.append(f"{word} {figures[name]:.1%}")
    return "  ".join(shown)


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
