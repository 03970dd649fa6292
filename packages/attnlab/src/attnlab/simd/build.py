"""The source of compiled steps, and the library that is made of it."""

from pathlib import Path
from typing import Any

from attnlab import native
from attnlab.simd.terms import CompilationFailed


def source_of(head: str, function: str) -> str:
    """Put a whole source together: definitions, arithmetic, the function `gradient`, the steps
    around it."""
    here = Path(__file__).parent
    return "\n".join(
        [head, (here / "arithmetic.h").read_text(), function, (here / "step.h").read_text()]
    )


def compiled_library(source: str) -> Any:
    """Return the library of a source, compiled now or before.

    Raises:
        CompilationFailed: there is no compiler, or it does not compile this.
    """
    try:
        library = native.compiled(source, name="simd", has="steps")
    except native.NotCompiled as error:
        raise CompilationFailed(f"the steps could not be compiled: {error}") from None
    return library
