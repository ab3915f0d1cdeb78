"""What a newcomer does first: interrupt, repeat, use few data, read a narrow terminal."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import mtnet
from mtnet import cli
from mtnet.commands import export
from mtnet.commands.common import columns_by_part
from mtnet.commands.compare import comparison_table
from mtnet.commands.fit_data import print_splits
from mtnet.commands.inspect import cells_table
from mtnet.commands.reproduce import print_results
from mtnet.commands.train import free_folder
from mtnet.config import configure
from mtnet.errors import InputError
from mtnet.storage.names import with_suffix
from mtnet.storage.networks import TrainedNetwork
from mtnet.storage.run_folder import create_run
from mtnet.training.processes import _interrupts_blocked
from mtnet.userdata.dataset import split_groups

TINY = configure(width=4, depth=1, meta_batch=2, iterations=3_000)
RESULTS = Path(__file__).parent.parent / "results"


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_line_starts_without_jax():
    """So that it can handle Ctrl-C before it imports what takes seconds."""
    result = python("-c", "import mtnet.cli, sys; print('jax' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_python_dash_m_mtnet():
    assert python("-m", "mtnet", "--version").stdout.startswith("mtnet ")


def test_an_interrupt_that_an_import_would_lose_is_one_line_and_status_130():
    code = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
import mtnet
from mtnet import cli
from mtnet.commands import export

def lossy(name):
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass

cli.import_module = lossy
sys.exit(cli.main(["list"]))
"""
    result = python("-c", code)
    assert (result.returncode, result.stderr) == (130, "mtnet: stopped by Ctrl-C\n")


def test_an_interrupted_command_is_one_line_and_status_130(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "mtnet: stopped by Ctrl-C\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_workers_leave_an_interrupt_to_their_parent():
    code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    with _interrupts_blocked():
        worker = python("-c", code)
    assert worker.stdout.strip() == "True"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_run_interrupted_before_its_first_iteration_blocks_nothing(tmp_path):
    folder = free_folder(tmp_path, TINY)
    run = create_run(folder, TINY)
    run.metrics.touch()
    assert free_folder(tmp_path, TINY) == folder
    assert create_run(folder, TINY) == run
    assert free_folder(tmp_path, TINY.replace(alpha=0.5)) != folder  # it may be starting now
    run.metrics.write_text('{"iteration": 500, "loss": [1.0], "seconds": 1.0}\n')
    assert free_folder(tmp_path, TINY) != folder
    with pytest.raises(InputError, match="--resume"):
        create_run(folder, TINY)


@pytest.mark.parametrize("per_task", [1, 2, 5])
@pytest.mark.parametrize("count", [3, 4, 9, 10, 12, 19, 20, 25, 40, 200])
def test_every_split_has_groups_for_its_tasks(count, per_task):
    splits = split_groups([str(i) for i in range(count)], seed=0, per_task=per_task)
    assert sorted(g for split in splits.values() for g in split) == list(range(count))
    train, validation, test = (len(splits[s]) for s in ("train", "validation", "test"))
    if count < 4 * per_task:
        assert validation == test == 0
    else:
        assert min(validation, test, train) >= per_task
        assert train >= count / 2 - per_task
        assert count < 10 or (validation >= 2 and test >= 3)


@pytest.mark.parametrize(
    ("test", "per_task", "says"),
    [
        (3, 1, "3 different tasks only"),
        (1, 1, "1 task only"),
        (5, 5, "1 task only"),
        (10, 1, ""),
        (7, 5, ""),
        (0, 1, "some are held out"),
    ],
)
def test_a_score_of_few_tasks_is_announced(capsys, monkeypatch, test, per_task, says):
    warnings = []
    monkeypatch.setattr("mtnet.commands.fit_data.warn", warnings.append)
    splits = {"train": list(range(9)), "validation": [0] * min(test, 1), "test": [0] * test}
    print_splits(splits, "groups", per_task)
    assert len(warnings) == (says != "")
    assert says in "".join(warnings)


def shown(monkeypatch, capsys, show):
    """What is printed in a terminal of 80 columns."""
    narrow = Console(width=80)
    monkeypatch.setattr("mtnet.commands.common.console", narrow)
    monkeypatch.setattr("mtnet.commands.reproduce.console", narrow)
    show(narrow)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    return out


@pytest.mark.parametrize("name", ["table1", "table1-also", "table2", "table3-mini-imagenet"])
def test_a_wide_table_breaks_no_word_and_leaves_nothing_out(monkeypatch, capsys, name):
    results = json.loads((RESULTS / f"{name}.json").read_text())
    out = shown(monkeypatch, capsys, lambda _: print_results(results))
    words = set(re.findall(r"[^\s│┃]+", out))
    for row in results["rows"]:
        value = f"{row['mean']:.2f} ± {row['ci95']:.2f}"
        published = f"({row['published']})" if row["published"] else value
        assert value in out
        assert published in out
        assert set(f"{row['method']} {row['column']}".split()) <= words


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_parts_of_a_table_fit_and_hold_every_column_once(width):
    widths = [11, 13, 30, 4, 4, 13, 90, 2]
    parts = columns_by_part(widths, width)
    assert [column for part in parts for column in part[1:]] == list(range(1, len(widths)))
    for part in parts:
        assert part[0] == 0
        assert len(part) == 2 or sum(widths[c] + 3 for c in part) + 1 <= width


def test_a_comparison_fits_in_80_columns(monkeypatch, capsys):
    row = {"steps": 10, "mean": 1097.99, "ci95": 10.307, "difference": -1097.5}
    row |= {"difference_ci95": 10.45, "p": 8.1e-11}
    table = comparison_table([row, row], "Loss")
    out = shown(monkeypatch, capsys, lambda console: console.print(table))
    assert "minus run 1 ± 95 %" in out
    assert "-1097.500 ± 10.450" in out


@pytest.mark.parametrize("moved", [None, 0.125])
def test_inspect_has_columns_that_say_what_they_are(monkeypatch, capsys, moved):
    cell = {"rows": 40, "updated": 21.5, "rank": 40, "spectrum": [2.0, 1.0, 0.5], "step": 0.01}
    table = cells_table({"convolutions.0": cell | {"moved": moved}}, "mt-net")
    out = shown(monkeypatch, capsys, lambda console: console.print(table))
    assert "21.5 of 40" in out
    assert ("12.5 %" in out) == ("of A" in out) == (moved is not None)
    assert {"updated", "eigenvalue", "size"} <= set(re.findall(r"\w+", out))


def test_list_does_not_refer_to_another_line(capsys):
    assert cli.main(["list"]) == 0
    out = capsys.readouterr().out
    assert "the same" not in out
    assert "…" not in out


def test_export_adds_the_suffix_as_adapt_does(tmp_path, monkeypatch, capsys):
    saved = []
    monkeypatch.setattr(export, "open_run", lambda folder: SimpleNamespace(config=TINY))
    monkeypatch.setattr(export, "load_best_member", lambda run, warn: (500, None))
    monkeypatch.setattr(export, "read_metrics", lambda run, warn: [])
    monkeypatch.setattr(export, "history", lambda *arguments: {})
    monkeypatch.setattr(export, "save_network", lambda path, *rest: saved.append(path))
    for name in ("net", "net.safetensors", "net.v2"):
        export.export(tmp_path, (Path(name),))
    assert saved == [with_suffix(Path(name)) for name in ("net", "net.safetensors", "net.v2")]
    assert {path.suffix for path in saved} == {".safetensors"}


def test_the_type_that_load_returns_is_public():
    assert mtnet.TrainedNetwork is TrainedNetwork
    assert "TrainedNetwork" in mtnet.__all__


@pytest.mark.parametrize("command", ["predict", "compare", "export", "inspect", "adapt"])
def test_help_shows_no_empty_default_and_breaks_no_line_early(capsys, command):
    assert cli.main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "(default: )" not in out
    assert "\n\n\n" not in out
