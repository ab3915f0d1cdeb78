"""One model per task of a file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_tables_dirty import FLAGS, TINY, records, write

import mtnet
from mtnet.adapted_tasks import _adapt
from mtnet.cli import main
from mtnet.core.losses import cross_entropy, mse, padded_cross_entropy, padded_mse
from mtnet.userdata.table_files import read_table


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        yield


@pytest.mark.parametrize("rows", [1, 4, 6])
def test_padding_does_not_change_the_loss(rows):
    draw, more = np.random.default_rng(rows), 6 - rows
    prediction, target = draw.normal(size=(2, rows + more, 3))
    labels = draw.integers(0, 3, rows + more)
    padded = jnp.asarray(np.where(np.arange(rows + more)[:, None] < rows, target, np.nan))
    one = mse(jnp.asarray(prediction[:rows]), jnp.asarray(target[:rows]))
    np.testing.assert_allclose(padded_mse(jnp.asarray(prediction), padded), one, rtol=1e-5)
    assert jnp.isfinite(jax.grad(padded_mse)(jnp.asarray(prediction), padded)).all()
    known = jnp.asarray(np.where(np.arange(rows + more) < rows, labels, -1))
    one = cross_entropy(jnp.asarray(prediction[:rows]), jnp.asarray(labels[:rows]))
    found = padded_cross_entropy(jnp.asarray(prediction), known)
    np.testing.assert_allclose(found, one, rtol=1e-5)


def predicted(model, table, name="predicted y"):
    assert main(["predict", model, table, "--out", "said.csv"]) == 0
    return read_table(Path("said.csv"))[name].to_pylist()


@pytest.mark.parametrize("classes", [False, True])
def test_many_tasks_at_once_are_each_alone(classes, capfd):
    """Also with unequal numbers of rows, and of classes; compiled once per padded size."""
    rows, options = records(3), []  # too few groups to hold some out
    if classes:
        for i, row in enumerate(rows):
            row["y"] = f"{row['g']}-{i % (2 + int(row['g'] == 'g1'))}"
        options = ["--shared-head"]
    write(rows)
    assert main(["fit", "data.csv", *FLAGS, *TINY, *options]) == 0
    groups = [[r for r in rows if r["g"] == f"g{g}"][: 6 + 3 * g] for g in range(3)]
    mixed = [row for group in groups for row in group]
    write(mixed[::-1], "many.csv")
    assert main(["adapt", "run", "many.csv", "--out", "many"]) == 0
    assert "adapted to 3 tasks, 27 examples" in " ".join(capfd.readouterr().out.split())
    name = "probability" if classes else "predicted y"
    write(mixed, "ask.csv")
    together, alone = predicted("many", "ask.csv", name), []
    for i, group in enumerate(groups):
        write(group, "one.csv")
        assert main(["adapt", "run", "one.csv", "--out", f"one{i}"]) == 0
        alone += predicted(f"one{i}", "one.csv", name)
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)
    assert mtnet.load("many").model("g1").about["task"] == "g1"
    write([*mixed, mixed[0] | {"g": "new"}], "ask.csv")
    capfd.readouterr()
    assert main(["predict", "many", "ask.csv"]) == 2
    assert "has no g 'new'" in capfd.readouterr().err


def test_many_tasks_are_one_program(monkeypatch):
    write(records(3))
    assert main(["fit", "data.csv", *FLAGS, *TINY]) == 0
    rows = [r | {"g": f"n{g}"} for g in range(300) for r in records(1)[: 3 + g % 6]]
    write(rows, "many.csv")
    calls = []
    monkeypatch.setattr("mtnet.adapted_tasks._adapt", lambda *a: calls.append(1) or _adapt(*a))
    assert main(["adapt", "run", "many.csv", "--out", "many"]) == 0
    assert len(calls) == 1
