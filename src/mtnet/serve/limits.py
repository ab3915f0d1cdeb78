"""What a request may ask for, and what the server keeps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a server."""

    tasks: int = 1000
    """Tasks; the least recently used is deleted for a new one."""
    seconds: float = 30.0
    """Of a request; longer ones are answered with 503."""
    connections: int = 200
    """Requests at the same time; more are answered with 503."""
    body: int = 8_000_000
    """Bytes of a request."""
    pixels: int = 4_000_000
    """Of an image."""
    images: int = 128
    """Per task."""
    rows: int = 1024
    """Of a table, per task."""
    query_images: int = 64
    """Per request."""
    query_rows: int = 1024
    """Per request."""
    ways: int = 20
    """Classes per task, of networks for any number of classes."""
    label: int = 80
    """Characters of the name of a class."""
    models: int = 64
    """Adapted networks in memory; those of other tasks are adapted again when they are used."""
    recent: int = 16
    """Tasks whose networks after every step are in memory."""


LIMITS = Limits()
