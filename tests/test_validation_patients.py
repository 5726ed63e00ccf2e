"""The split of real scans: by a rule, before anything was looked at, and never both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from usdehaze.errors import InputError
from validation.paths import PATIENTS
from validation.patients import SHARES, read_patients, split_names


@pytest.mark.parametrize("set_name", ["camus", "clean-cines"])
def test_the_stored_list_follows_its_rule(set_name: str) -> None:
    stored = json.loads(PATIENTS.read_text())[set_name]
    names = [name for share in SHARES for name in stored[share]]
    assert len(set(names)) == len(names)
    assert {share: stored[share] for share in SHARES} == split_names(names, stored["seen"], stored["shown"])


def test_scans_looked_at_before_are_never_held_out() -> None:
    for stored in (json.loads(PATIENTS.read_text())[name] for name in ("camus", "clean-cines")):
        assert set(stored["seen"]) | set(stored["shown"]) <= set(stored["tuning"])


def test_every_real_scan_has_its_place(data_dir: Path) -> None:
    shares = [read_patients(PATIENTS, share) for share in SHARES]
    for set_name in ("camus", "clean-cines"):
        found = {path.stem for path in (data_dir / set_name).glob("*.h5")}
        assert found == {name for share in shares for name in share[set_name]}


def test_a_split_does_not_depend_on_the_order_of_names() -> None:
    names = [f"cine-{i:02d}" for i in range(10)]
    split = split_names(names, seen=["cine-07"])
    assert split == split_names(names[::-1], seen=["cine-07"])
    assert split["tuning"][0] == "cine-07" and len(split["tuning"]) == 3 and len(split["held-out"]) == 7


@pytest.mark.parametrize("text", ["[]", "{", '{"camus": {"tuning": []}}'])
def test_another_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a list of patients"):
        read_patients(path, "held-out")
