"""The command line, as a person meets it."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import Here

import mtnet
from mtnet import commands
from mtnet.cli import COMMANDS, main
from mtnet.commands.flags import used_settings
from mtnet.commands.reproduce import command_to_repeat
from mtnet.config import NAMES as SETTINGS
from mtnet.evaluation.compare import paired
from mtnet.experiments import EXPERIMENTS, run as experiments
from mtnet.experiments.figure4 import FIGURE4
from mtnet.experiments.page import report
from mtnet.experiments.run import Plan, reproduce
from mtnet.experiments.table1 import TABLE1, TABLE1_ALSO
from mtnet.experiments.table2 import TABLE2
from mtnet.methods import METHODS
from mtnet.revision import git_commit
from mtnet.storage.pretrained import pretrained_names
from mtnet.tasks import FAMILIES

TINY = "--width 4 --depth 1 --meta-batch 2 --iterations 500 --seeds 0 1".split()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """In an empty directory and, like the workers that it starts, in single precision."""
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False):
        yield


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"mtnet {mtnet.__version__}"


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for name in [*METHODS, *FAMILIES, *EXPERIMENTS, *pretrained_names()]:
        assert re.search(rf"^ *{name} +\S", out, re.MULTILINE)


NAMES = [name for group in COMMANDS.values() for name in group]
HELPS = ["", *NAMES, "data get", "data check", "data show", "fit --images DIR"]
HELPS += ["train --family omniglot --method prototypical"]


@pytest.mark.parametrize("command", HELPS)
def test_help_fits_in_80_columns_and_shows_no_none(capsys, command):
    assert main([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: mtnet")
    assert max(map(len, out.splitlines())) <= 80
    assert "None" not in out


def test_help_groups_the_commands(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.index("your data:") < out.index("research:") < out.index("\ndata:")
    assert "Start with: mtnet fit data.csv" in out
    files = {path.stem for path in Path(commands.__file__).parent.glob("*.py")}
    assert set(NAMES) <= files
    for name in NAMES:
        assert re.search(rf"^  {name} +\S", out, re.MULTILINE)


def flags(capsys, command):
    assert main([*command.split(), "--help"]) == 0
    return set(re.findall(r"--[a-zA-Z-]+", capsys.readouterr().out))


def test_help_shows_the_flags_of_family_and_method_only(capsys):
    sine, maml = flags(capsys, "train"), flags(capsys, "train --method maml")
    images = flags(capsys, "train --family omniglot")
    assert {"--width", "--at-test", "--invariant"} <= sine
    assert not {"--ways", "--filters", "--order", "--validate-every", "--data"} & sine
    assert sine - maml == {"--relaxation", "--temperature", "--draw", "--at-test", "--zeta-sd"} | {
        "--zeta-mean",
        "--invariant",
    }
    assert {"--ways", "--filters", "--validate-every", "--rotations"} <= images
    assert not {"--width", "--order"} & images
    table, folder = flags(capsys, "fit"), flags(capsys, "fit --images DIR")
    assert {"--task", "--inputs", "--target", "--width"} <= table
    assert {"--images", "--size", "--ways"} <= folder
    assert not {"--family", "--data", "--seeds", "--sweep", "--zeta-sd", "--config"} & table
    assert not {"--task", "--width"} & folder


def test_every_setting_is_a_flag_of_some_family():
    used = {s for family in FAMILIES for method in METHODS for s in used_settings(family, method)}
    assert used == set(SETTINGS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train --method mtnet", "did you mean mt-net?"),
        ("train --family sin", "did you mean sine?"),
        ("train --shots 0", "shots must be at least 1"),
        ("train --alpha -0.1", "alpha must be a positive number"),
        ("train --alpha nan", "alpha must be a positive number"),
        ("train --temperature 0", "temperature must be a positive number"),
        ("train --steps -1", "steps must be 0 or more"),
        ("train --iterations 0", "iterations must be at least 1"),
        ("train --family polynomial --order -1", "order must be 0 or more"),
        ("train --seeds", "seeds must name at least one"),
        ("train --checkpoint-every 0", "checkpoint_every must be at least 1"),
        ("train --resume nowhere", "nowhere is not a run folder"),
        ("train --init-from nowhere", "there is no file nowhere; pretrained networks: "),
        ("train --config nowhere.toml", "cannot read nowhere.toml"),
        ("train --config unknown.toml", "unknown.toml: there is no setting called 'aplha'"),
        ("train --config kind.toml", "kind.toml: iterations cannot be 'many'"),
        ("train --config broken.toml", "broken.toml is not valid"),
        ("train --resume . --alpha 0.5", "--resume uses the run's own settings"),
        ("train --family omniglot --order 3", "--order changes nothing for mt-net on omniglot"),
        ("train --query-scale 3", "--query-scale changes nothing for mt-net on sine tasks"),
        ("train --family omniglot --body-scale 3", "body_scale is for a body that training starts"),
        ("train --ways 3", "--ways changes nothing for mt-net on sine tasks: remove it"),
        ("train --method maml --at-test expected", "--at-test changes nothing for maml"),
        ("train --mehtod maml", "mtnet train has no flag --mehtod; did you mean --method?"),
        ("train extra", "unexpected argument 'extra'"),
        ("train --shots many", "error parsing --shots"),
        ("train --relaxation firm", "invalid choice 'firm'"),
        ("trian", "there is no command called 'trian'; did you mean train?"),
        ("data gte omniglot", "did you mean data get?"),
        ("data get omnoglot", "did you mean omniglot?"),
        ("fit data.csv", "missing from mtnet fit: --task COLUMN --inputs COLUMN"),
        ("fit --images DIR --task city", "--task is for tables"),
        ("fit data.csv --task a --inputs b --target c --zeta-sd 1", "only mtnet train has it"),
        ("fit --images DIR --width 3", "--width changes nothing for prototypical on images tasks"),
        ("evaluate .", ". is not a run folder"),
        ("reproduce tabel1", "did you mean table1?"),
        ("reproduce table3-mini", "one of table3-mini-imagenet, table3-mini-imagenet-paper?"),
        ("reproduce table1 --seeds 0", "seeds must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, tmp_path, arguments, says):
    (tmp_path / "unknown.toml").write_text("aplha = 0.1")
    (tmp_path / "kind.toml").write_text('iterations = "many"')
    (tmp_path / "broken.toml").write_text("alpha = = 3")
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments.split()) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_train_then_evaluate(capsys, tmp_path):
    (tmp_path / "c.toml").write_text('method = "t-net"\nalpha = 0.02\nwidth = 4')
    assert main(["train", "--config", "c.toml", *TINY, "--alpha", "0.03"]) == 0
    assert main(["train", "--config", "c.toml", *TINY]) == 0
    first, second = (
        json.loads((tmp_path / "runs" / n / "config.json").read_text())
        for n in ("t-net-sine", "t-net-sine-2")
    )
    assert (first["method"], first["alpha"], second["alpha"]) == ("t-net", 0.03, 0.02)
    capsys.readouterr()
    assert main("evaluate runs/t-net-sine --shots 5 10 --tasks 20 --steps 3".split()) == 0
    out = capsys.readouterr().out
    assert "5 shots" in out
    assert "10 shots" in out
    assert len(re.findall(r"│ +[0-3] │ +\d+\.\d+ │", out)) == 2 * 4


def tiny(experiment):
    """The experiment with its smallest trainings: one or three, two step sizes at most."""

    def trainings(quick, seeds):
        configs = list(experiment.trainings(True, seeds).items())
        small = {"iterations": 50, "log_every": 25, "width": 4}
        few = {"figure4": slice(None), "table1-also": slice(0, 2)}
        chosen = configs[few.get(experiment.name, slice(-1, None))]
        return {k: c.replace(sweep=c.sweep[-2:], **small) for k, c in chosen}

    def rows(configs):
        trained = {alpha for c in configs.values() for _, alpha in c.members}
        return [row for row in experiment.rows(configs) if row.alpha in trained]

    return experiment._replace(trainings=trainings, rows=rows)


def in_this_process(*_):
    """Instead of workers, which import and compile everything again."""
    return Here()


@pytest.mark.parametrize("experiment", [TABLE1, TABLE1_ALSO, TABLE2, FIGURE4], ids=lambda e: e.name)
def test_reproduce_writes_results_and_a_page_of_its_own(tmp_path, experiment, monkeypatch):
    if experiment is not TABLE2:  # processes of their own once
        monkeypatch.setattr(experiments, "pool_on", in_this_process)
    options = {"quick": True, "seeds": 2, "tasks": 20, "jobs": 2, "command": "c"}
    plan = Plan(tiny(experiment), tmp_path / "runs", tmp_path / "results", **options)
    found, runs = reproduce(plan)
    assert json.loads(plan.path.read_text()) == found
    assert {"experiment", "mtnet_version", "command", "protocol", "rows"} <= found.keys()
    assert found["commit"] == git_commit()
    for row in found["rows"]:
        assert len(row["per_seed"]) == 2
        assert row["tasks"] == 20
        assert len(row["by_step"]) == 11
        assert {"method", "column", "published", "mean", "ci95", "median", "diverged"} <= row.keys()
    assert found["notes"] or experiment in (TABLE1, TABLE1_ALSO)
    page = report(experiment, found, runs)
    assert page.count("data:image/png;base64,") >= 3
    assert not re.search(r"""(src|href)=["']?(http|//)""", page)
    if experiment is TABLE1:  # what is trained is found again
        before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
        again, _ = reproduce(plan)
        assert again == found
        columns = {row["column"]: row for row in found["rows"]}
        sampled, expected = (
            columns[f"10-shot, {name}"] for name in ("meta-batch 25", "expected masks")
        )
        assert expected["at_test"] == "expected"
        assert expected["by_step"][0] == sampled["by_step"][0]
        assert expected["mean"] != sampled["mean"]
        assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}


def test_reproducing_one_method_keeps_the_rows_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "pool_on", in_this_process)
    places = (tmp_path / "runs", tmp_path / "results")
    plan = Plan(tiny(TABLE1_ALSO), *places, "a", quick=True, seeds=1, tasks=20)
    one, other = "fine-tune", "nearest-neighbour"
    first, _ = reproduce(dataclasses.replace(plan, methods=(other,)))
    plan = dataclasses.replace(plan, methods=(one,), command="b")
    both, _ = reproduce(plan)
    assert [r["command"] for r in both["rows"]] == ["b"] * 3 + ["a"] * 3
    assert [r for r in both["rows"] if r["method"] == other] == first["rows"]
    assert (
        both["protocol"]["trainings"].keys()
        == both["curves"].keys()
        == {f"{one} b25", f"{other} b25"}
    )
    fewer, _ = reproduce(dataclasses.replace(plan, tasks=10))
    assert {r["method"] for r in fewer["rows"]} == {one}  # another protocol: nothing is kept


def test_the_command_of_results_names_no_folder():
    words = [
        "reproduce",
        "table1",
        "--runs",
        "/a b",
        "--results=/c",
        "--methods",
        "mt-net, T = c S",
    ]
    assert command_to_repeat(words) == "mtnet reproduce table1 --methods 'mt-net, T = c S'"
    assert command_to_repeat(words[:2]) == "mtnet reproduce table1"


def test_calls_at_the_same_time_keep_the_rows_of_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "pool_on", in_this_process)
    places = (tmp_path / "runs", tmp_path / "results")
    plan = Plan(tiny(TABLE1_ALSO), *places, "a", quick=True, seeds=1, tasks=20)
    measure, one, other = experiments.measure_all, "fine-tune", "nearest-neighbour"

    def meanwhile(*arguments):
        monkeypatch.setattr(experiments, "measure_all", measure)
        reproduce(dataclasses.replace(plan, methods=(other,)))
        return measure(*arguments)

    monkeypatch.setattr(experiments, "measure_all", meanwhile)
    both, _ = reproduce(dataclasses.replace(plan, methods=(one,)))
    assert {row["method"] for row in both["rows"]} == {one, other}


def test_runs_side_by_side(capsys, tmp_path):
    """On the same tasks: a run against itself is nothing apart, whatever tasks there are."""
    for name, more in (("a", []), ("b", ["--method", "maml"]), ("c", ["--shots", "5"])):
        assert main(["train", *TINY, *more, "--out", name]) == 0
    capsys.readouterr()
    out = tmp_path / "found.json"
    assert main(["compare", "a", "b", "a", "--tasks", "50", "--out", str(out)]) == 0
    assert "the same 50 tasks" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["mtnet_version"] == mtnet.__version__
    assert written["commit"] == git_commit()
    assert written["trainings"]["b"]["method"] == "maml"
    first, other, again = written["rows"]
    assert again["difference"] == again["difference_ci95"] == 0
    assert again["p"] is None
    assert first["mean"] == again["mean"]
    assert other["difference"] == pytest.approx(other["mean"] - first["mean"])
    assert 0 <= other["p"] <= 1
    assert main(["compare", "a", "c"]) == 2
    assert "their tasks are not the same" in capsys.readouterr().err
    assert main(["compare", "a"]) == 2
    assert "two run folders" in capsys.readouterr().err


def test_a_paired_test_sees_what_two_intervals_hide():
    """Tasks differ much more than the methods do."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 10, 200)
    ours, theirs = hard + 1 + rng.normal(0, 0.5, 200), hard + rng.normal(0, 0.5, 200)
    _, difference, ci95, p = paired(ours, theirs)
    assert abs(difference - 1) < 2 * ci95 < 0.5
    assert p < 1e-6
