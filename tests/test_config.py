"""A config survives its file, and nothing wrong gets into one."""

import dataclasses
import json
import math

import jax
import pytest
from hypothesis import given, strategies as st

from mtnet import InputError
from mtnet.build import build_family, build_learner, build_optimiser
from mtnet.config import GROUPS, Config, configure, from_dict, to_dict
from mtnet.experiments.table3 import TABLE3
from mtnet.methods import METHODS
from mtnet.storage.config_file import read_config

pytestmark = pytest.mark.usefixtures("unchecked")
counts = st.integers(1, 1000)
positive = st.floats(1e-6, 1e6)
inners = dict(  # noqa: C408
    alpha=positive,
    steps=st.integers(0, 20),
    first_order=st.booleans(),
    relaxation=st.sampled_from(["hard", "soft"]),
    temperature=positive,
    draw=st.sampled_from(["task", "step"]),
    at_test=st.sampled_from(["sample", "expected", "threshold"]),
    zeta_mean=st.floats(-10, 10),
    zeta_sd=st.floats(0, 10),
    invariant=st.none() | positive,
    statistics=st.sampled_from(["transductive", "inductive"]),
    remat=st.booleans(),
)
common = {
    "method": st.sampled_from(sorted(METHODS)),
    "iterations": counts,
    "meta_batch": counts,
    "tasks_per_vmap": st.none() | st.just(1),
    "log_every": counts,
    "beta": positive,
    "schedule": st.sampled_from(["constant", "cosine"]),
    "clip": st.none() | positive,
    "seeds": st.lists(st.integers(0, 2**31), min_size=1, max_size=3).map(tuple),
    "sweep": st.lists(positive, max_size=3).map(tuple),
    **inners,
}
curves = st.builds(
    configure,
    family=st.sampled_from(["sine", "polynomial"]),
    shots=counts,
    queries=counts,
    order=st.integers(0, 4),
    x_max=positive,
    damp_coefficients=st.booleans(),
    width=counts,
    depth=counts,
    W_sd=positive,
    **common | {"method": st.sampled_from([n for n, m in METHODS.items() if m.regression])},
)
pictures = st.builds(
    configure,
    family=st.sampled_from(["omniglot", "mini-imagenet"]),
    shots=st.integers(1, 10),
    queries=st.integers(1, 10),
    ways=st.integers(2, 60),
    rotations=st.booleans(),
    filters=counts,
    pool=st.booleans(),
    head_sd=st.none() | positive,
    validate_every=st.none() | counts,
    **common,
)
configs = curves | pictures
SETTINGS = sorted(to_dict(Config()))


@given(configs)
def test_a_config_is_its_plain_data(config):
    assert from_dict(json.loads(json.dumps(to_dict(config))), "here") == config


def test_plain_data_holds_every_setting():
    groups = [Config, *GROUPS.values()]
    fields = [f.name for group in groups for f in dataclasses.fields(group)]
    assert sorted(SETTINGS) == sorted(set(fields) - set(GROUPS))
    assert len(fields) == len(set(fields))


@given(config=configs)
def test_every_seed_meets_every_step_size(config):
    members = config.members
    assert {seed for seed, _ in members} == set(config.seeds)
    assert {alpha for _, alpha in members} == set(config.sweep or (config.inner.alpha,))
    assert len(members) == len(config.seeds) * max(1, len(config.sweep))


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_file_is_read_as_what_it_says(tmp_path, suffix):
    file = tmp_path / f"config.{suffix}"
    text = {"toml": 'method = "t-net"\nseeds = [1, 2]\nalpha = 0.5', "json": None}[suffix]
    config = configure(method="t-net", seeds=(1, 2), alpha=0.5)
    file.write_text(text or json.dumps(to_dict(config) | {"mtnet_version": "0"}))
    assert read_config(file) == config


@pytest.mark.parametrize("text", [None, "method = ", "mehtod = 'maml'"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, text):
    file = tmp_path / "config.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=r"config\.toml"):
        read_config(file)


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_unknown_setting_names_the_nearest(setting):
    misspelt = setting[:-1] + "_" + setting[-1]
    with pytest.raises(InputError, match=f"(?s)file.*'{misspelt}'.*did you mean {setting}"):
        from_dict({misspelt: 1}, "file")


@pytest.mark.parametrize(
    ("setting", "given", "meant"),
    [("method", "mtnet", "mt-net"), ("method", "mamll", "maml"), ("family", "sin", "sine")],
)
def test_an_unknown_name_suggests_the_nearest(setting, given, meant):
    with pytest.raises(InputError, match=f"'{given}'.*did you mean {meant}"):
        configure(**{setting: given})


BAD = {
    **dict.fromkeys(("shots", "queries", "width", "depth", "iterations", "meta_batch"), (0, -1)),
    **dict.fromkeys(("beta", "W_sd", "alpha", "temperature"), (0.0, -1.0, math.nan, math.inf)),
    "invariant": (0.0, -1.0, math.nan),
    "steps": (-1,),
    "zeta_sd": (-0.1,),
    "seeds": ([],),
    "sweep": ([0.0], [0.1, -1.0], [math.nan], 3),
    "method": ("", 3),
    "family": ("",),
    "validate_every": (100,),  # on sine waves
}
UNSEEN = {  # wrong values that a file may well hold
    "relaxation": ("firm",),
    "draw": ("tasks",),
    "at_test": ("mean",),
    "alpha": ("0.1",),
    "first_order": ("no",),
    "damp_coefficients": ("no",),
    "steps": (1.5,),
    "width": (4.5,),
    "zeta_mean": (math.nan, math.inf),
    "zeta_sd": (math.nan, math.inf),
    "seeds": (3, [1.5]),
    "sweep": ([math.inf],),
}


def pairs(table):
    return [(setting, value) for setting, values in table.items() for value in values]


@pytest.mark.parametrize(("setting", "value"), [*pairs(BAD), *pairs(UNSEEN)])
def test_a_bad_value_is_refused_in_one_line(setting, value):
    with pytest.raises(InputError) as caught:
        from_dict({setting: value}, "file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("setting", ["order", "x_max"])
def test_a_bad_polynomial_is_refused(setting):
    with pytest.raises(InputError, match=setting):
        configure(family="polynomial", **{setting: -1})


def test_a_config_makes_what_it_names():
    config = configure(method="t-net", family="polynomial", order=3, shots=4, width=5, depth=1)
    assert build_family(config).name == "polynomial-3"
    assert build_family(config, order=1).name == "polynomial-1"
    theta = build_learner(config).init(jax.random.key(0))
    assert [T.shape for T in theta.T.values()] == [(5, 5), (1, 1)]
    assert build_optimiser(config).init(theta)


@pytest.mark.parametrize("part", TABLE3[1::2], ids=lambda e: e.name)
def test_paper_presets_of_table3_are_the_published_settings(part):
    assert part.name.endswith("-paper")
    for method, config in part.trainings(False, 1).items():
        published = configure(family=config.family, method=method)
        changed = {
            name for name, value in to_dict(config).items() if value != to_dict(published)[name]
        }
        assert changed <= {"ways", "meta_batch"}
        assert not config.net.init_from
        assert config.outer.schedule == "constant"
