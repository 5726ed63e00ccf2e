"""The node beside Orthanc: a study goes in, derived series of the same study are there, pixel for pixel."""

import signal
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pydicom
import pytest
from _dicom import write_dicom
from _scans import fan_frames
from _tiny_priors import write_tiny_posterior
from click.testing import CliRunner

from usdehaze.cli import main

pytest.importorskip("pynetdicom", reason="the extra node is not installed")
pytest.importorskip("dicomweb_client", reason="the extra node is not installed")
_orthanc = pytest.importorskip("_orthanc", reason="requests is not installed")
if missing := _orthanc.absent():
    pytest.skip(missing, allow_module_level=True)

HOOK = Path(__file__).resolve().parents[1] / "pipelines" / "orthanc" / "dehaze.lua"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Orthanc with the hook, and the node that sends back by C-STORE and DICOMweb's STOW alike."""
    folder = tmp_path_factory.mktemp("orthanc")
    write_tiny_posterior(folder / "posterior.safetensors")
    port = _orthanc.free_port()
    archive = _orthanc.Orthanc(folder, {"USDEHAZE": ("USDEHAZE", port)}, HOOK)
    command = [sys.executable, "-m", "usdehaze", "node", "--port", str(port), "--spool", str(folder / "spool")]
    command += ["--posterior", str(folder / "posterior.safetensors"), "--device", "cpu", "--save-haze"]
    command += ["--send-to", f"ORTHANC@127.0.0.1:{archive.dicom}", "--dicomweb", f"{archive.url}/dicom-web"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "listens at" in node.stdout.readline()
    yield archive, folder
    node.send_signal(signal.SIGTERM)
    node.wait(30)
    archive.stop()
    out = node.stdout.read()
    assert "Traceback" not in out


def wait_for(archive, count):
    end = time.monotonic() + 60
    while len(archive.get("instances").json()) < count:
        assert time.monotonic() < end, archive.get("instances").json()
        time.sleep(0.1)
    return archive.get("instances").json()


@pytest.mark.slow
def test_a_study_goes_in_and_its_derived_series_come_out(place, tmp_path):
    archive, folder = place
    lossy = {"ImageType": ["DERIVED", "PRIMARY"]}  # but as it was taken
    path = write_dicom(tmp_path / "a.dcm", fan_frames(2), **lossy)
    archive.put_in(path)  # the hook sends it to the node
    wait_for(archive, 3)
    time.sleep(0.5)
    assert len(archive.get("instances").json()) == 3 and len(archive.get("studies").json()) == 1  # no circle
    series = [archive.get(f"series/{each}").json() for each in archive.get("series").json()]
    assert len(series) == 3
    posterior = str(folder / "posterior.safetensors")
    how = ["--posterior", posterior, "--device", "cpu", "--save-haze", "-o"]
    outcome = CliRunner().invoke(main, ["process", str(path), *how, str(tmp_path / "out")])
    assert outcome.exit_code == 0, outcome.output
    stored = _derived(archive)
    for name in ("a.dehazed.dcm", "a.dehazed.haze.dcm"):
        made = pydicom.dcmread(tmp_path / "out" / name)
        found = stored[made.SeriesDescription]
        assert found.StudyInstanceUID == "1.2.3.4" and np.array_equal(found.pixel_array, made.pixel_array)
        query = f"dicom-web/instances?SOPInstanceUID={found.SOPInstanceUID}"
        assert [each["0020000D"]["Value"] for each in archive.get(query).json()] == [["1.2.3.4"]]
    url = f"{archive.url}/dicom-web"
    fetched = CliRunner().invoke(main, ["process", "dicomweb:1.2.3.4", "--dicomweb", url, *how, str(tmp_path / "web")])
    assert fetched.exit_code == 0, fetched.output
    assert sorted(p.name for p in (tmp_path / "web").glob("*.dcm")) == [
        "dicomweb-001.dehazed.dcm", "dicomweb-001.dehazed.haze.dcm",
    ]  # fmt: skip
    again, first = (pydicom.dcmread(tmp_path / p) for p in ("web/dicomweb-001.dehazed.dcm", "out/a.dehazed.dcm"))
    assert again.SeriesInstanceUID == first.SeriesInstanceUID and again.PixelData == first.PixelData


def _derived(archive):
    """What Orthanc holds that was derived, by its description."""
    found = {}
    for each in archive.get("instances").json():
        image = pydicom.dcmread(BytesIO(archive.get(f"instances/{each}/file").content))
        if image.ImageType[1] == "SECONDARY":
            assert archive.get(f"instances/{each}/preview").content[:4] == b"\x89PNG"  # Orthanc can show it
            found[image.SeriesDescription] = image
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dicomweb:1.2.3.4"], "say where it is with --dicomweb"),
        (["dicomweb:1.2.3.9", "-o", "out", "--dicomweb", "URL"], "no ultrasound image in that study"),
        (["dicomweb:name", "-o", "out", "--dicomweb", "URL"], "no Study Instance UID"),
        (["dicomweb:1.2", "-o", "out", "--dicomweb", "http://127.0.0.1:1/dicom-web"], "no answer to be used"),
    ],
)
def test_a_study_that_cannot_be_fetched_is_one_line(place, arguments, message):
    url = f"{place[0].url}/dicom-web"
    outcome = CliRunner().invoke(main, ["process", *(url if each == "URL" else each for each in arguments)])
    assert outcome.exit_code in (1, 2) and message in outcome.output and "Traceback" not in outcome.output
