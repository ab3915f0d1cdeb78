"""Names of files."""

from pathlib import Path

SUFFIX = ".safetensors"


def with_suffix(path: Path) -> Path:
    """`model` means model.safetensors."""
    return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)
