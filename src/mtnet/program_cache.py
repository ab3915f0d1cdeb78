"""Compiled programs are kept between runs, in the user's cache folder, up to a bound.

This file does not import JAX: it sets the environment, which JAX reads when it is imported, and
which worker processes inherit.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from mtnet.files import cache_root

FOLDER = "JAX_COMPILATION_CACHE_DIR"
BOUND = 512 * 2**20
"""Bytes of all programs."""
RUN_ONCE = {"xla_backend_optimization_level": 0}
"""Options of `jax.jit` for a program that takes longer to compile than to run."""
WORTH_KEEPING = 0.05
"""Seconds: a program that compiles faster is not kept."""


def keep_programs() -> None:
    """Keep compiled programs; a cache that the user has set stays as it is."""
    if FOLDER in os.environ:
        return
    folder = cache_root() / "jax"
    settings = {
        FOLDER: str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(WORTH_KEEPING),
    }
    os.environ |= settings
    if "jax" in sys.modules:  # it has read the environment already
        import jax

        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)


def trim_programs(folder: Path | None = None, bound: int = BOUND) -> None:
    """Delete the programs that have not been used for longest, until the others fit the bound.

    Args:
        folder: The cache. Default: that of mtnet; a user's own is left alone.
        bound: Bytes to keep.
    """
    folder = folder or cache_root() / "jax"
    files = []
    for path in folder.glob("*"):
        with suppress(OSError):  # another process may delete it now
            about = path.stat()
            files.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= bound:
            break
        with suppress(OSError):
            path.unlink()
        total -= size
