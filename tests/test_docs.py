"""The documents are true: their code runs, their commands parse, their numbers are in results/."""

import ast
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path

import jax
import pytest

import mtnet
from mtnet.cli import main
from mtnet.commands import fit_report
from mtnet.datasets import IMAGE_SETS
from mtnet.experiments import EXPERIMENTS
from mtnet.methods import METHODS
from mtnet.tasks import FAMILIES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mtnet"
sys.path.insert(0, str(ROOT / "tools"))

import docs as tool  # noqa: E402

WRITTEN = ("results.md", "api.md")
"""Pages that tools/docs.py writes from beginning to end."""
PAGES = ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
PROSE = [page for page in PAGES if Path(page).name not in WRITTEN]
FOLLOWED = ["docs/your-table.md", "docs/your-images.md"]
"""Pages whose commands are run too."""


def text_of(page):
    return (ROOT / page).read_text()


def blocks_and_commands(text):
    """Python blocks and commands of a page, in order."""
    both = r"```python\n(.*?)```|^    (mtnet [^\n]*)$"
    for match in re.finditer(both, text, re.DOTALL | re.MULTILINE):
        yield match.groups()


def arguments_of(command):
    """The arguments of a shell command, without its comment; patterns of files are expanded."""
    for argument in shlex.split(command, comments=True)[1:]:
        yield from sorted(glob.glob(argument)) or [argument]


# Code and commands


@pytest.mark.parametrize("page", [page for page in PROSE if "```python" in text_of(page)])
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit_report, "TASKS", 20)  # of 500, which are for the reader
    namespace: dict = {}
    for block, command in blocks_and_commands(text_of(page)):
        with jax.enable_x64(False):
            if block:
                exec(compile(block, page, "exec"), namespace)
            elif page in FOLLOWED:
                assert main(list(arguments_of(command))) == 0, command


def commands():
    """Every `mtnet ...` of the documents, in code blocks and in code spans."""
    found = {}
    for page in [*PROSE, "CONTRIBUTING.md"]:
        text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
        for match in re.finditer(
            r"^    (mtnet [^\n]*)$|`(mtnet [a-z][^`\n]*)`", text, re.MULTILINE
        ):
            command = match[1] or match[2]
            if "|" not in command and "..." not in command:
                found.setdefault(command.partition("#")[0].strip(), page)
    return found


@cache
def help_of(*arguments):
    """What `--help` prints, in one line."""
    printed = StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        main([*arguments, "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())


def help_for(arguments):
    """The help of a command; it depends on the kind of data and on the family."""
    chosen = arguments[: 2 if arguments[0] == "data" else 1]
    for flag in ("--family", "--images"):
        if flag in arguments:
            at = arguments.index(flag)
            chosen = [*chosen, *arguments[at : at + 2]]
    return help_of(*chosen)


@pytest.mark.parametrize("command", commands())
def test_a_command_has_the_flags_that_are_shown(command):
    arguments = shlex.split(command, comments=True)[1:]
    shown = help_for(arguments)
    assert f"mtnet {arguments[0]}" in shown
    for flag in (a.partition("=")[0] for a in arguments if a.startswith("--")):
        assert re.search(rf"(?<![\w-]){flag}(?![\w-])", shown), f"no {flag} in: {command}"
    known = {"--method": METHODS, "--family": FAMILIES}
    named = {a: b for a, b in pairwise(arguments) if a in known}
    assert all(value in known[flag] for flag, value in named.items()), command
    places = {"reproduce": (1, EXPERIMENTS), "data": (2, IMAGE_SETS)}
    if arguments[0] in places and "table-lines" not in command and "shapes" not in command:
        at, names = places[arguments[0]]
        assert len(arguments) <= at or arguments[at] in names or arguments[at][0] == "-", command


def test_flags_in_the_text_exist():
    every = ["train", "fit", "evaluate", "reproduce", "sweep", "compare", "adapt", "predict"]
    every += ["classify", "export", "serve", "page"]
    shown = " ".join(help_of(name) for name in every) + help_of("fit", "--images", "DIR")
    shown += "".join(help_of("train", "--family", family) for family in ("omniglot", "polynomial"))
    shown += help_of("train", "--method", "fine-tune", "--family", "omniglot")
    shown += help_of("data", "get") + "--only --help --version"
    for page in PROSE:
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))
        for flag in {f for span in spans for f in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}:
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", shown), f"{page}: no flag {flag}"


def test_the_example_on_city_temperatures_runs(tmp_path):
    beside = ROOT.parent / "shared" / "data"
    for root in filter(None, (os.environ.get("MTNET_DATA"), beside)):
        if (Path(root) / "city_temperature").is_dir():
            break
    else:
        pytest.skip("no city_temperature in $MTNET_DATA or ../shared/data")
    out = tmp_path / "found.json"
    command = [sys.executable, ROOT / "examples" / "city_temperature.py", "--quick"]
    environment = os.environ | {"MTNET_DATA": str(root)}
    told = subprocess.run(
        [*command, "--seeds", "1", "--out", out], env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    errors = {row["method"]: row["mean"] for row in json.loads(out.read_text())["rows"]}
    assert errors["mt-net"] < 0.8 * errors["average of the training cities"]
    assert out.with_suffix(".png").stat().st_size > 10_000


# Numbers


def test_numbers_tables_and_signatures_are_current():
    stale = [path.name for path, text in tool.pages() if path.read_text() != text]
    assert not stale, "run `python tools/docs.py`"


UNITS = r"(?:%|±|ms|s|MB|GB|kB|min|minutes|hours|seconds|times|points|diverged)"
MEASURED = re.compile(rf"(?<![\w.])[-+]?(?:\d+\.\d+|\d[\d ]*(?=\s+{UNITS}(?!\w)))")
ALLOWED = re.compile(r"95 % interval|95 %|Python 3\.\d+|20 % is chance|[Ss]ections? [\d.]+")


def unsourced(text):
    """Numbers that look measured and have no source: decimals, and numbers with a unit."""
    text = tool.BLOCK.sub("", text)
    text = tool.NUMBER.sub("", text)
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return MEASURED.findall(ALLOWED.sub("", text))


@pytest.mark.parametrize("page", PROSE)
def test_every_measured_number_has_a_source(page):
    assert not unsourced(text_of(page))


def test_a_number_without_a_source_is_noticed():
    text = (
        "It took 3 ms, `0.1` is a setting, 0.47 ± 0.02<!--table1/mt-net--> has a source, 0.5 not."
    )
    assert unsourced(text) == ["3", "0.5"]


def rows(name, **where):
    every = tool.results(name)["rows"]
    return [row for row in every if all(row[key] == value for key, value in where.items())]


def mean(name, method, column):
    return rows(name, method=method, column=column)[0]["mean"]


def overlap(a, b):
    return abs(a["mean"] - b["mean"]) <= a["ci95"] + b["ci95"]


def mt_net_of_5_ways():
    return rows("table3-omniglot-5way", method="mt-net", column="transductive")[0]


def random_20way(method, column="transductive"):
    return mean("table3-omniglot-20way", f"{method}, random weights", column)


TEN, MINI = "10-shot, meta-batch 25", "table3-mini-imagenet"
STATEMENTS = {
    "No mean is above the paper's mean plus its interval.": lambda: all(
        row["mean"] <= sum(map(float, row["published"].split(" ± ")))
        for row in rows("table1")
        if row["column"].endswith("meta-batch 25") and row["published"]
    ),
    "here `mt-net-full` and `meta-sgd` have a lower loss than `mt-net`": lambda: all(
        mean("table1", other, TEN) < mean("table1", "mt-net", TEN)
        for other in ("mt-net-full", "meta-sgd")
    ),
    "With 4 the losses are higher": lambda: all(
        mean("table1", row["method"], row["column"].replace("25", "4")) > row["mean"]
        for row in rows("table1")
        if row["column"].endswith("meta-batch 25")
    ),
    "MAML, Meta-SGD and T-net, which have no masks, diverge on some tasks": lambda: all(
        rows("table1", method=method, column=TEN)[0]["by_step"][10]["mean"] is None
        for method in ("maml", "meta-sgd", "t-net")
    ),
    "which lowers the loss in the third decimal only": lambda: all(
        0
        < mean("table1", row["method"], row["column"].replace("expected masks", "meta-batch 25"))
        - row["mean"]
        < 0.01
        for row in rows("table1")
        if row["column"].endswith("expected masks")
    ),
    "M-nets improve with more steps too": lambda: all(
        row["by_step"][10]["mean"] < row["by_step"][3]["mean"] < row["mean"]
        for method in ("m-net", "m-net-full")
        for row in rows("table1", method=method, column=TEN)
    ),
    "If norms are inductive, T-net is nearly two points above MAML, and MT-net is not above "
    "T-net.": lambda: (
        1.5 < random_20way("t-net", "inductive") - random_20way("maml", "inductive") < 2
        and random_20way("mt-net", "inductive") < random_20way("t-net", "inductive")
    ),
    "is two points above T-net, and T-net above MAML, on the same test tasks, if norms are "
    "transductive.": lambda: (
        2 < random_20way("mt-net") - random_20way("t-net") < 2.5
        and random_20way("t-net") > random_20way("maml")
    ),
    "about two points above `prototypical` with transductive norms, about one point below it "
    "with inductive ones.": lambda: all(
        abs(mean(MINI, f"{m}, 5 shots", c) - mean(MINI, "prototypical, 5 shots", c) - gain) < 0.4
        for m in ("maml", "mt-net")
        for c, gain in (("transductive", 2), ("inductive", -0.8))
    ),
    "MT-net has the highest transductive accuracy of the four; its interval overlaps with those of "
    "MAML and Meta-SGD, not with that of T-net.": lambda: all(
        mean("table3-omniglot-5way", method, "transductive") < mt_net_of_5_ways()["mean"]
        and overlap(row, mt_net_of_5_ways()) == (method != "t-net")
        for method in ("maml", "meta-sgd", "t-net")
        for row in rows("table3-omniglot-5way", method=method, column="transductive")
    ),
    "The MT-net has a lower error than every method that uses one city only.": lambda: all(
        row["minus_mt_net"] > row["minus_mt_net_ci95"]
        for row in rows("city_temperature")
        if row["method"].startswith(("sinusoid", "ridge", "Gaussian"))
    ),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_about_results_hold(statement):
    text = " ".join(" ".join(text_of(page) for page in PROSE).split())
    assert statement in text
    assert STATEMENTS[statement]()


# Names


def names_in(path):
    tree = ast.parse(path.read_text())
    found = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def test_equations_point_to_functions():
    """Each function named behind a file is defined there."""
    lines = [line for line in text_of("docs/equations.md").splitlines() if "`" in line]
    pairs = []
    for line in lines:
        spans = re.findall(r"`([^`]+)`", line.rpartition(" | ")[2] if line[0] == "|" else line)
        at = None
        for span in spans:
            if span.endswith(".py"):
                at = (ROOT if span.startswith("tests/") else SOURCE) / span
                assert at.is_file(), span
            elif at and span.isidentifier():
                pairs.append((at, span))
    assert len(pairs) > 25
    for at, name in pairs:
        assert name in names_in(at) | set(METHODS) | {"k", "W", "T", "M", "S", "V"}, (at, name)


@pytest.mark.parametrize("page", [*PROSE, "CONTRIBUTING.md"])
def test_files_names_and_links_exist(page):
    text = text_of(page)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    roots = (ROOT, SOURCE, SOURCE / "methods")
    for span in spans:
        if re.fullmatch(r"[\w/-]+(\.py|\.md|/)", span) and "METHOD" not in span:
            assert any((root / span).exists() for root in roots), f"no {span}"
        for name in re.findall(r"\bmtnet\.(\w+)", span):
            assert name in mtnet.__all__, f"no mtnet.{name}"
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = ((ROOT / page).parent / path) if path else ROOT / page
            assert file.exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                slugs = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
                assert anchor in slugs, target


def test_architecture_names_every_package_in_the_order_of_imports():
    text = text_of("docs/architecture.md")
    layers = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]
    order = [set(layer.split(" | ")) for layer in reversed(layers["layers"])]
    block = " ".join(re.findall(r"^    (.*)$", text, re.MULTILINE)[:3])
    assert [set(part.strip().split(", ")) for part in block.split("<")] == order
    for path in SOURCE.iterdir():
        name = f"{path.name}/" if path.is_dir() else path.name
        assert name[0] in "._" or name == "py.typed" or f"`{name}`" in text, name


def test_api_page_has_every_public_name():
    listed = re.findall(r"^### (\w+)$", text_of("docs/api.md"), re.MULTILINE)
    assert sorted(listed) == sorted(mtnet.__all__)


def test_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= 150
