"""Reading and writing tables, with errors that name the file, the column and the row."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from mtnet.errors import InputError, suggest
from mtnet.files import write_atomically
from mtnet.userdata.schema import check_size
from mtnet.userdata.text_tables import Warn, parse_text, typed

SUFFIXES = (".csv", ".tsv", ".parquet")


def read_table(path: Path, na: Sequence[str] = (), warn: Warn = lambda text: None) -> pa.Table:
    """Read a CSV, TSV or Parquet file; the suffix says which.

    Args:
        path: The file.
        na: Texts that stand for missing values.
        warn: Is told how the text was read, if not as UTF-8 with decimal points.
    """
    _check_suffix(path)
    if not path.is_file():
        if path.exists():
            raise InputError(f"cannot read {path}: it is not a regular file")
        raise InputError(f"there is no file {path}")
    try:
        if path.suffix == ".parquet":
            table, separator = pyarrow.parquet.read_table(path), ","
        else:
            table, separator = parse_text(path.read_bytes(), path, warn)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from None
    names = [name.strip() for name in table.column_names]
    if len(set(names)) < len(names):
        name = next(n for n in names if names.count(n) > 1)
        raise InputError(f"{path} has two columns called {name!r}")
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows")
    columns = [typed(values, na, separator != ",") for values in table.columns]
    if separator != ",":
        commas = [n for n, *c in zip(names, table.columns, columns, strict=True) if _commas(*c)]
        if commas:
            warn(f"{path}: decimal commas in {', '.join(commas)} (1,5 is read as 1.5)")
    return pa.table(columns, names=names)


def _commas(text: pa.ChunkedArray, values: pa.ChunkedArray) -> bool:
    """Whether a column of numbers was written with decimal commas."""
    return is_number(values.type) and bool(pc.any(pc.match_substring(text, ",")).as_py())


def read_column(table: pa.Table, name: str, path: Path | str) -> np.ndarray:
    """One column: float64 with nan for missing values, or object with None."""
    if name not in table.column_names:
        raise InputError(f"{path} has no column {name!r}; {suggest(name, table.column_names)}")
    values = table[name]
    if pa.types.is_nested(values.type):
        raise InputError(f"{path}, column {name!r}: its values are {values.type}, not numbers")
    if not is_number(values.type):
        return np.array(values.to_pylist(), dtype=object)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    check_size(name, numbers, str(path))
    return numbers


def is_number(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_table(path: Path) -> bool:
    return path.suffix in SUFFIXES


def _check_suffix(path: Path) -> None:
    if not is_table(path):
        raise InputError(f"{path} must end in .csv, .tsv or .parquet")


def write_table(path: Path, columns: pa.Table | dict[str, np.ndarray]) -> None:
    """Write a CSV, TSV or Parquet file; it is complete or not written."""
    _check_suffix(path)
    if path.suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pyarrow.parquet.write_table(pa.table(columns), sink)
        data = sink.getvalue().to_pybytes()
    else:
        data = as_csv(columns, "\t" if path.suffix == ".tsv" else ",")
    try:
        write_atomically(path, data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def as_csv(columns: pa.Table | dict[str, np.ndarray], separator: str = ",") -> bytes:
    sink = pa.BufferOutputStream()
    options = pyarrow.csv.WriteOptions(delimiter=separator)
    pyarrow.csv.write_csv(pa.table(columns), sink, options)
    return sink.getvalue().to_pybytes()
