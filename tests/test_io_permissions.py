"""Files keep what they had: what is made of a private scan is private, and a file that is replaced keeps its mode."""

import os
import stat

import pytest
from _dicom import region, write_dicom
from _scans import fan_frames, write
from click.testing import CliRunner
from test_cli_process import model  # noqa: F401 (a fixture: a dehazer that darkens)
from test_io_result import a_result

from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.io import write_result
from usdehaze.io.atomic import atomic
from usdehaze.io.permissions import Permissions
from usdehaze.review import build_review
from usdehaze.validation.evaluate import write_json

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def files_in(folder):
    return {path.name: mode_of(path) for path in folder.iterdir()}


@pytest.mark.parametrize(("source", "result"), [(0o600, 0o600), (0o644, 0o644), (0o640, 0o640), (0o400, 0o600)])
def test_results_are_as_private_as_their_source(tmp_path, model, source, result):  # noqa: F811
    scan = write_dicom(tmp_path / "a.dcm", fan_frames(2), regions=[region()])
    scan.chmod(source)
    args = ["process", scan, "-o", tmp_path / "out", "--save-haze", "--preview", "png", "--review", "--format", "zea"]
    done = CliRunner().invoke(main, [str(arg) for arg in args])
    assert done.exit_code == 0, done.output
    made = files_in(tmp_path / "out")
    assert len(made) == 6 and set(made.values()) == {result}, made


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, model):  # noqa: F811
    scan = write(tmp_path / "a.h5", {"x": fan_frames(2)})
    command = ["process", str(scan), "--preview", "gif", "--overwrite"]
    assert CliRunner().invoke(main, command).exit_code == 0
    for mode in (0o640, 0o600, 0o444, 0o664):
        for name in ("a.dehazed.h5", "a.dehazed.gif"):
            (tmp_path / name).chmod(mode)
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        assert mode_of(tmp_path / "a.dehazed.h5") == mode_of(tmp_path / "a.dehazed.gif") == mode


def test_a_folder_is_as_private_as_its_most_private_image(tmp_path):
    folder = tmp_path / "cine"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        (folder / name).touch()
    assert Permissions(tmp_path / "new", [folder]).most == 0o644
    (folder / "b.png").chmod(0o600)
    assert Permissions(tmp_path / "new", [folder]).most == 0o600
    (folder / "b.png").chmod(0o644)
    folder.chmod(0o700)
    assert Permissions(tmp_path / "new", [folder, tmp_path / "missing"]).most == 0o600


def test_pages_and_figures_are_as_private_as_the_result(tmp_path):
    result = tmp_path / "a.dehazed.h5"
    write_result(result, a_result())
    result.chmod(0o600)
    build_review(result, tmp_path / "a.html")
    write_json(tmp_path / "a.json", {}, [result])
    write_json(tmp_path / "b.json", {})
    assert mode_of(tmp_path / "a.html") == mode_of(tmp_path / "a.json") == 0o600
    assert mode_of(tmp_path / "b.json") == 0o644


def test_a_part_file_is_never_open_to_more_than_the_file_will_be(tmp_path):
    private = tmp_path / "private"
    private.touch(0o600)
    (tmp_path / ".new.part").touch(0o644)  # left by a killed run
    with atomic(tmp_path / "new", sources=[private]) as part:
        assert mode_of(part) == 0o600
    assert files_in(tmp_path) == {"private": 0o600, "new": 0o600}


def test_a_device_or_a_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(InputError, match=f"{name}: is a device or a pipe; expected the name of a file"):
            write_json(tmp_path / name, {})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and len(list(tmp_path.iterdir())) == 2
