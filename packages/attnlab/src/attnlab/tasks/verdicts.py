"""Twenty film verdicts, ten for and ten against, from `verdicts.tsv`: enough to watch a text
classifier, not to evaluate one."""

from pathlib import Path

_ROWS = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()

VERDICTS = tuple((text, label) for text, label in (row.split("\t") for row in _ROWS))
"""Each verdict with its label."""
