"""Results on DICOM scans without priors, and the objects made of them."""

import shutil
import subprocess

import numpy as np
import pydicom

from usdehaze.dehazing.masking import keep_what_is_no_tissue
from usdehaze.geometry import sector_mask
from usdehaze.io.dicom import DicomWriter, open_dicom
from usdehaze.result import Result

SETTINGS = {
    "preset": "fast",
    "guidance": "proximal",
    "steps": 32,
    "seed": 0,
    "samples": 1,
    "caution": 0.5,
    "strength": 1.0,
    "tissue_prior": "tissue-v1 sha256:0123",
    "haze_prior": "haze-v1 sha256:4567",
}


def lowered(cine, by_db=6.0, **settings):
    """Stands in for the dehazer: takes so many dB off all tissue in the image; haze is 20 dB under full scale."""
    sector, shape = cine.geometry.sector, cine.frames.shape[1:]
    image = np.ones(shape, bool) if sector is None else sector_mask(sector, shape)
    tissue = np.where(image, np.maximum(cine.frames - np.float32(by_db), -cine.dynamic_range_db), cine.frames)
    haze = np.where(image, np.float32(-20), np.float32(-cine.dynamic_range_db)) + np.zeros_like(cine.frames)
    result = Result(cine, tissue.astype(np.float32), haze, None, {**SETTINGS, **settings})
    return keep_what_is_no_tissue(result)


def derive(source, target, *, frames=None, by_db=6.0, settings=None, chunk=2, **options):
    """Reads, lowers and writes a file; returns the derived object as pydicom reads it, and the scan's frames in dB."""
    with open_dicom(source, frames=frames) as scan:
        with DicomWriter(target, scan, overwrite=True, **options) as writer:
            for cine in scan.chunks(chunk):
                writer.append(lowered(cine, by_db, **(settings or {})))
        return pydicom.dcmread(target), scan.read_db(0, scan.n_frames)


def complaints(path):
    """What dciodvfy holds against a file: its lines of errors."""
    done = subprocess.run(
        [shutil.which("dciodvfy"), path], capture_output=True, text=True, errors="replace", check=False
    )
    return {line.strip() for line in (done.stdout + done.stderr).splitlines() if line.startswith("Error")}
