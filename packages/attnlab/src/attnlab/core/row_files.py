"""Rows of plain values as a file: Parquet, or CSV where pyarrow is not installed."""

import csv
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.core.store import write_bytes, write_text


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows to path.parquet, or path.csv, and return the file's path."""
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow
        import pyarrow.parquet

        content = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), content)
        write_bytes(path.with_name(f"{path.name}.parquet"), content.getvalue())
        return path.with_name(f"{path.name}.parquet")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path.with_name(f"{path.name}.csv"), text.getvalue())
    return path.with_name(f"{path.name}.csv")
