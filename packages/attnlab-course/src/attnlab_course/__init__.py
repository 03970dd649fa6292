"""The course: exercises on attention, checks that name the mistake, and grading in a sandbox."""

import lazy_loader

# Commands are imported with every start of `attnlab`: what they need comes when it is used.
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"notebook": ["check"]})
