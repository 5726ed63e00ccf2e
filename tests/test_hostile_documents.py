"""Regions, cards and configurations of any content: used, or refused in one line."""

import json

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_priors import tiny

from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.priors.files import load_card
from usdehaze.validation.regions import read_regions

LIMITS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats() | st.integers(-2, 70)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
CORNERS = st.lists(st.lists(st.integers(-3, 40) | NUMBERS, min_size=1, max_size=3), max_size=6)
REGION = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=9) | VALUES,
        "role": st.sampled_from(["tissue", "haze"]) | VALUES,
        "frames": st.lists(st.integers(-2, 6), max_size=4) | VALUES,
        "polygon": st.just([[1, 1], [20, 1], [20, 20], [1, 20]]) | CORNERS | VALUES,
        "units": st.sampled_from(["px", "mm", "m"]) | VALUES,
    },
)
DOCUMENT = st.fixed_dictionaries({"regions": st.lists(REGION | VALUES, max_size=4) | VALUES}) | VALUES


def one_line(text: str) -> bool:
    return "\n" not in text.strip() and len(text) < 2000


@LIMITS
@given(document=DOCUMENT)
def test_regions_of_any_content_are_read_or_refused_in_one_line(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("regions") / "a.json"
    path.write_text(json.dumps(document))
    try:
        regions = read_regions(path, (4, 32, 32))
    except InputError as error:
        assert one_line(str(error))
    else:
        assert regions.frames() and all(region.mask.any() for region in regions.regions)


NETWORK = st.fixed_dictionaries(
    {"kind": st.sampled_from(["FastUNet", "NCSNv2"]) | VALUES},
    optional={
        "channels": st.just([8, 16]) | st.lists(st.integers(0, 5000), max_size=5) | VALUES,
        "blocks": st.integers(-1, 100) | st.lists(st.integers(-1, 100), max_size=3) | VALUES,
        "patch": st.integers(-1, 64) | VALUES,
        "inputs": st.integers(-1, 9) | VALUES,
    },
)
CARD = st.dictionaries(st.sampled_from(["format", "kind", "sha256", "name", "network"]), VALUES, max_size=2)


@pytest.fixture(scope="module")
def prior(tmp_path_factory):
    """Path and card of a small prior."""
    path = tmp_path_factory.mktemp("prior") / "p.safetensors"
    tiny().save(path)
    return path, json.loads(path.with_suffix(".json").read_text())


@LIMITS
@given(network=NETWORK | VALUES, other=CARD)
def test_a_card_of_any_content_is_that_of_the_weights_or_refused_in_one_line(prior, network, other):
    path, card = prior
    path.with_suffix(".json").write_text(json.dumps({**card, "network": network, **other}))
    try:
        made, _, _ = load_card(path, "tissue")
    except InputError as error:
        assert one_line(str(error))
    else:
        assert made.config == {"channels": [8, 16], "blocks": 1, "patch": 2}


KEYS = st.sampled_from(["preset", "frames", "samples", "seed", "caution", "batch-size", "review"]) | st.text(max_size=9)


@LIMITS
@given(content=st.dictionaries(KEYS, VALUES, max_size=3).map(yaml.safe_dump) | st.text(max_size=60))
def test_a_configuration_of_any_content_is_taken_or_wrong_usage_in_one_line(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("config")
    (folder / "a.yaml").write_text(content, encoding="utf-8")
    done = CliRunner().invoke(main, ["process", str(folder / "none.h5"), "--config", str(folder / "a.yaml")])
    assert done.exit_code in (1, 2) and one_line(done.stderr), done.output
    assert done.exit_code == 2 or "no such file" in done.stderr
