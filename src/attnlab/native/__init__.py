"""Native: C++ of ours, compiled where it runs and called from Python; whoever uses it has another way as well."""

from attnlab.native.compiler import NotCompiled, compiled, compiler_name, vector_bytes, vectors

__all__ = ["NotCompiled", "compiled", "compiler_name", "vector_bytes", "vectors"]
