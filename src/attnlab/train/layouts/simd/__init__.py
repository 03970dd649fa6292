"""Lanes: our own compiler for populations of tiny models."""

from attnlab.train.layouts.simd.simd import Simd

__all__ = ["Simd"]
