"""Networks as files: safetensors that PyTorch reads, JSON, and a folder as on Hugging Face."""

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.numpy import save

from mtnet.errors import InputError
from mtnet.export.network import ExportedNetwork, described, state_dict
from mtnet.export.readme import model_card
from mtnet.files import write_atomically


def as_safetensors(network: ExportedNetwork) -> bytes:
    """Arrays with the names and layouts of PyTorch; the metadata describe the network."""
    return save(state_dict(network), {"format": "pt", "network": json.dumps(described(network))})


def as_json(network: ExportedNetwork) -> bytes:
    """The description of the network, with the arrays of each layer as nested lists."""
    plain = described(network)
    for entry, layer in zip(plain["layers"], network.layers, strict=True):
        entry["arrays"] = {name: array.tolist() for name, array in layer.arrays.items()}
    return f"{json.dumps(plain, allow_nan=False)}\n".encode()


def check_torch(network: ExportedNetwork) -> None:
    """Raise an InputError if a layer is none of PyTorch's."""
    if any(layer.type == "Attention" for layer in network.layers):
        raise InputError(
            "matching attends to its examples, which no layer of torch.nn does: use --to onnx, "
            "--to safetensors or --to json"
        )


def write_safetensors(network: ExportedNetwork, path: Path) -> None:
    """One file of arrays."""
    write_file(path, as_safetensors(network))


def write_torch(network: ExportedNetwork, path: Path) -> None:
    """The same file, of a network that is a `torch.nn.Sequential`."""
    check_torch(network)
    write_safetensors(network, path)


def write_json(network: ExportedNetwork, path: Path) -> None:
    """One text file."""
    write_file(path, as_json(network))


def write_huggingface(network: ExportedNetwork, folder: Path) -> None:
    """config.json, model.safetensors and README.md, as in a model repository of Hugging Face."""
    check_torch(network)
    config = {"model_type": "mtnet", "architectures": ["Sequential"], **described(network)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    write_file(folder / "config.json", f"{json.dumps(config, indent=2)}\n".encode())
    write_file(folder / "model.safetensors", as_safetensors(network))
    write_file(folder / "README.md", model_card(network).encode())


def write_onnx(network: ExportedNetwork, path: Path) -> None:
    """One ONNX graph, checked."""
    try:
        from mtnet.export.onnx_graph import checked_model
    except ModuleNotFoundError as error:
        raise InputError(f"--to onnx needs {error.name}: pip install 'mtnet[onnx]'") from None

    write_file(path, checked_model(network).SerializeToString())


def write_file(path: Path, data: bytes) -> None:
    """The whole file, or nothing."""
    try:
        write_atomically(path, data)
    except OSError as error:
        missing = "" if path.parent.is_dir() else f" (there is no folder {path.parent})"
        raise InputError(f"cannot write {path}: {error.strerror}{missing}") from None


WRITERS: dict[str, tuple[str, Callable[[ExportedNetwork, Path], None]]] = {
    "onnx": (".onnx", write_onnx),
    "torch": (".torch.safetensors", write_torch),
    "safetensors": (".arrays.safetensors", write_safetensors),
    "json": (".json", write_json),
    "huggingface": ("-huggingface", write_huggingface),
}
"""How a format is written, and how the name of its file ends by default."""
