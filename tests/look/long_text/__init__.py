"""Tests of long documents."""
