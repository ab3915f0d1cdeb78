"""`mtnet page`: the page of `mtnet serve` as files, whose networks learn in the browser."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from mtnet.commands.common import console, warn
from mtnet.commands.parse import OptionalPath, Strings, run as run_command
from mtnet.errors import InputError

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
Models = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN|FILE ...", help_behavior_hint="")]


def main(arguments: Sequence[str]) -> None:
    run_command(page, "page", arguments)


def page(
    folder: Folder, networks: Strings = (), model: Models = (), runtime: OptionalPath = None
) -> None:
    """Write the page of mtnet serve as static files that learn in the browser.

    Any web server of files can publish the folder; nothing that is drawn leaves the
    browser. The networks run in onnxruntime-web, which npm fetches once.

    Args:
        folder: Where to write: a new folder, or one of an earlier call.
        networks: Pretrained networks. Default: all for drawings and curves.
        model: Run folders, or files of mtnet export, of networks for drawings or sine waves.
        runtime: Folder of the npm package onnxruntime-web. Default: npm fetches it.
    """
    try:
        from mtnet.static_page.runtime import runtime_files
        from mtnet.static_page.write import check_folder, page_networks, write_page
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("onnx", "onnxruntime"):
            raise
        raise InputError(f"page needs {package}: pip install 'mtnet[cli,onnx]'") from None
    check_folder(folder)
    found = page_networks(networks, model, warn)
    files = runtime_files(runtime)
    size = write_page(folder, found, files, tell)
    console.print(
        f"Wrote {folder}: {len(found)} networks, {size / 1e6:.1f} MB. Look at it with: python -m "
        f"http.server --directory {folder}",
        highlight=False,
        soft_wrap=True,
    )


def tell(name: str) -> None:
    console.print(f"Comparing the graphs of {name} with the network", highlight=False)
