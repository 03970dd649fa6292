"""Layouts of a population: where its numbers are in memory, and what computes its steps."""
