"""Operate: change what goes on inside a model, and know that it landed."""

from attnlab.operate.certificate import Certificate
from attnlab.operate.editing import edit
from attnlab.operate.edits import *  # noqa: F403
from attnlab.operate.edits import __all__ as _edits

__all__ = ["Certificate", "edit", *_edits]  # noqa: PLE0604
