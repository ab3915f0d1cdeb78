"""onnxruntime-web, which runs ONNX graphs in a browser: two files of its npm package."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from mtnet.errors import InputError

PACKAGE, VERSION = "onnxruntime-web", "1.23.2"


class RuntimeFile(NamedTuple):
    source: str
    """Its name in the folder `dist` of the package."""
    name: str
    """Its name on the page."""
    sha256: str


FILES = (
    RuntimeFile(
        "ort.wasm.bundle.min.mjs",
        "ort.js",
        "cace3b98bee45c1c40ed04e07b984fb66012acacb702e6aecd9008239bf35e99",
    ),
    RuntimeFile(
        "ort-wasm-simd-threaded.wasm",
        "ort.wasm",
        "45eaee27761ad883742a8d4b8fce1538d60ce43b51adf1726fafccc59b8c1a15",
    ),
)


def runtime_files(package: Path | None) -> dict[str, bytes]:
    """The files by their names on the page.

    Args:
        package: Folder of the unpacked npm package. Default: npm fetches it.
    """
    if package is not None:
        return _read(package)
    with tempfile.TemporaryDirectory() as folder:
        return _read(_fetch(Path(folder)))


def _read(package: Path) -> dict[str, bytes]:
    """The files of the package, if they are those of the version that is pinned here."""
    folder = package / "dist" if (package / "dist").is_dir() else package
    found = {}
    for source, name, sha256 in FILES:
        path = folder / source
        if not path.is_file():
            raise InputError(f"{package} has no {source}: give the folder of {PACKAGE} {VERSION}")
        found[name] = path.read_bytes()
        if hashlib.sha256(found[name]).hexdigest() != sha256:
            raise InputError(f"{path} is not the file of {PACKAGE} {VERSION}: give that version")
    return found


def _fetch(folder: Path) -> Path:
    """The package, fetched and unpacked by name."""
    npm = shutil.which("npm")
    if npm is None:
        raise InputError(
            f"npm is missing, which fetches {PACKAGE}: install Node.js, or give the folder of "
            f"{PACKAGE} {VERSION} with --runtime"
        )
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    archive = next(folder.glob("*.tgz"), None)
    if told.returncode or archive is None:
        lines = [line for line in told.stderr.splitlines() if "error" in line.lower()]
        reason = " ".join((lines or ["it says nothing"])[0].split())
        raise InputError(
            f"npm could not fetch {PACKAGE} {VERSION} ({reason}): try again, or give its folder "
            "with --runtime"
        )
    with tarfile.open(archive) as members:
        for source, _, _ in FILES:
            members.extract(f"package/dist/{source}", folder, filter="data")
    return folder / "package"
