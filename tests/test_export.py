"""Exported networks say what the model says."""

import json
import re
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from test_plain import IMAGES, header, inputs, network

from mtnet.adapted import Model
from mtnet.cli import main
from mtnet.core.norms import freeze_batch_stats
from mtnet.errors import InputError
from mtnet.export import onnx_graph
from mtnet.export.formats import as_json, write_huggingface, write_safetensors, write_torch
from mtnet.export.network import ExportedNetwork, predictions
from mtnet.export.onnx_graph import checked_model, random_inputs
from mtnet.export.readme import LOADER
from mtnet.files import arrays_of
from mtnet.nets.spec import NetSpec
from mtnet.plain.apply import apply_layers
from mtnet.plain.layers import Layer, plain_layers
from mtnet.storage.models import save_model
from mtnet.userdata.schema import Column, Schema, add_inputs, to_plain
from mtnet.userdata.table_files import read_table
from mtnet.userdata.trees import Trees

COLUMNS = (Column("day", 180.0, 100.0), Column("kind", levels=("a", "b")))
TREES = Trees(0.3, (0, 3), (0, 0, 0, 1, 0, 0), (1, 1, 2, 4, 4, 5), (2, 1, 2, 5, 4, 5),
              (0.25, -1.0, 2.0, 0.5, 0.1, -0.4))  # fmt: skip
"""Two trees of three nodes: a split, and two leaves."""


def schema(target, waves=0, base=None):
    return Schema("city", COLUMNS, target, missing="mean", waves=waves, base=base)


def table_network(waves=0, base=None, labels=()):
    """Of columns that become 3 inputs, `2 waves` more, and one more with a base."""
    levels = labels or None
    columns = schema(Column("y", 12.0, 5.0, levels=levels), waves, base)
    width = add_inputs(columns, np.zeros((1, 3), np.float32)).shape[1]
    spec = NetSpec("mlp", (width,), len(labels) or 1, 6, skip=base is not None)
    with jax.enable_x64(False):
        net = network(spec)
        more = {"kind": "table", "schema": to_plain(columns), "labels": list(labels), "task": None}
        about = header(spec, temperature=1.7 if labels else 1.0, **more)
        return net, ExportedNetwork(about, "", list(labels), plain_layers(arrays_of(net), about))


def image_network(spec, labels=("x", "y", "z"), invert=True):
    with jax.enable_x64(False):
        net = eqx.filter_jit(freeze_batch_stats)(
            network(spec), jax.numpy.asarray(inputs(spec, seed=2))
        )
        more = {"size": spec.inputs[1], "colour": False, "invert": invert}
        about = header(spec, kind="images", **more)
        return ExportedNetwork(about, "", list(labels), plain_layers(arrays_of(net), about))


def matching_network():
    net = image_network(IMAGES["strides"]._replace(outputs=None))
    draw = np.random.default_rng(0)
    arrays = {"features": draw.normal(size=(5, 4)), "labels": np.eye(3)[[0, 1, 2, 0, 1]]}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    return net._replace(layers=[*net.layers, Layer("Attention", {"scale": 10.0}, arrays)])


NETWORKS = {
    "numbers": lambda: table_network()[1],
    "waves and trees": lambda: table_network(waves=2, base=TREES)[1],
    "classes": lambda: table_network(labels=("no", "perhaps", "yes"))[1],
    "images": lambda: image_network(IMAGES["strides"]),
    "pooled images": lambda: image_network(IMAGES["pooling"], invert=False),
    "matching": matching_network,
}
each = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


@each
def test_the_onnx_graph_is_the_model(make):
    network = make()
    session = onnx_graph.onnxruntime.InferenceSession(checked_model(network).SerializeToString())
    values, x = random_inputs(network)
    fewer = {name: value[:3] for name, value in values.items()}
    said = session.run(None, fewer)
    expected = predictions(network, x[:3])
    scale = 1.0 if network.labels else 5.0
    np.testing.assert_allclose(said[0] / scale, expected / scale, atol=2e-5)
    if network.labels:
        assert [str(label) for label in said[1]] == [network.labels[i] for i in expected.argmax(1)]


def test_missing_and_unknown_values_are_encoded_in_the_graph():
    """nan is the mean, and an unknown or missing level is no level."""
    _, network = table_network()
    session = onnx_graph.onnxruntime.InferenceSession(checked_model(network).SerializeToString())
    day = np.array([[np.nan], [180.0]])
    kind = np.array([["what"], [""]], object)
    first, second = session.run(None, {"day": day, "kind": kind})[0]
    assert first == second


def test_a_graph_that_differs_is_not_written(monkeypatch):
    _, network = table_network()
    wrong = network._replace(layers=[*network.layers[:-1], _louder(network.layers[-1])])
    model = onnx_graph.onnx_model(wrong)
    monkeypatch.setattr(onnx_graph, "onnx_model", lambda _: model)
    with pytest.raises(InputError, match="differs from the network by"):
        checked_model(network)


def _louder(layer):
    return layer._replace(arrays=layer.arrays | {"weight": layer.arrays["weight"] * 1.01})


@each
def test_arrays_and_description_are_enough_to_apply_the_network(make, tmp_path):
    network = make()
    _, x = random_inputs(network)
    expected = apply_layers(network.layers, x)
    plain = json.loads(as_json(network))["layers"]
    write_safetensors(network, tmp_path / "a.safetensors")
    stored = load_file(tmp_path / "a.safetensors")
    for arrays in (
        lambda i: {n: np.array(a, np.float32) for n, a in plain[i]["arrays"].items()},
        lambda i: {n.split(".")[1]: a for n, a in stored.items() if n.startswith(f"{i}.")},
    ):
        layers = [Layer(a["type"], a["options"], arrays(i)) for i, a in enumerate(plain)]
        np.testing.assert_allclose(apply_layers(layers, x), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["numbers", "waves and trees", "pooled images"])
def test_the_loader_of_the_readme_gives_the_network_in_pytorch(name, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    network = NETWORKS[name]()
    write_huggingface(network, tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    _, x = random_inputs(network)
    said = names["net"](torch.from_numpy(np.asarray(x, np.float32))).detach().numpy()
    np.testing.assert_allclose(said, apply_layers(network.layers, x), rtol=1e-4, atol=1e-4)


def test_what_pytorch_has_no_layer_for_is_refused(tmp_path):
    for write in (write_torch, write_huggingface):
        with pytest.raises(InputError, match="--to onnx"):
            write(matching_network(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_folder_as_on_hugging_face_has_what_was_measured(tmp_path):
    _, network = table_network()
    rows = [{"method": "mt-net", "mean": 1.234}, {"method": "ridge regression", "mean": 2.5}]
    measured = {"metric": "root mean square error of y", "tasks": 500, "rows": rows}
    (tmp_path / "baselines.json").write_text(json.dumps(measured))
    about = network.about | {"base": {"run": str(tmp_path), "sha256": ""}}
    write_huggingface(network._replace(about=about), tmp_path / "folder")
    card = (tmp_path / "folder" / "README.md").read_text()
    assert "| mt-net | 1.234 |" in card
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["inputs"]["inputs"][0] == {
        "name": "day",
        "mean": 180.0,
        "spread": 100.0,
        "levels": None,
    }
    assert config["outputs"]["name"] == "y"


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model file, and rows to predict for."""
    monkeypatch.chdir(tmp_path)
    net, network = table_network()
    with jax.enable_x64(False):
        save_model(Path("model.safetensors"), Model(net, network.about))
    Path("rows.csv").write_text("day,kind\n1,a\n200,b\n365,a\n")
    return network


def test_the_command_writes_every_format(model, capsys):
    assert main(["predict", "model", "rows.csv", "--out", "said.csv"]) == 0
    said = read_table(Path("said.csv"))["predicted y"].to_pylist()
    assert main(["export", "model", "--to", "onnx"]) == 0
    session = onnx_graph.onnxruntime.InferenceSession("model.onnx")
    rows = {"day": np.array([[1.0], [200], [365]]), "kind": np.array([["a"], ["b"], ["a"]], object)}
    np.testing.assert_allclose(session.run(None, rows)[0][:, 0], said, rtol=1e-5)
    for to, file in {
        "torch": "model.torch.safetensors",
        "safetensors": "model.arrays.safetensors",
        "json": "model.json",
        "huggingface": "model-huggingface/model.safetensors",
    }.items():
        assert main(["export", "model.safetensors", "--to", to]) == 0
        assert Path(file).is_file()
    assert main(["export", "model", "elsewhere.json", "--to", "json"]) == 0
    assert Path("elsewhere.json").read_bytes() == Path("model.json").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model"], "a model with --to onnx"),
        (["model", "--to", "onnx", "--task", "oslo"], "no model of task 'oslo'"),
        (["model", "model.safetensors", "--to", "torch"], "is the model itself"),
        ([".", "--to", "onnx"], "adapt it with mtnet adapt"),
        (["model", "a", "b", "--to", "json"], "unexpected argument 'b'"),
        (["model", "no/such/folder.json", "--to", "json"], "there is no folder"),
        (["model.csv", "--to", "json"], "there is no file model.csv.safetensors"),
        (["model", "--to", "jsn"], "no format called 'jsn'; did you mean json?"),
        (["model", "--to", "pdf"], "there are: onnx, torch, safetensors, json, huggingface"),
    ],
)
def test_a_wrong_call_is_one_line(model, words, says, capsys):
    before = sorted(Path().iterdir())
    assert main(["export", *words]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1
    assert sorted(Path().iterdir()) == before


def test_norms_of_the_batch_are_no_network_of_one_image(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = IMAGES["strides"]
    with jax.enable_x64(False):
        about = header(spec, frozen_stats=False, kind="images", size=9, colour=False, invert=False)
        about |= {"labels": ["x", "y", "z"], "task": None}
        save_model(Path("model.safetensors"), Model(network(spec), about))
    assert main(["export", "model", "--to", "onnx"]) == 2
    assert "--statistics inductive" in capsys.readouterr().err


def test_without_the_extra_one_line_says_what_to_install(model, monkeypatch, capsys):
    for name in ("mtnet.export.onnx_graph", "mtnet.export.onnx_table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", "model", "--to", "onnx"]) == 2
    assert "pip install 'mtnet[onnx]'" in capsys.readouterr().err


def snippet():
    """The PyTorch code of docs/export.md."""
    page = (Path(__file__).parent.parent / "docs" / "export.md").read_text()
    (code,) = [c for c in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "import torch" in c]
    return code


def test_the_documents_open_the_file_that_the_command_writes(model):
    assert main(["export", "model", "--to", "torch"]) == 0
    written = 'safe_open("model.torch.safetensors", "pt")'
    assert snippet().replace("new_city", "model").count(written) == 1
    assert Path("model.torch.safetensors").is_file()
    loader = LOADER.removeprefix("```python\n").removesuffix("```\n")
    assert snippet() == loader.replace("model.safetensors", "new_city.torch.safetensors")


@pytest.mark.parametrize("name", ["numbers", "waves and trees", "classes", "images"])
def test_the_snippet_of_the_documents_gives_the_network_in_pytorch(name, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    network = NETWORKS[name]()
    monkeypatch.chdir(tmp_path)
    write_torch(network, Path("new_city.torch.safetensors"))
    names = {}
    exec(snippet(), names)
    _, x = random_inputs(network)
    said = names["net"](torch.from_numpy(np.asarray(x, np.float32))).detach().numpy()
    np.testing.assert_allclose(said, apply_layers(network.layers, x), rtol=1e-4, atol=1e-4)
