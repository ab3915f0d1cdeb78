"""What a newcomer does first: interrupt, repeat, use few data, read a narrow terminal."""

import signal
import subprocess
import sys

import pytest

from mtnet import cli
from mtnet.commands.train import free_folder
from mtnet.config import configure
from mtnet.errors import InputError
from mtnet.storage.run_folder import create_run
from mtnet.training.processes import _interrupts_blocked

TINY = configure(width=4, depth=1, meta_batch=2, iterations=3_000)


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
import os, signal, sys
from mtnet import cli

def lossy(name):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass

cli.import_module, cli.cache_compilations = lossy, lambda: None
sys.exit(cli.main(["list"]))
"""
    result = python("-c", code)
    assert (result.returncode, result.stderr) == (130, "mtnet: stopped by Ctrl-C\n")


def test_an_interrupted_command_is_one_line_and_status_130(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    monkeypatch.setattr(cli, "cache_compilations", lambda: None)
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
    run.metrics.write_text('{"iteration": 500, "loss": [1.0]}\n')
    assert free_folder(tmp_path, TINY) != folder
    with pytest.raises(InputError, match="--resume"):
        create_run(folder, TINY)
