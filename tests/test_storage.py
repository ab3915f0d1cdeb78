"""One `load` and one `save` for every kind of file; anything else is one clear line."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import mtnet
from mtnet.adapted import adapt_model
from mtnet.cli import main
from mtnet.config import configure
from mtnet.files import KINDS, pack, read_arrays, write_arrays
from mtnet.storage.run_folder import create_run
from mtnet.training.loop import train


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = configure(width=4, depth=1, meta_batch=2, iterations=2, log_every=1)
    with jax.enable_x64(False):
        made = create_run(tmp_path_factory.mktemp("storage") / "run", config)
        train(made)
    return made


@pytest.fixture
def files(run, tmp_path):
    """One file of each kind that the library writes."""
    network = mtnet.load(run.folder)
    mtnet.save(network, tmp_path / "network")
    support = mtnet.sine().sample(jax.random.key(0)).support
    mtnet.save(adapt_model(run.config, network.theta, support, None), tmp_path / "model")
    mtnet.save(mtnet.MTNetRegressor(width=3), tmp_path / "estimator")
    write_arrays(tmp_path / "dataset.safetensors", "dataset", {"x": np.zeros(3)}, about={})
    for kind in ("checkpoint", "images", "calibration", "task"):
        (tmp_path / f"{kind}.safetensors").write_bytes(pack(kind, {"x": np.zeros(3)}))
    return tmp_path


def same(a, b):
    return eqx.tree_equal(eqx.filter(a, eqx.is_array), eqx.filter(b, eqx.is_array))


def test_a_run_folder_and_its_network_load_alike(run, files):
    network, again = mtnet.load(run.folder), mtnet.load(files / "network.safetensors")
    assert same(network.theta, again.theta)
    assert network.config == again.config == run.config
    assert same(network.theta, mtnet.load(str(files / "network")).theta)  # without the suffix


def test_a_model_is_saved_and_loaded(run, files):
    model = mtnet.load(files / "model")
    support = mtnet.sine().sample(jax.random.key(0)).support
    expected = adapt_model(run.config, mtnet.load(run.folder).theta, support, None)
    assert same(model.net, expected.net)
    mtnet.save(model, files / "again")
    assert same(mtnet.load(files / "again").net, model.net)


def test_an_estimator_is_saved_and_loaded(files):
    assert mtnet.load(files / "estimator").width == 3


def test_a_pretrained_network_is_loaded_by_name():
    network = mtnet.load("omniglot-any-prototypical")
    model = network.adapt(jnp.zeros((5, 1, 28, 28)), jnp.arange(5))
    assert mtnet.predict(model, jnp.zeros((2, 1, 28, 28))).shape == (2, 5)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ((5, 3, 84, 84), jnp.arange(5), r"\(5, 3, 84, 84\); .* takes \(examples, 1, 28, 28\)"),
        ((1, 28, 28), 0, r"x has shape \(1, 28, 28\)"),
        ((1, 1, 28, 28), 0, "y is 0: give an array"),
    ],
    ids=["size", "one", "label"],
)
def test_examples_that_do_not_fit_a_network_are_one_line(unchecked, x, y, says):
    with pytest.raises(mtnet.InputError, match=says):
        mtnet.load("omniglot-any-prototypical").adapt(jnp.zeros(x), y)


def test_a_pretrained_network_adapts_to_as_many_classes_as_there_are():
    x = jax.random.uniform(jax.random.key(0), (7, 1, 28, 28))
    model = mtnet.load("omniglot-any-prototypical").adapt(x, jnp.arange(7))
    assert mtnet.predict(model, x).argmax(-1).tolist() == list(range(7))
    five = mtnet.load("omniglot-5way-mt-net")
    with pytest.raises(mtnet.InputError, match="for 5 classes; y has 7"):
        five.adapt(x, jnp.arange(7))


@pytest.mark.parametrize("kind", ["dataset", "checkpoint"])
def test_a_file_of_another_kind_is_one_line(files, kind):
    with pytest.raises(mtnet.InputError, match=rf"{kind}\.safetensors is a {kind}"):
        mtnet.load(files / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_classify_and_predict_say_what_a_wrong_file_is(files, kind, capsys):
    path = str(files / f"{kind}.safetensors")
    if kind != "network":
        assert main(["classify", "--network", path, "--support", "a", "--query", "b"]) == 2
        assert "Traceback" not in capsys.readouterr().err
    if kind != "model":
        assert main(["predict", path, "rows.csv"]) == 2
        assert KINDS[kind] in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_header_is_noticed(files, kind):
    path = files / f"{kind}.safetensors"
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    save_file(arrays, path, header | {"mtnet_version": json.dumps("9.9.9")})
    with pytest.raises(mtnet.InputError, match="checksum"):
        read_arrays(path)


def test_a_file_of_an_earlier_format_is_one_line(tmp_path):
    save_file({"x": np.zeros(2)}, tmp_path / "old.safetensors", {"sha256": "0", "config": "{}"})
    with pytest.raises(mtnet.InputError, match=r"old\.safetensors has format 1"):
        mtnet.load(tmp_path / "old")


def test_what_cannot_be_saved_or_found_is_one_line(tmp_path):
    with pytest.raises(mtnet.InputError, match="cannot save a dict"):
        mtnet.save({}, tmp_path / "x")
    with pytest.raises(mtnet.InputError, match="omniglot-5way-mt-net"):
        mtnet.load("omniglot")
