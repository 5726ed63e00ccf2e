"""Closed choices: a type lists what its table holds, and what is not in it is refused."""

import inspect
from typing import get_args

import pytest
from _tiny_priors import write_tiny_priors

from usdehaze import preview
from usdehaze.choices import PREVIEW_KINDS, SCENES, TRANSFER_SYNTAXES
from usdehaze.dehazing.dehazer import Dehazer, DehazerOptions
from usdehaze.dehazing.settings import PRESETS, WITH_RULES, Preset
from usdehaze.errors import UsdehazeError
from usdehaze.io.dicom.pixels_out import ENCODERS
from usdehaze.simulate import SETUPS


def test_the_types_name_what_the_tables_hold():
    assert get_args(Preset) == tuple(PRESETS) == tuple(WITH_RULES)
    assert TRANSFER_SYNTAXES == tuple(ENCODERS)
    assert SCENES == tuple(SETUPS)
    assert set(PREVIEW_KINDS) == set(preview._FILMS)
    assert list(DehazerOptions.__annotations__) == list(inspect.signature(Dehazer.from_pretrained).parameters)


def test_a_precision_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(UsdehazeError, match="no precision 'fp16'; there are fp32, bf16, int8"):
        Dehazer.from_pretrained(**write_tiny_priors(tmp_path), precision="fp16")
