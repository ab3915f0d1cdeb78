"""The git commit of the code that runs, for files of results."""

import subprocess
from functools import cache
from pathlib import Path

CODE = (":/src", ":/bench", ":/examples", ":/constraints.txt", ":/pyproject.toml")
"""What results depend on; a changed document or result does not make the code another one."""


@cache
def git_commit() -> str | None:
    """The commit, with "-dirty" if the code was modified since; None outside a checkout."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # installed, perhaps inside the checkout of another project
    commit = _git("rev-parse", "HEAD")
    modified = _git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
    return None if commit is None else commit + ("-dirty" if modified else "")


def _git(*arguments: str) -> str | None:
    """The output of a git command; None if it failed or there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
