"""Text as tables: encoding, separator, decimal commas, and columns of text that hold numbers."""

import codecs
import csv
import io
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mtnet.errors import InputError

BLANK = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null")
"""Texts that are missing values in every table; `--na` adds others."""
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
SEPARATORS = ("\t", ";", ",")
"""If a file can be read with several of them, the first is taken."""
BLOCK = 2**26
"""Bytes that are parsed at once; a row must be shorter."""
LOOK_AT = 20
"""Lines that the separator is chosen by."""
DECIMAL_COMMA = r"[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?"

Warn = Callable[[str], None]


def parse_text(data: bytes, path: Path, warn: Warn) -> tuple[pa.Table, str]:
    """A table with text columns only, and its separator."""
    text = decode_text(data, path, warn) + "\n"
    if not text.strip():
        raise InputError(f"{path} is empty")
    invalid: list[pyarrow.csv.InvalidRow] = []

    def stop(row: pyarrow.csv.InvalidRow) -> str:
        invalid.append(row)
        return "error"

    try:
        separator = "\t" if path.suffix == ".tsv" else choose_separator(text)
        rows = csv.reader(io.StringIO(text), delimiter=separator)
        names = next((row for row in rows if row), [])
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text.encode()),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK),
            pyarrow.csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=stop
            ),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        return table, separator
    except csv.Error as error:
        raise InputError(f"cannot read {path}: {error}") from None
    except pa.ArrowInvalid:
        if not invalid:
            raise
        row = invalid[0]
        raise InputError(
            f"{path}, row {row.number - 1} has {row.actual_columns} values, the header "
            f"{row.expected_columns}: check its separators and quotes: {row.text[:40]!r}"
        ) from None


def decode_text(data: bytes, path: Path, warn: Warn) -> str:
    """UTF-8 or UTF-16 as the first bytes say; Latin-1 if it is not UTF-8."""
    encoding = next((name for mark, name in MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            row = data[: error.start].decode(encoding, "ignore").count("\n")
            raise InputError(f"{path}, row {row}: not valid {encoding[:6].upper()}") from None
        text = data.decode("latin-1")
        row = data[: error.start].count(b"\n")
        place = f"row {row}" if row else "its header"
        warn(f"{path} is not UTF-8 ({place}): read as Latin-1")
    if "\0" in text:
        row = text[: text.index("\0")].count("\n")
        raise InputError(f"{path}, row {row}: not text; save the table as CSV in UTF-8")
    return text


def choose_separator(text: str) -> str:
    """The separator with which the first lines have most values, equally many in each."""
    lines = list(itertools.islice((t for t in text[:100_000].splitlines() if t), LOOK_AT))
    if len(lines) == LOOK_AT or len(text) > 100_000:
        lines = lines[:-1]  # it may be cut off
    header = {s: len(next(csv.reader(lines[:1], delimiter=s), [])) for s in SEPARATORS}

    def agreed(separator: str) -> int:
        counts = {len(row) for row in csv.reader(lines, delimiter=separator)}
        return header[separator] if len(counts) == 1 else 0

    best = max(SEPARATORS, key=agreed)
    if agreed(best) < 2:  # some line is not valid: trust the header
        best = max(SEPARATORS, key=lambda s: header[s])
    return best if header[best] > 1 else ","


def typed(values: pa.ChunkedArray, na: Sequence[str], decimal_comma: bool) -> pa.ChunkedArray:
    """A text column as what all its values are: whole numbers, numbers, true and false, or text.

    Args:
        values: The column, of any type; only text is changed.
        na: Texts that stand for missing values, besides `BLANK`.
        decimal_comma: Whether 1,5 is a number.
    """
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    values = pc.utf8_trim_whitespace(values.cast(pa.string()))
    missing = pc.is_in(values, value_set=pa.array([*BLANK, *(mark.strip() for mark in na)]))
    values = pc.if_else(missing, pa.scalar(None, pa.string()), values)
    numbers = _cast(values, pa.float64())
    if numbers is not None:
        whole = _cast(values, pa.int64())
        return numbers if whole is None else whole
    if decimal_comma and pc.all(pc.match_substring_regex(values, f"^{DECIMAL_COMMA}$")).as_py():
        return pc.replace_substring(values, ",", ".").cast(pa.float64())
    truth = _cast(values, pa.bool_())
    return values if truth is None else truth


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The values as another type, or None if one of them cannot be."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None
