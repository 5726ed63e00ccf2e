"""Files made to do harm: each is refused in one line, soon, and with little memory."""

import json
import os
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from _scans import fan_frames, write

from usdehaze.budget import OBJECT_BYTES, max_memory
from usdehaze.errors import InputError
from usdehaze.io import open_cine
from usdehaze.io.hdf5.access import attribute, small_array
from usdehaze.io.hdf5.heap_check import check_heaps

MEMORY_MIB = 300  # more than before the file was opened
REFUSE = """
import json, resource, sys, time
from usdehaze.errors import InputError
from usdehaze.io import open_cine
import scipy.ndimage, scipy.signal
for path in sys.argv[1:]:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        message = str(open_cine(path))
    except InputError as error:
        message = str(error)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(json.dumps([path, message, grown, time.process_time() - began]), flush=True)
"""


def external_link(file, folder):
    write(folder / "other.h5", {"x": fan_frames()})
    file["x"] = h5py.ExternalLink(str(folder / "other.h5"), "/x")


def link_chain(file, folder):
    external_link(file, folder)
    file["y"] = h5py.SoftLink("/x")


def raw_elsewhere(file, folder):
    (folder / "raw.bin").write_bytes(bytes(range(256)) * 32)
    file.create_dataset("x", (2, 64, 64), np.uint8, external=[(str(folder / "raw.bin"), 0, 8192)])


def virtual(file, folder):
    write(folder / "other.h5", {"x": fan_frames()})
    layout = h5py.VirtualLayout((2, 64, 64), np.uint8)
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", (2, 64, 64))
    file.create_virtual_dataset("x", layout)


def virtual_coordinates(file, folder):
    file.attrs["zea_version"] = "0.1.8"
    file["data/image/values"] = fan_frames()
    write(folder / "other.h5", {"x": np.zeros((64, 64, 3))})
    layout = h5py.VirtualLayout((64, 64, 3), np.float64)
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", (64, 64, 3))
    file.create_virtual_dataset("data/image/coordinates", layout)


def never_written(file, folder):
    file.create_dataset("x", (10**6, 4096, 4096), np.uint8, chunks=(1, 4096, 4096))


def bomb(file, folder):
    dataset = file.create_dataset("x", (10**6, 4096, 4096), np.uint8, chunks=(1, 64, 64), compression="gzip")
    dataset[0, :64, :64] = 1


def huge_frame(file, folder):
    dataset = file.create_dataset("x", (1, 2**15, 2**15), np.uint8, chunks=(1, 2**10, 2**10), compression="gzip")
    dataset[0, :1024] = np.random.default_rng(0).integers(0, 255, (1024, 2**15)).astype(np.uint8)


def huge_axis(file, folder):
    file["b/data"] = np.ones((64 * 64, 2), np.float32)
    file["b"].attrs["class"] = "uff.beamformed_data"
    axis = file.create_dataset("b/scan/x_axis", (2**33,), np.float32, chunks=(2**20,), compression="gzip")
    axis[: 2**20] = np.random.default_rng(0).normal(size=2**20)
    file["b/scan/z_axis"] = np.arange(64.0)


def many_objects(file, folder):
    for index in range(1200):
        file.create_group(f"g{index}")


def deep_groups(file, folder):
    group = file
    for _ in range(3000):
        group = group.create_group("g")


REFUSALS = {
    external_link: "links are not followed (x)",
    link_chain: "links are not followed (x, y)",
    raw_elsewhere: "keeps its data in another file",
    virtual: "is virtual",
    virtual_coordinates: "is virtual",
    never_written: "holds no data",
    bomb: "declares 1.68e+04 GB but stores",
    huge_frame: "frames of 32768 x 32768; expected at most",
    huge_axis: "GB but stores",
    many_objects: "no numeric dataset that could be frames",
    deep_groups: "no numeric dataset that could be frames",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Path, message, growth in MiB and CPU time in s of each hostile file, opened one after the other in a process."""
    folder = tmp_path_factory.mktemp("hostile")
    for make in REFUSALS:
        (folder / make.__name__).mkdir()
        with h5py.File(folder / make.__name__ / "hostile.h5", "w") as file:
            make(file, folder / make.__name__)
    paths = [folder / make.__name__ / "hostile.h5" for make in REFUSALS]
    before = [path.read_bytes() for path in paths]
    done = subprocess.run([sys.executable, "-c", REFUSE, *map(str, paths)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert [path.read_bytes() for path in paths] == before
    return dict(zip(REFUSALS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("make", REFUSALS, ids=lambda make: make.__name__)
def test_it_is_refused_in_one_line_soon_and_with_little_memory(outcomes, make):
    path, message, grown_mib, cpu_s = outcomes[make]
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert REFUSALS[make] in message
    assert grown_mib < MEMORY_MIB and cpu_s < 20


def test_groups_that_hold_themselves_are_walked_once(tmp_path):
    path = write(tmp_path / "a.h5", {"g/x": fan_frames()})
    with h5py.File(path, "r+") as file:
        for index in range(40):
            file[f"g/again{index}"] = file["/"]
            file[f"h{index}"] = file["g"]
    began = time.monotonic()
    assert open_cine(path).source.dataset in ("g/x", "h0/x", "h39/x")
    assert time.monotonic() - began < 20


def test_more_objects_than_a_scan_has_are_not_looked_through(tmp_path):
    path = write(tmp_path / "a.h5", {f"g{index}/x": fan_frames() for index in range(60)})
    with max_memory(50 * OBJECT_BYTES):
        with pytest.raises(InputError, match=r"more objects than a scan has; expected at most 50; .* --max-memory"):
            open_cine(path)
        assert open_cine(path, dataset="g7/x").source.dataset == "g7/x"


def test_an_attribute_of_gigabytes_is_not_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file["x"] = fan_frames()
        file.attrs.create("zea_version", np.zeros(10**6, np.uint8))
        assert attribute(file, "zea_version") == ""
    assert open_cine(tmp_path / "a.h5").source.layout == "HDF5 dataset"


def test_an_axis_larger_than_any_grid_is_refused(tmp_path):
    with h5py.File(write(tmp_path / "a.h5", {"x": np.zeros(101)}), "r") as file:
        assert small_array(file, "x", "a.h5").shape == (101,)
        with max_memory(3200), pytest.raises(InputError, match="needs more memory than its frames"):
            small_array(file, "x", "a.h5")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_or_a_device_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.h5")
    with pytest.raises(InputError, match="is not a regular file"):
        open_cine(tmp_path / "pipe.h5")
    with pytest.raises(InputError, match="is not a regular file"):
        open_cine("/dev/zero")


def test_a_heap_that_would_send_the_library_round_in_circles_is_refused(tmp_path):
    path = write(tmp_path / "a.h5", {"x": fan_frames()}, zea_version="0.1.8")  # a text of variable length
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL\1\0\0\0")
    size = int.from_bytes(content[heap + 8 : heap + 16], "little")
    free = heap + 16 + 16 + 8  # behind the only text, of up to 8 bytes
    assert content[free : free + 2] == b"\0\0" and size == 4096
    check_heaps(path)
    for wrong in (0, 8, 2**64 - 16, 4096):
        content[free + 8 : free + 16] = wrong.to_bytes(8, "little")
        path.write_bytes(content)
        with pytest.raises(InputError, match="has a damaged heap at byte"):
            open_cine(path)
