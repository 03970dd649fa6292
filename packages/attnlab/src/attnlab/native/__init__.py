"""Native: our C++ kernels, compiled where they run; every caller has another path too."""

from attnlab.native.compiler import NotCompiled, compiled, compiler_name, vector_bytes, vectors

__all__ = ["NotCompiled", "compiled", "compiler_name", "vector_bytes", "vectors"]
