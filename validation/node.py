"""What the DICOM node stands: speed, kills, growth, malformed peers.

    python -m validation.node [--only speed,kills,growth,malformed] [--objects 1000] [--kills 20] [--frames 30]

Starts ``usdehaze node`` with the shipped posterior, an archive (pynetdicom) on loopback that sometimes says no, and a
modality that sends. Needs the extra ``node``. Nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pynetdicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from usdehaze.decibels import db_to_grey
from usdehaze.simulate import simulate_cine
from validation.loopback import Archive, modality, send

US_MULTIFRAME = "1.2.840.10008.5.1.4.1.1.3.1"


class NodeProcess:
    """``usdehaze node`` in a process of its own."""

    def __init__(self, spool: Path, archive: Archive, *more: str) -> None:
        command = [
            sys.executable,
            "-m",
            "usdehaze",
            "node",
            "--port",
            "0",
            "--spool",
            str(spool),
            "--max-rate",
            "1000000",
        ]
        self.process = subprocess.Popen(
            [*command, "--send-to", str(archive.peer), "--device", "cpu", *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "listens at" not in line:
            raise SystemExit(line + self.process.stdout.read())
        self.port = int(line.split("127.0.0.1:")[1].split(",")[0])
        self.said: list[str] = []
        threading.Thread(target=lambda: self.said.extend(self.process.stdout or []), daemon=True).start()

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait()

    @property
    def mebibytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 2**10


def cine(n_frames: int) -> Dataset:
    """A simulated cine as an Ultrasound Multi-frame Image."""
    frames = np.asarray(db_to_grey(simulate_cine(n_frames, 28).hazy, 60.0), np.uint8)
    ds = Dataset()
    ds.SOPClassUID, ds.SOPInstanceUID = US_MULTIFRAME, generate_uid()
    ds.StudyInstanceUID, ds.SeriesInstanceUID, ds.Modality = generate_uid(), generate_uid(), "US"
    ds.PatientName = ds.PatientID = ds.StudyID = ds.AccessionNumber = ""
    ds.ImageType = ["ORIGINAL", "PRIMARY"]
    ds.NumberOfFrames, ds.FrameTime, ds.FrameIncrementPointer = n_frames, 20, 0x00181063
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.Rows, ds.Columns = frames.shape[1:]
    ds.BitsAllocated = ds.BitsStored = 8
    ds.HighBit, ds.PixelRepresentation = 7, 0
    ds.PixelData = frames.tobytes()
    ds["PixelData"].VR = "OB"
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    return ds


def send_copies(port: int, image: Dataset, count: int = 1) -> list[str]:
    """Sends copies of an image under UIDs of their own; those of the acknowledged ones."""
    accepted: list[str] = []
    with modality(port, image) as association:
        while association.is_established and count > 0:
            image.SOPInstanceUID, count = generate_uid(), count - 1
            try:
                if association.send_c_store(image).get("Status") == 0:
                    accepted.append(str(image.SOPInstanceUID))
            except (RuntimeError, ValueError):  # the node has been killed
                break
    return accepted


def wait_for(archive: Archive, accepted: list[str], limit_s: float) -> int:
    """Waits until the archive has all of them; how many it lacks."""
    end = time.monotonic() + limit_s
    while (lacking := len(set(accepted) - set(archive.sources))) and time.monotonic() < end:
        time.sleep(0.2)
    return lacking


def speed(folder: Path, frames: int, seconds: float) -> str:
    archive = Archive()
    node = NodeProcess(folder / "spool", archive)
    image = cine(frames)
    wait_for(archive, send_copies(node.port, image), 120)
    accepted: list[str] = []
    before, began = len(archive.kept), time.monotonic()
    while time.monotonic() < began + seconds:
        if len(accepted) - (len(archive.kept) - before) < 4:  # the worker never waits, nor does a backlog grow
            accepted += send_copies(node.port, image)
        else:
            time.sleep(0.02)
    wait_for(archive, accepted, 600)
    rate = (len(archive.kept) - before) / (time.monotonic() - began) * 60
    node.end()
    return f"speed: {rate:.1f} cines of {frames} frames a minute, received, dehazed and delivered"


def kills(folder: Path, times: int) -> str:
    archive, accepted = Archive(refuses=0.2), []
    image, draw = cine(2), random.Random(1)
    for _ in range(times):
        node = NodeProcess(folder / "spool", archive)
        threading.Timer(draw.uniform(0.05, 3.0), node.end, (signal.SIGKILL,)).start()
        accepted += send_copies(node.port, image, 20)
        node.process.wait()
    node = NodeProcess(folder / "spool", archive)
    lacking = wait_for(archive, accepted, 900)
    node.end()
    twice = len(archive.kept) - len(set(archive.sources))
    return (
        f"kills: {times} SIGKILL, {len(accepted)} objects acknowledged, {lacking} lost, {twice} delivered twice "
        f"(the same UIDs), the archive refused one in five"
    )


def growth(folder: Path, objects: int) -> str:
    archive = Archive()
    node = NodeProcess(folder / "spool", archive, "--preset", "preview")
    image, accepted, seen = cine(1), [], []
    for _ in range(10):
        accepted += send_copies(node.port, image, objects // 10)
        wait_for(archive, accepted, 600)
        seen.append(node.mebibytes)
    node.end()
    told = ", ".join(f"{value:.0f}" for value in seen)
    return f"growth: resident MiB after each tenth of {len(accepted)} objects: {told}"


def malformed(folder: Path, times: int) -> str:
    archive = Archive()
    node = NodeProcess(folder / "spool", archive)
    draw, image = random.Random(2), cine(1)
    good = _recorded(node.port, image)
    for _ in range(times):
        data = bytearray(good)
        for _ in range(draw.randint(1, 8)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        data = data[: draw.randrange(6, len(data) + 1)] if draw.random() < 0.5 else data
        with socket.create_connection(("127.0.0.1", node.port), timeout=10) as connection:
            try:
                connection.sendall(data)
                connection.settimeout(0.05)
                connection.recv(4096)
            except OSError:
                continue
    damaged = [_damaged(image, draw) for _ in range(times)]
    answered = sum(len(send_copies(node.port, each)) for each in damaged)
    lacking = wait_for(archive, send_copies(node.port, cine(1)), 300)
    alive = node.process.poll() is None
    tracebacks = sum("Traceback" in line for line in node.said)
    node.end()
    return (
        f"malformed: {times} associations and {times} objects ({answered} taken); the node "
        f"{'lives' if alive else 'is dead'}, {'serves' if not lacking else 'does not serve'}, {tracebacks} tracebacks"
    )


def _recorded(port: int, image: Dataset) -> bytes:
    """Bytes that a modality sends: an association request and a C-STORE."""
    sent = bytearray()
    handlers: Any = [(pynetdicom.evt.EVT_DATA_SENT, lambda event: sent.extend(event.data))]
    send(port, image, evt_handlers=handlers)
    return bytes(sent)


def _damaged(image: Dataset, draw: random.Random) -> Dataset:
    """The image with attributes missing or senseless."""
    bad = pydicom.dcmread(_written(image), force=True)
    for keyword in draw.sample(["Rows", "Columns", "BitsAllocated", "NumberOfFrames", "SamplesPerPixel"], 2):
        if draw.random() < 0.5:
            delattr(bad, keyword)
        else:
            setattr(bad, keyword, draw.choice([0, 1, 7, 65535]))
    if draw.random() < 0.5:
        bad.PixelData = bad.PixelData[: draw.randrange(0, len(bad.PixelData), 2)]
    return bad


def _written(image: Dataset) -> Any:
    from io import BytesIO

    file = BytesIO()
    image.save_as(file, enforce_file_format=True)
    file.seek(0)
    return file


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="speed,kills,growth,malformed")
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=120, help="that cines are sent for (speed)")
    parser.add_argument("--malformed", type=int, default=500)
    options = parser.parse_args(arguments)
    parts = {
        "speed": lambda folder: speed(folder, options.frames, options.seconds),
        "kills": lambda folder: kills(folder, options.kills),
        "growth": lambda folder: growth(folder, options.objects),
        "malformed": lambda folder: malformed(folder, options.malformed),
    }
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(parts[name](Path(folder)), flush=True)


if __name__ == "__main__":
    main()
