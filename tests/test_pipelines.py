"""The pipelines run, and do what their pages say."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pydicom
import pytest
from _dicom import region, write_dicom
from _scans import fan_frames, write
from monai.bundle import ConfigParser, run, verify_metadata

from usdehaze import Dehazer, open_cine
from usdehaze.cli.plan import plan_jobs
from usdehaze.errors import UsdehazeError
from usdehaze.io import read_result
from usdehaze.transforms import SaveUltrasoundd, dehaze_all

PIPELINES = Path(__file__).resolve().parents[1] / "pipelines"
CONFIG = PIPELINES / "dehaze" / "configs" / "inference.yaml"


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    write(folder / "scan-0.h5", {"cine": fan_frames(2)})
    rgb = np.repeat(fan_frames(2, seed=1)[..., None], 3, axis=-1)
    rgb[1, 30:40, 20:44] = (200, 20, 20)
    write_dicom(folder / "scan-1.dcm", rgb, "RGB", regions=[region()])
    return folder


def check_results(out, scans, options):
    names = ["scan-0.dehazed.h5", "scan-1.dehazed.dcm", "scan-1.dehazed.h5"]
    assert sorted(path.name for path in out.iterdir()) == names
    derived, source = pydicom.dcmread(out / names[1]), pydicom.dcmread(scans / "scan-1.dcm")
    assert derived.ImageType[0] == "DERIVED" and derived.pixel_array.shape == source.pixel_array.shape
    colour = (1, slice(30, 40), slice(20, 44))
    assert np.array_equal(derived.pixel_array[colour], source.pixel_array[colour])
    assert (derived.pixel_array < source.pixel_array).mean() > 0.1
    dehazer = Dehazer.from_pretrained(**options)
    for path in sorted(out.glob("*.h5")):
        stored = read_result(path)
        result = dehazer.dehaze(open_cine(scans / stored.attrs["source_name"]))
        assert np.array_equal(stored.tissue, result.tissue) and np.array_equal(stored.haze, result.haze)
        assert np.array_equal(stored.input, result.cine.frames)
        assert stored.attrs["seed"] == options.get("seed", 0) and stored.attrs["steps"] == 2


def test_the_bundle_dehazes_a_folder(tmp_path, scans, options, capsys):
    chosen = {**options, "seed": 4}
    run(config_file=str(CONFIG), dataset_dir=str(scans), output_dir=str(tmp_path / "out"), **chosen)
    check_results(tmp_path / "out", scans, chosen)
    assert f"scan-1.dcm -> {tmp_path / 'out' / 'scan-1.dehazed.h5'}" in capsys.readouterr().out


def test_the_bundle_goes_on_after_a_bad_file_resumes_and_tells_every_file(tmp_path, scans, options, capsys):
    folder, out = tmp_path / "in", tmp_path / "out"
    for patient in ("a", "b"):
        (folder / patient).mkdir(parents=True)
        shutil.copy(scans / "scan-0.h5", folder / patient / "scan.h5")
    (folder / "a" / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    shutil.copy(scans / "scan-1.dcm", folder / "c.dcm")

    def go(**more):
        run(config_file=str(CONFIG), dataset_dir=str(folder), output_dir=str(out), **options, **more)
        return capsys.readouterr()

    told = go()
    made = ["a/scan.dehazed.h5", "b/scan.dehazed.h5", "c.dehazed.dcm", "c.dehazed.h5"]
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == made
    assert all(str(out / name) in told.out for name in made)
    assert "4 scans: 3 dehazed, 0 there already, 1 failed" in told.out
    bad = [line for line in told.err.splitlines() if "bad.h5" in line]
    assert len(bad) == 1 and "cannot be read as HDF5" in bad[0]

    before = {name: (out / name).stat().st_mtime_ns for name in made}
    (out / "c.dehazed.dcm").unlink()  # as a killed run leaves it
    (out / "b" / "scan.dehazed.h5").unlink()
    told = go(save_haze=True)
    assert "4 scans: 2 dehazed, 1 there already, 1 failed" in told.out
    assert (out / "c.dehazed.haze.dcm").is_file() and f"{out / 'c.dehazed.haze.dcm'}" in told.out
    assert (out / made[0]).stat().st_mtime_ns == before[made[0]]
    assert (out / made[1]).is_file() and (out / made[2]).is_file()
    told = go(seed=5)
    assert "3 dehazed, 0 there already" in told.out and told.out.count("made with other settings (seed 0, now 5)") == 3
    told = go(overwrite=True)
    assert "3 dehazed, 0 there already" in told.out and (out / made[0]).stat().st_mtime_ns != before[made[0]]
    with pytest.raises(RuntimeError) as caught:
        go(raise_on_failure=True)
    assert "1 failed" in str(caught.value.__cause__)
    for flag in ("overwrite", "save_haze", "raise_on_failure"):
        with pytest.raises(RuntimeError) as caught:
            go(**{flag: "no"})
        assert f"{flag} must be True or False, found 'no'" in str(caught.value.__cause__)


def test_the_bundle_tells_what_it_cannot_read_in_the_folder(tmp_path, scans, options, capsys):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    shutil.copy(scans / "scan-0.h5", folder / "scan.h5")
    (folder / "patient-2").symlink_to(tmp_path / "not-mounted")
    run(config_file=str(CONFIG), dataset_dir=str(folder), output_dir=str(out), **options)
    told = capsys.readouterr()
    assert "2 scans: 1 dehazed, 0 there already, 1 failed" in told.out
    assert f"{folder / 'patient-2'}: is a link that leads nowhere" in told.err


def test_the_bundle_names_results_as_the_command_line_does(tmp_path, scans, options):
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "b").mkdir(parents=True)
    for name in ("a.h5", "a.hdf5", "1.2.34", "1.2.35", "b/a.h5"):
        shutil.copy(scans / "scan-0.h5", folder / name)
    for name in ("IM.A", "IM.B"):
        shutil.copy(scans / "scan-1.dcm", folder / name)
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(fan_frames(2).transpose(2, 1, 0), np.eye(4)), folder / "n.nii.gz")
    expected = {target.relative_to(out) for job in plan_jobs((str(folder),), str(out)) for target in job.targets}
    assert Path("a.hdf5.dehazed.h5") in expected and Path("n.dehazed.h5") in expected and len(expected) == 10

    def go(**more):
        run(config_file=str(CONFIG), dataset_dir=str(folder), output_dir=str(out), **options, **more)
        return {path.relative_to(out): path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}

    made = go(raise_on_failure=True)
    assert set(made) == expected
    assert go(raise_on_failure=True) == made  # and it finds them again


def test_the_bundle_loses_no_result_to_another_scan_of_the_same_name(tmp_path, scans, options, capsys):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    shutil.copy(scans / "scan-0.h5", folder / "scan.h5")
    run(config_file=str(CONFIG), dataset_dir=str(folder), output_dir=str(out), **options)
    shutil.copy(scans / "scan-1.dcm", folder / "scan.h5")
    with pytest.raises(RuntimeError) as caught:
        run(config_file=str(CONFIG), dataset_dir=str(folder), output_dir=str(out), **options)
    assert "is the result of another scan" in str(caught.value.__cause__)
    for name in ("a", "b"):
        (folder / name).mkdir()
        shutil.copy(scans / "scan-0.h5", folder / name / "scan.h5")
    items = [{"image": str(folder / name / "scan.h5")} for name in ("a", "b")]
    with pytest.raises(UsdehazeError):
        dehaze_all(items, lambda item: item, SaveUltrasoundd("tissue", output_dir=tmp_path / "flat"))
    assert capsys.readouterr().err.count("as another scan") == 2 and not (tmp_path / "flat").exists()


def test_metadata_pass_monais_check(tmp_path):
    """Against every key and type that MONAI's specification and its schemas, old and new, ask for; offline."""
    pytest.importorskip("jsonschema", reason="verify_metadata needs jsonschema")
    tensor = {
        "type": "object",
        "properties": {
            **{key: {"type": "string"} for key in ("type", "format", "modality", "dtype")},
            "num_channels": {"type": "integer"},
            "spatial_shape": {"type": "array", "items": {"type": ["integer", "string"]}},
            "value_range": {"type": "array", "items": {"type": "number"}},
            "is_patch_data": {"type": "boolean"},
            "channel_def": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    tensor["required"] = list(tensor["properties"])
    texts = ("schema", "version", "monai_version", "pytorch_version", "numpy_version", "name", "task", "description")
    texts += ("authors", "authorship", "copyright", "data_source", "data_type", "dataset_dir", "image_classes")
    texts += ("label_classes", "pred_classes", "intended_use")
    objects = ("changelog", "required_packages_version", "optional_packages_version", "supported_apps", "eval_metrics")
    ends = {"inputs": "image", "outputs": "pred"}
    wanted = {
        **{key: {"type": "string"} for key in texts},
        **{key: {"type": "object"} for key in objects},
        "references": {"type": "array"},
        "network_data_format": {
            "type": "object",
            "properties": {end: {"properties": {key: tensor}, "required": [key]} for end, key in ends.items()},
            "required": list(ends),
        },
    }
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": wanted, "required": list(wanted)}))
    verify_metadata(meta_file=str(CONFIG.parent / "metadata.json"), filepath=str(schema))
    spoilt = json.loads((CONFIG.parent / "metadata.json").read_text())
    spoilt["network_data_format"]["inputs"]["image"]["num_channels"] = "T"
    (tmp_path / "spoilt.json").write_text(json.dumps(spoilt))
    with pytest.raises(ValueError, match="is not of type 'integer'"):
        verify_metadata(meta_file=str(tmp_path / "spoilt.json"), filepath=str(schema))


def run_bundle(config, **words):
    """``python -m monai.bundle run``, in a process that has imported nothing of ours before."""
    pytest.importorskip("fire", reason="python -m monai.bundle needs fire")
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", str(config)]
    command += [word for key, value in words.items() for word in (f"--{key}", str(value))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_bundle_runs_from_the_command_line(tmp_path, scans, options):
    run_bundle(CONFIG, dataset_dir=scans, output_dir=tmp_path / "out", **options)
    check_results(tmp_path / "out", scans, options)


@pytest.mark.slow
def test_a_bundle_of_monais_own_steps_reads_and_writes_by_dotted_name(tmp_path, scans, options):
    """As the page shows: LoadImaged and SaveImaged, in workers, with our reader and writers."""
    saving = {"_target_": "SaveImaged", "output_dir": str(tmp_path), "output_postfix": "", "separate_folder": False}
    writers = "usdehaze.transforms.Ultrasound{}Writer"
    steps = [
        {"_target_": "LoadImaged", "keys": "image", "reader": "usdehaze.transforms.UltrasoundReader"},
        {"_target_": "CopyItemsd", "keys": "image", "names": "tissue"},
        {"_target_": "usdehaze.transforms.DehazeUltrasoundd", "keys": "tissue", "haze_key": "haze", **options},
        {"_target_": "ConcatItemsd", "keys": ["tissue", "haze", "image"], "name": "result"},
        {**saving, "keys": "result", "output_ext": ".dehazed.h5", "writer": writers.format("HDF5")},
    ]
    dicom = {**saving, "keys": "tissue", "output_ext": ".dehazed.dcm", "writer": writers.format("Dicom")}
    bundle = {"run": []}
    for name, transforms in (("scan-0.h5", steps), ("scan-1.dcm", [*steps, dicom])):
        kind = name[-3:].strip(".")
        bundle[kind] = {
            "_target_": "Dataset",
            "data": [{"image": str(scans / name)}],
            "transform": {"_target_": "Compose", "transforms": transforms},
        }
        bundle[f"{kind}_loader"] = {"_target_": "DataLoader", "dataset": f"@{kind}", "num_workers": 1}
        bundle["run"].append(f"$[None for _ in @{kind}_loader]")
    config = tmp_path / "bundle.json"
    config.write_text(json.dumps(bundle))
    run_bundle(config)
    config.unlink()
    check_results(tmp_path, scans, options)


def test_the_bundles_options_are_those_it_hands_on():
    parser = ConfigParser()
    parser.read_config(str(CONFIG))
    steps = [*parser["preprocessing"]["transforms"], parser["save"]]
    used = {str(value)[1:] for step in steps for value in step.values() if str(value).startswith("@")}
    plain = {key for key, value in parser.config.items() if not isinstance(value, dict | list) and key != "scans"}
    assert used == plain - {"bundle_root", "raise_on_failure", "_meta_"}
    meta = json.loads((CONFIG.parent / "metadata.json").read_text())
    assert {"version", "monai_version", "pytorch_version", "numpy_version", "network_data_format"} <= set(meta)


def test_the_python_pipeline_dehazes_before_it_measures(scans, options):
    spec = importlib.util.spec_from_file_location("dehaze_then_segment", PIPELINES / "dehaze_then_segment.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scan = scans / "scan-0.h5"
    item = module.pipeline(**options)({"image": scan})
    tissue = Dehazer.from_pretrained(**options).dehaze(open_cine(scan)).tissue
    enlarged = np.clip(tissue / 60 + 1, 0, 1).repeat(2, axis=1).repeat(2, axis=2)  # 64 -> 128, mode "area"
    np.testing.assert_allclose(item["image"].numpy(), enlarged, atol=1e-6)
    shares = [float((frame < 0.25).mean()) for frame in enlarged]
    assert module.dark_share(item["bright"]) == pytest.approx(shares, abs=1e-3)
    assert 0.1 < shares[0] < 0.9
