from pathlib import Path

import pytest
from click.testing import CliRunner

from usdehaze.cli import main

CONFIGS = sorted((Path(__file__).resolve().parents[1] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda p: p.stem)
def test_process_takes_the_config(config, tmp_path):
    # The scan is missing, which is exit 1: a key or value that process does not know would be exit 2 before that.
    outcome = CliRunner().invoke(main, ["process", str(tmp_path / "none.h5"), "--config", str(config)])
    assert outcome.exit_code == 1 and "none.h5" in outcome.stderr


def test_there_is_a_config_for_the_paper():
    assert "paper" in [p.stem for p in CONFIGS]
