"""The MONAI Deploy application: its function by itself, its operator on stand-ins, and both in the SDK where it is."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pydicom
import pytest
from _dicom import SENTINEL, region, write_dicom
from _scans import fan_frames
from _tiny_priors import write_tiny_posterior

from usdehaze import Dehazer, open_cine
from usdehaze.decibels import db_to_grey
from usdehaze.errors import UsdehazeError

APP = Path(__file__).resolve().parents[1] / "pipelines" / "monai_deploy"
DERIVED = [".dehazed.dcm", ".dehazed.haze.dcm"]  # what follows the number of the object


@pytest.fixture
def study(tmp_path):
    """A folder of a cine, an image derived from it, and a slice of MR; and a posterior."""
    folder = tmp_path / "study"
    folder.mkdir()
    lossy = {"ImageType": ["DERIVED", "PRIMARY"]}  # compressed with loss, but as it was taken
    write_dicom(folder / f"a {SENTINEL}.dcm", fan_frames(3), regions=[region()], **lossy)
    derived = {"SOPInstanceUID": "1.2.9", "ImageType": ["DERIVED", "SECONDARY"]}
    write_dicom(folder / "b.dcm", fan_frames(1), regions=[region()], **derived)
    write_dicom(folder / "c.dcm", fan_frames(1), Modality="MR", SOPClassUID="1.2.840.10008.5.1.4.1.1.4")
    write_tiny_posterior(tmp_path / "posterior.safetensors")
    return SimpleNamespace(
        folder=folder,
        files=sorted(folder.iterdir()),
        posterior=tmp_path / "posterior.safetensors",
        out=tmp_path / "out",
    )


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the application, which is no package."""
    monkeypatch.syspath_prepend(str(APP))
    names = ("dehazing", "dehaze_operator", "app")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


def check_series(study, out):
    """The derived images of the one cine, in its study, with the pixels that the dehazer gives."""
    files = sorted(out.iterdir())
    assert [path.name[4:] for path in files] == DERIVED
    tissue, haze = map(pydicom.dcmread, files)
    source = pydicom.dcmread(study.files[0])
    for image in (tissue, haze):
        assert (image.StudyInstanceUID, image.PatientName) == (source.StudyInstanceUID, source.PatientName)
        assert image.SourceImageSequence[0].ReferencedSOPInstanceUID == source.SOPInstanceUID
    assert len({source.SeriesInstanceUID, tissue.SeriesInstanceUID, haze.SeriesInstanceUID}) == 3
    result = Dehazer.from_pretrained(posterior=str(study.posterior)).dehaze(open_cine(study.files[0]))
    assert np.array_equal(tissue.pixel_array, db_to_grey(result.tissue, result.cine.dynamic_range_db))


def test_images_are_dehazed_into_two_series_and_others_passed_over_without_a_name(study, module):
    study.out.mkdir()
    said = []
    dehazer = Dehazer.from_pretrained(posterior=str(study.posterior))
    done = module("dehazing").dehaze_images(study.files, study.out, dehazer, said.append)
    assert [path.name[4:] for path in done.images] == DERIVED and set(done.passed) == {2, 3}
    assert "was derived" in done.passed[2] and "another kind" in done.passed[3] and len(said) == 3
    assert SENTINEL not in " ".join(said) and "1.2" not in " ".join(said)
    check_series(study, study.out)
    with pytest.raises(UsdehazeError, match="no ultrasound to dehaze among 2 objects"):
        module("dehazing").dehaze_images(study.files[1:], study.out, dehazer)


def in_memory(*datasets):
    """Studies as the SDK's loader gives them."""
    instances = [SimpleNamespace(get_native_sop_instance=lambda each=each: each) for each in datasets]
    series = SimpleNamespace(get_sop_instances=lambda: instances)
    return [SimpleNamespace(get_all_series=lambda: [series])]


def test_instances_without_a_file_get_one(study, module, tmp_path):
    with_file, without = (pydicom.dcmread(study.files[0]) for _ in range(2))
    without.filename = None
    folder = tmp_path / "spare"
    folder.mkdir()
    files = module("dehazing").files_of(in_memory(with_file, without), folder)
    assert files == [study.files[0], folder / "0002.dcm"]
    assert pydicom.dcmread(files[1]).PixelData == with_file.PixelData


class StandIn:
    """What the operator uses of ``monai.deploy.core.Operator``."""

    def __init__(self, fragment, *args, **kwargs):
        self.fragment, self.more, self.ports = fragment, (args, kwargs), []
        self.setup(SimpleNamespace(input=self._port, output=self._port))

    def _port(self, name):
        self.ports.append(name)
        return SimpleNamespace(condition=lambda condition: None)


def test_the_operator_hands_on_what_it_made(study, module, monkeypatch):
    core = ModuleType("monai.deploy.core")
    core.Operator, core.Fragment, core.OperatorSpec = StandIn, object, object
    core.ConditionType = SimpleNamespace(NONE=0)
    for name, stub in (("monai.deploy", ModuleType("monai.deploy")), ("monai.deploy.core", core)):
        monkeypatch.setitem(sys.modules, name, stub)
    options = {"posterior": str(study.posterior)}
    operator = module("dehaze_operator").DehazeOperator("app", output_folder=study.out, options=options, name="dehaze")
    assert operator.ports == ["dicom_study_list", "dehazed_images"] and operator.more == ((), {"name": "dehaze"})
    given, emitted = in_memory(*map(pydicom.dcmread, study.files)), {}
    receive = SimpleNamespace(receive=lambda name: {"dicom_study_list": given}[name])
    emit = SimpleNamespace(emit=lambda value, name: emitted.update({name: value}))
    operator.compute(receive, emit, None)
    assert emitted == {"dehazed_images": [f"{study.out}/0001{end}" for end in DERIVED]}
    check_series(study, study.out)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("holoscan") is None, reason="monai-deploy-app-sdk is not installed")
def test_the_application_runs_in_the_sdk(study):
    study.out.mkdir()
    command = [sys.executable, str(APP), "-i", str(study.folder), "-o", str(study.out), "-m", str(study.posterior)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if "libcudart" in done.stderr:
        pytest.skip("the SDK does not find libcudart: pip install nvidia-cuda-runtime, and LD_LIBRARY_PATH")
    assert done.returncode == 0, done.stderr
    assert sum(": dehazed" in line for line in (done.stdout + done.stderr).splitlines()) == 1
    check_series(study, study.out)
