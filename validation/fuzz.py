"""Damaged files of every kind that is read: each must end in frames, or in one line that says why not.

    python -m validation.fuzz [SEED_FILE_OR_FOLDER ...] [--count 2000] [--seed 0] [--seconds 60] [--gigabytes 4]

Files made here (DICOM in every transfer syntax that pydicom writes, HDF5 in several layouts, images, arrays, films;
with ``--like`` some of them) and the given ones are damaged a few bytes at a time, most often near their beginning, and
opened, read and, where they are DICOM, written as derived images.
A traceback, a message of several lines, a crash, more memory or more time than allowed is a failure; its number is
printed, and ``--only N`` makes that very file again as ``fuzz-N``. Exit code 1 where anything failed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)
FRAMES_READ = 3


def main() -> None:
    """Prints what became of the files, and the failures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("seeds", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="for one file")
    parser.add_argument("--gigabytes", type=float, default=4, help="of address space beyond what Python needs")
    parser.add_argument("--like", default="*", help="pattern of the names of the files made here")
    parser.add_argument("--only", type=int, help="make this file and read it here")
    parser.add_argument("--child", type=int, nargs=2, metavar=("START", "STOP"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.child or args.only is not None:
            start, stop = args.child or (args.only, args.only + 1)
            _child(args, Path(folder), start, stop)
            return
        sys.exit(_parent(args))


def _parent(args: argparse.Namespace) -> int:
    """Runs children, a new one after each that dies, and counts what becomes of the files."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    at, started = 0, time.monotonic()
    while at < args.count:
        command = [
            sys.executable,
            "-m",
            "validation.fuzz",
            *map(str, args.seeds),
            "--seed",
            str(args.seed),
        ]
        command += ["--like", args.like, "--gigabytes", str(args.gigabytes), "--child", str(at), str(args.count)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdout is not None
        watch = _Watchdog(child, args.seconds)
        for line in child.stdout:
            watch.reset()
            number, outcome, detail = line.rstrip("\n").split("\t")
            at = int(number) + 1
            outcomes[outcome] += 1
            if outcome not in ("frames", "one line"):
                failures.append(f"{number}: {outcome}: {detail}")
        code = child.wait()
        watch.cancel()
        if code != 0:
            outcome = "time" if watch.bit else f"exit code {code}"
            outcomes[outcome] += 1
            failures.append(f"{at}: {outcome}")
            at += 1
    print(f"{args.count} files in {time.monotonic() - started:.0f} s: {dict(outcomes)}")
    print("\n".join(failures))
    return 1 if failures else 0


class _Watchdog:
    """Kills a child that says nothing for too long."""

    def __init__(self, child: subprocess.Popen[str], seconds: float) -> None:
        self.child, self.seconds, self.bit = child, seconds + 240, False  # a child needs time to begin
        self.reset()
        self.seconds = seconds

    def reset(self) -> None:
        self.cancel()
        self.timer = threading.Timer(self.seconds, self._bite)
        self.timer.daemon = True
        self.timer.start()

    def cancel(self) -> None:
        if hasattr(self, "timer"):
            self.timer.cancel()

    def _bite(self) -> None:
        self.bit = True
        self.child.kill()


def _child(args: argparse.Namespace, folder: Path, start: int, stop: int) -> None:
    import usdehaze.io.dicom
    import usdehaze.io.hdf5  # noqa: F401

    made = [seed for seed in make_seeds(folder) if seed.match(args.like)]
    seeds = [*made, *_files(args.seeds)]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + int(args.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in range(start, stop):
        rng = np.random.default_rng([args.seed, number])
        seed = seeds[int(rng.integers(len(seeds)))]
        path = Path(f"fuzz-{number}") if args.only is not None else folder / "scan"
        path.write_bytes(damaged(seed.read_bytes(), rng))
        outcome, detail = judge(path, folder / "derived.dcm")
        print(f"{number}\t{outcome}\t{seed.name} {' '.join(detail.split())}", flush=True)


def judge(path: Path, derived: Path) -> tuple[str, str]:
    """What becomes of a file: "frames", "one line", or what went wrong, with a word on it."""
    from usdehaze.errors import InputError
    from usdehaze.io import open_scan

    try:
        with open_scan(path) as scan:
            for index in range(min(scan.n_frames, FRAMES_READ)):
                scan.read(index, index + 1)
        _derive(path, derived)
    except InputError as error:
        line = str(error)
        clear = "\n" not in line and line.startswith((f"{path}: ", f"{derived}: "))
        return "one line" if clear else "words", line
    except MemoryError:
        return "memory", traceback.format_exc(limit=-3)
    except Exception as error:
        return type(error).__name__, traceback.format_exc(limit=-3)
    return "frames", ""


def _derive(path: Path, derived: Path) -> None:
    """Writes the first frames of a DICOM file as a derived image, nothing removed."""
    from usdehaze.io import kind_of
    from usdehaze.io.dicom import DicomWriter, open_dicom
    from usdehaze.result import Result

    if kind_of(path) != "DICOM":
        return
    opened: Any = open_dicom(path, frames=slice(0, FRAMES_READ))
    with opened as scan, DicomWriter(derived, scan, transfer_syntax="rle", overwrite=True) as writer:
        cine = scan.read()
        writer.append(Result(cine, cine.frames, cine.frames, None, {}))


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A copy with one to eight faults, most of them in the first few thousand bytes."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        at = int(rng.integers(len(data) if rng.random() < 0.3 else min(len(data), 4096)))
        size = int(rng.choice([1, 2, 4, 8, 64, 1000]))
        match int(rng.integers(8)):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1 | 2:
                data[at] = int(rng.integers(256))
            case 3:
                width = int(rng.choice([2, 4]))
                extreme = int(rng.choice(EXTREMES)) & (256**width - 1)
                data[at : at + width] = extreme.to_bytes(width, rng.choice(["little", "big"]))
            case 4:
                del data[at : at + size]
            case 5:
                data[at:at] = data[at : at + size]
            case 6:
                data[at : at + size] = rng.bytes(size)
            case 7 if rng.random() < 0.2:
                del data[at:]
        data = data or bytearray(b"\0")
    return bytes(data)


def make_seeds(folder: Path) -> list[Path]:
    """Small sound files, speckle in a fan: DICOM in many transfer syntaxes and colours, and one HDF5."""
    import h5py
    from pydicom import uid

    rng = np.random.default_rng(0)
    row, column = np.mgrid[:64, :64]
    fan = np.abs(np.arctan2(column - 31.5, row + 1)) < 0.6
    grey = np.where(fan, rng.integers(40, 255, (3, 64, 64)), 0).astype(np.uint8)
    rgb = np.repeat(grey[..., None], 3, axis=3)
    rgb[:, 30:40, 28:36] = (200, 80, 0)
    seeds = []
    for syntax in (uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian, uid.RLELossless, uid.JPEGLSLossless):
        seeds.append(_dicom(folder / f"grey-{syntax}", grey, "MONOCHROME2", syntax))
        seeds.append(_dicom(folder / f"rgb-{syntax}", rgb, "RGB", syntax))
    seeds.append(_dicom(folder / "grey-j2k", grey, "MONOCHROME2", uid.JPEG2000Lossless))
    seeds.append(_dicom(folder / "rgb-j2k", rgb, "YBR_RCT", uid.JPEG2000Lossless))
    seeds.append(_dicom(folder / "words", grey.astype(np.uint16) * 16, "MONOCHROME2", uid.RLELossless))
    seeds.append(_dicom(folder / "palette", grey, "PALETTE COLOR", uid.ExplicitVRLittleEndian))
    seeds.append(_dicom(folder / "jpeg", rgb, "YBR_FULL_422", uid.JPEGBaseline8Bit))
    seeds.append(folder / "plain.h5")
    with h5py.File(seeds[-1], "w") as file:
        file.create_dataset("frames", data=grey, chunks=(1, 64, 64), compression="gzip")
    return [*seeds, *_layouts(folder, grey), *_arrays(folder, grey), *_films(folder, grey)]


def _layouts(folder: Path, grey: np.ndarray) -> list[Path]:
    """The same speckle as zea, UFF and MATLAB store it, as a MetaImage and as a PNG."""
    import zlib

    import h5py
    from PIL import Image

    depth, angle = np.linspace(0.01, 0.1, 64), np.linspace(-0.6, 0.6, 64)
    x_m, z_m = depth[:, None] * np.sin(angle), depth[:, None] * np.cos(angle)
    paths = [folder / name for name in ("zea.hdf5", "scan.uff", "matlab.mat", "packed.mha", "frame.png")]
    with h5py.File(paths[0], "w") as file:
        file.attrs["zea_version"] = "0.1.8"
        data = file.create_group("tracks/track_0/data/image")
        data.create_dataset("values", data=grey, compression="gzip")
        data["coordinates"] = np.stack([x_m, 0 * x_m, z_m], axis=-1).astype(np.float32)
        data["unit"], data["min"], data["max"] = "dB", -60.0, 0.0
    with h5py.File(paths[1], "w") as file:
        for part in ("real", "imag"):
            file[f"b_data/data/{part}"] = grey.reshape(3, -1).T[:, None, None, :].astype(np.float32)
        file["b_data"].attrs["class"] = "uff.beamformed_data"
        for name, axis in (("azimuth_axis", angle), ("depth_axis", depth), ("x", x_m.ravel()), ("z", z_m.ravel())):
            file[f"b_data/scan/{name}"] = axis
    with h5py.File(paths[2], "w", userblock_size=512) as file:
        for index, frame in enumerate(grey):
            file[f"#refs#/{index}"] = frame.T
        file["cine"] = np.array([[file[f"#refs#/{index}"].ref] for index in range(3)], dtype=h5py.ref_dtype)
        file["cine"].attrs["MATLAB_class"] = np.bytes_("cell")
    header = "ObjectType = Image\nNDims = 3\nCompressedData = True\nDimSize = 64 64 3\nElementType = MET_UCHAR\n"
    paths[3].write_bytes((header + "ElementDataFile = LOCAL\n").encode() + zlib.compress(grey.tobytes()))
    Image.fromarray(grey[0]).save(paths[4])
    return paths


def _arrays(folder: Path, grey: np.ndarray) -> list[Path]:
    """The same speckle as NumPy, MATLAB, NIfTI and ITK store it, as a header beside its values, and as a sequence."""
    import gzip

    import h5py
    from scipy.io import savemat

    names = ("array.npy", "array.npz", "array.mat", "array-struct.mat", "array.nii", "array.nii.gz", "array.mhd")
    paths = [folder / name for name in (*names, "array-plus.mha", "array-itk.h5", "array-DICOMDIR")]
    np.save(paths[0], grey)
    np.savez_compressed(paths[1], cine=grey, fps=50)
    savemat(paths[2], {"cine": grey.transpose(1, 2, 0), "name": "x"}, do_compression=True)
    cells = np.empty(3, object)
    cells[:] = list(grey)
    savemat(paths[3], {"scan": {"cine": cells, "depth": np.arange(64.0)}})
    nifti = bytearray(352)
    nifti[:4], nifti[344:348] = (348).to_bytes(4, "little"), b"n+1\0"
    nifti[40:48] = np.array([3, 64, 64, 3], "<i2").tobytes()
    nifti[70:74], nifti[108:112] = np.array([2, 8], "<i2").tobytes(), np.float32(352).tobytes()
    nifti[76:92] = np.array([1, 0.3, 0.2, 1], "<f4").tobytes()
    paths[4].write_bytes(nifti + grey.tobytes())
    paths[5].write_bytes(gzip.compress(bytes(nifti) + grey.tobytes()))
    (folder / "values.raw").write_bytes(grey.tobytes())
    header = "ObjectType = Image\nNDims = 3\nDimSize = 64 64 3\nElementSpacing = 0.3 0.2 1\nElementType = MET_UCHAR\n"
    paths[6].write_text(header + "HeaderSize = -1\nElementDataFile = values.raw\n")
    stamps = "".join(f"Seq_Frame{k:04d}_Timestamp = {k / 20}\nSeq_Frame{k:04d}_ImageStatus = OK\n" for k in range(3))
    header += f"Kinds = domain domain list\nUltrasoundImageOrientation = MFA\n{stamps}ElementDataFile = LOCAL\n"
    paths[7].write_bytes(header.encode() + grey.tobytes())
    with h5py.File(paths[8], "w") as file:
        group = file.create_group("ITKImage/0")
        group["VoxelData"], group["Dimension"] = grey, np.array([64, 64, 3], "u8")
        group["Spacing"], group["VoxelType"] = np.array([0.3, 0.2, 1]), "UCHAR"
    _directory(paths[9])
    return paths


def _directory(path: Path) -> None:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import UID, ExplicitVRLittleEndian, MediaStorageDirectoryStorage

    ds, record = Dataset(), Dataset()
    record.DirectoryRecordType, record.ReferencedFileID = "IMAGE", ["IMAGES", "IM1"]
    record.ReferencedSOPClassUIDInFile = "1.2.840.10008.5.1.4.1.1.3.1"
    ds.DirectoryRecordSequence = [record, record]
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    ds.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    ds.file_meta.MediaStorageSOPInstanceUID = UID("1.2.3")
    ds.save_as(path, enforce_file_format=True)


def _films(folder: Path, grey: np.ndarray) -> list[Path]:
    """The same speckle as films."""
    import imageio_ffmpeg
    from PIL import Image

    encoders = {
        "film.avi": ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p"),
        "film.mp4": ("-c:v", "libx264", "-pix_fmt", "yuv420p"),
        "film.mkv": ("-c:v", "ffv1"),
    }
    read = ["-f", "rawvideo", "-pix_fmt", "gray", "-s", "64x64", "-r", "25", "-i", "-"]
    for name, encode in encoders.items():
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *read, *encode, str(folder / name)]
        subprocess.run(command, input=grey.tobytes(), check=True)
    images = [Image.fromarray(frame) for frame in grey]
    images[0].save(folder / "film.gif", save_all=True, append_images=images[1:], duration=40)
    return [folder / name for name in (*encoders, "film.gif")]


def _dicom(path: Path, frames: np.ndarray, photometric: str, syntax: str) -> Path:
    import io

    from PIL import Image
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID, ImplicitVRLittleEndian, JPEGBaseline8Bit

    ds, region = Dataset(), Dataset()
    ds.SOPClassUID, ds.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.3.1", "1.2.3.4"
    ds.StudyInstanceUID, ds.SeriesInstanceUID, ds.Modality = "1.2.3", "1.2.3.5", "US"
    ds.SpecificCharacterSet, ds.PatientName, ds.SeriesNumber = "ISO_IR 192", "A^B", 1
    ds.ImageType, ds.FrameIncrementPointer = ["ORIGINAL", "PRIMARY", "CARDIAC", "0001"], 0x00181065
    ds.NumberOfFrames, ds.FrameTimeVector, ds.FrameTime = len(frames), [0, 20, 30], 25
    region.RegionSpatialFormat = region.RegionDataType = 1
    region.RegionLocationMinX0, region.RegionLocationMinY0 = 2, 2
    region.RegionLocationMaxX1, region.RegionLocationMaxY1 = 61, 60
    region.PhysicalUnitsXDirection = region.PhysicalUnitsYDirection = 3
    region.PhysicalDeltaX = region.PhysicalDeltaY = 0.05
    ds.SequenceOfUltrasoundRegions = [region]
    ds.Rows, ds.Columns = frames.shape[1:3]
    ds.SamplesPerPixel, ds.PhotometricInterpretation = frames.shape[3] if frames.ndim == 4 else 1, photometric
    if frames.ndim == 4:
        ds.PlanarConfiguration = 0
    ds.BitsAllocated = ds.BitsStored = 8 * frames.dtype.itemsize
    ds.HighBit, ds.PixelRepresentation = ds.BitsStored - 1, 0
    for name in ("Red", "Green", "Blue") if photometric == "PALETTE COLOR" else ():
        setattr(ds, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 16])
        setattr(ds, f"{name}PaletteColorLookupTableData", (np.arange(256) * 257).astype(np.uint16).tobytes())
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = UID(syntax)
    ds.PixelData = frames.tobytes()
    ds["PixelData"].VR = "OW" if syntax == ImplicitVRLittleEndian or frames.dtype.itemsize > 1 else "OB"
    if syntax == JPEGBaseline8Bit:
        streams = [io.BytesIO() for _ in frames]
        for frame, stream in zip(frames, streams, strict=True):
            Image.fromarray(frame).save(stream, "JPEG", subsampling="4:2:2")
        ds.PixelData = encapsulate([stream.getvalue() for stream in streams])
    elif UID(syntax).is_compressed:
        ds.compress(syntax, frames, generate_instance_uid=False)
    ds.save_as(path, enforce_file_format=True)
    return path


def _files(paths: list[Path]) -> list[Path]:
    """Files as given, and those in given folders."""
    return [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]


if __name__ == "__main__":
    main()
