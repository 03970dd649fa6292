"""Grading a class: submissions, points, reports, tables."""
