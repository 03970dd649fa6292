"""Tests of the corpus search."""
