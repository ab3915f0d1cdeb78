"""Reading and writing CSV and Parquet, with errors that name the file, the column and the row."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mtnet.errors import InputError, suggest
from mtnet.files import write_atomically


def read_table(path: Path) -> pa.Table:
    """Read a CSV or Parquet file; the suffix says which."""
    readers = {".csv": _read_csv, ".parquet": pyarrow.parquet.read_table}
    if not is_table(path):
        raise InputError(f"{path} must end in .csv or .parquet")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        table = readers[path.suffix](path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from None
    if len(set(table.column_names)) < table.num_columns:
        name = next(n for n in table.column_names if table.column_names.count(n) > 1)
        raise InputError(f"{path} has two columns called {name!r}")
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows")
    return table


def _read_csv(path: Path) -> pa.Table:
    blank = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    return pyarrow.csv.read_csv(path, convert_options=blank)


def read_column(table: pa.Table, name: str, path: Path) -> np.ndarray:
    """One column: float64 with nan for missing values, or object with None."""
    if name not in table.column_names:
        raise InputError(f"{path} has no column {name!r}; {suggest(name, table.column_names)}")
    values = table[name]
    if is_number(values.type):
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.array(values.to_pylist(), dtype=object)


def is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal))


def is_table(path: Path) -> bool:
    return path.suffix in (".csv", ".parquet")


def write_table(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write a CSV or Parquet file; it is complete or not written."""
    if not is_table(path):
        raise InputError(f"{path} must end in .csv or .parquet")
    if path.suffix == ".csv":
        data = as_csv(columns)
    else:
        sink = pa.BufferOutputStream()
        pyarrow.parquet.write_table(_table(columns), sink)
        data = sink.getvalue().to_pybytes()
    try:
        write_atomically(path, data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def as_csv(columns: dict[str, np.ndarray]) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(_table(columns), sink)
    return sink.getvalue().to_pybytes()


def _table(columns: dict[str, np.ndarray]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})
