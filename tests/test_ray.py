"""Many runs on a real Ray cluster of two nodes, one of which is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import jax
import pytest

from mtnet.cli import main
from mtnet.storage.checkpoints import list_checkpoints
from mtnet.storage.run_folder import create_run, iterations_done, open_run, read_metrics
from mtnet.training.loop import train

SWEEP = """
[settings]
family = "sine"
method = "maml"
width = 4
depth = 1
meta_batch = 1
iterations = 100000
log_every = 1000
[grid]
alpha = [0.01, 0.02]
"""
WAIT = 240


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(SWEEP)
    return tmp_path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """`ray start --block`, in a session of its own."""

    def __init__(self, folder, *flags):
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
        command += ["--object-store-memory=80000000", "--disable-usage-stats", *flags]
        self.log = folder / f"node-{time.time_ns()}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def processes(self):
        """Of the session, and their descendants."""
        found, parents = {self.process.pid}, {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                parents[pid] = int(fields[1])
                if int(fields[3]) == self.process.pid:
                    found.add(pid)
        while more := {p for p, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def has_joined(self):
        return "Ray runtime started" in self.log.read_text()

    def kill(self):
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def cluster(tmp_path_factory):
    """(address, head, other node); it has one CPU per node."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'mtnet[ray]'")
    folder, port = tmp_path_factory.mktemp("r"), free_port()
    address = f"127.0.0.1:{port}"
    flags = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    nodes = [Node(folder, *flags, "--node-ip-address=127.0.0.1")]
    try:
        until(lambda: answers(port), nodes[0].process)
        nodes.append(Node(folder, f"--address={address}", "--node-ip-address=127.0.0.2"))
        until(nodes[1].has_joined, nodes[1].process)  # else one node would train both runs
        yield address, *nodes
    finally:
        for node in reversed(nodes):
            node.kill()


def answers(port):
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True


def until(happened, process):
    deadline = time.monotonic() + WAIT
    while not happened():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def holder(folder):
    """The process that trains in a run folder; None while the lock changes hands."""
    words = (folder / ".lock").read_text().split()
    return int(words[1]) if len(words) > 1 else None


MAIN = """
import signal, sys
from mtnet.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
"""`mtnet` that heeds Ctrl-C: what a shell starts in the background, and its children, ignore it."""


def start(folder, address):
    """`mtnet sweep` on the cluster."""
    command = [sys.executable, "-c", MAIN, "sweep", "grid.toml", "--out", "runs"]
    with (folder / "out").open("w") as out:
        return subprocess.Popen([*command, "--ray", address], stdout=out, stderr=out)


def stop_by_interrupt(folder, address):
    """Ctrl-C while both runs train: they write a checkpoint."""
    program = start(folder, address)
    try:
        until(lambda: len([*folder.glob("runs/*/metrics.jsonl")]) == 2, program)
        program.send_signal(signal.SIGINT)
        assert program.wait(WAIT) == 130
    finally:
        program.kill()
        program.wait()
    assert "the same command resumes its runs" in (folder / "out").read_text()
    runs = [open_run(path.parent) for path in folder.glob("runs/*/config.json")]
    assert [bool(list_checkpoints(run.checkpoints)) for run in runs] == [True, True]
    return {run: iterations_done(run) for run in runs}


def test_runs_are_resumed_after_an_interrupt_and_on_another_node(cluster, in_folder):
    address, _, other = cluster
    done = stop_by_interrupt(in_folder, address)
    program = start(in_folder, address)
    on_other = lambda: [run for run in done if holder(run.folder) in other.processes()]  # noqa: E731
    try:
        until(lambda: any(iterations_done(r) >= done[r] + 5_000 for r in on_other()), program)
        [lost] = on_other()
        saved, was = max(list_checkpoints(lost.checkpoints)), holder(lost.folder)
        assert saved > done[lost]
        before = read_metrics(lost)
        other.kill()
        assert iterations_done(lost) < lost.config.outer.iterations
        assert program.wait(WAIT) == 0, (in_folder / "out").read_text()
    finally:
        program.kill()
        program.wait()
    assert holder(lost.folder) != was
    after = read_metrics(lost)
    kept = lambda lines: list(takewhile(lambda m: m["iteration"] <= saved, lines))  # noqa: E731
    assert kept(before) == kept(after)  # also their times: they were not trained again
    results = json.loads((in_folder / "runs" / "sweep.json").read_text())
    assert [s["iterations"] for r in results["rows"] for s in r["per_seed"]] == [100_000] * 2
    with jax.enable_x64(False):
        alone = create_run(in_folder / "alone", lost.config)
        train(alone)
    assert [m["loss"] for m in read_metrics(alone)] == [m["loss"] for m in after]


def told(capsys, *arguments):
    assert main(["sweep", "grid.toml", *arguments]) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_without_ray_one_line_says_what_to_install(in_folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert told(capsys, "--ray", "auto") == "mtnet: --ray needs Ray: pip install 'mtnet[ray]'\n"


def test_a_cluster_that_does_not_answer_is_one_line(in_folder, capsys):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'mtnet[ray]'")
    address = f"127.0.0.1:{free_port()}"
    assert f"no Ray cluster answers at {address}" in told(capsys, "--ray", address)
    assert "remove it" in told(capsys, "--ray", address, "--jobs", "2")
    assert "need --ray" in told(capsys, "--ray-gpus", "1")
