"""Rows of plain values as a file: Parquet, or CSV where pyarrow is not installed; and columns of
numbers as Parquet alone, with checksums."""

import csv
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.core.store import digest_of, write_bytes, write_text
from attnlab.errors import CouldNotRun

if TYPE_CHECKING:
    from torch import Tensor

_FACTS, _DIGEST = b"attnlab", b"attnlab.sha256"


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


def pack_columns(columns: "Mapping[str, Tensor | list[Any]]", facts: Mapping[str, object]) -> bytes:
    """Return a Parquet file of columns of one length; the same ones always give the same bytes.

    Args:
        columns: texts, or whole numbers and None, as lists; numbers as tensors, (row,) or, as lists
            of one length in the file, (row, n).
        facts: plain values, for the file's metadata.

    Every page of numbers has a checksum, and the facts with the names of the columns have one.
    """
    pyarrow = require_parquet()
    arrays = {}
    for name, column in columns.items():
        if isinstance(column, list):
            is_text = any(isinstance(value, str) for value in column)
            arrays[name] = pyarrow.array(column, pyarrow.string() if is_text else pyarrow.int64())
        elif column.numel():  # an empty one is left out
            values = pyarrow.array(column.flatten().numpy())
            if column.dim() > 1:
                values = pyarrow.FixedSizeListArray.from_arrays(values, column.shape[1])
            arrays[name] = values
    text = json.dumps({**facts, "columns": list(arrays)}).encode()
    metadata = {_FACTS: text, _DIGEST: digest_of(text).encode()}
    table, content = pyarrow.table(arrays, metadata=metadata), io.BytesIO()
    pyarrow.parquet.write_table(table, content, compression="zstd", write_page_checksum=True)
    return content.getvalue()


def read_columns(
    path: Path, names: Sequence[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read columns of a file that `pack_columns` made, all or those that it has of some; and its
    facts.

    Raises:
        CouldNotRun: it is missing or damaged, or pyarrow is not installed.
    """
    import torch

    pyarrow = require_parquet()
    columns: dict[str, Any] = {}
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            schema, table = file.schema_arrow, file.read(names)
        for name in table.column_names:
            column = table[name].combine_chunks()
            if pyarrow.types.is_fixed_size_list(column.type):
                values = torch.tensor(column.flatten().to_numpy(zero_copy_only=False))
                columns[name] = values.view(len(column), -1)
            elif pyarrow.types.is_floating(column.type):
                columns[name] = torch.tensor(column.to_numpy())
            else:
                columns[name] = column.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise CouldNotRun(f"could not read {path}: {str(error)[:200].rstrip('.')}.") from None
    metadata = schema.metadata or {}
    text = metadata.get(_FACTS, b"")
    if digest_of(text).encode() != metadata.get(_DIGEST):
        raise CouldNotRun(f"{path} is damaged: its facts do not fit their checksum.")
    facts = json.loads(text)
    if facts.pop("columns") != schema.names:
        raise CouldNotRun(f"{path} is damaged: its columns are not those that were written.")
    return columns, facts


def require_parquet() -> Any:
    """Return pyarrow.

    Raises:
        CouldNotRun: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CouldNotRun("a Parquet file needs pyarrow: pip install 'attnlab[text]'.") from None
    return pyarrow
