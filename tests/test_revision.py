"""Results name the commit of the code; outside a checkout there is none."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mtnet import revision

SOURCE = Path(revision.__file__)
CODE = "import revision; print(revision.git_commit())"


def commit_in(folder):
    command = [sys.executable, "-c", CODE]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def package(tmp_path):
    (tmp_path / "src").mkdir()
    shutil.copy(SOURCE, tmp_path / "src")
    return tmp_path / "src"


def test_there_is_no_commit_outside_a_checkout(package):
    assert commit_in(package) == "None"


def test_the_commit_says_whether_the_code_was_modified(package):
    git(package.parent, "init", "-q")
    assert commit_in(package) == "None"  # in a checkout, but not a part of it
    git(package.parent, "add", "src/revision.py")
    git(package.parent, "commit", "-q", "-m", "first")
    assert re.fullmatch("[0-9a-f]{40}", commit_in(package))
    (package.parent / "notes.md").write_text("not code")
    assert "dirty" not in commit_in(package)
    with (package / "revision.py").open("a") as file:
        file.write("# changed\n")
    assert re.fullmatch("[0-9a-f]{40}-dirty", commit_in(package))


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "results").glob("*.json")), ids=lambda p: p.stem
)
def test_every_stored_result_names_its_commit(path):
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", json.loads(path.read_text())["commit"])
