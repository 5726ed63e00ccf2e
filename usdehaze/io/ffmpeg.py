"""Frames of a video by ffmpeg, in a process of its own: a film that makes it fail takes nothing else down."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

import numpy as np

from usdehaze.budget import ADVICE, most_memory
from usdehaze.errors import InputError
from usdehaze.io.limits import check_frame

try:
    from resource import RLIMIT_DATA, prlimit
except ImportError:  # no Linux: what bounds a single allocation is all there is
    prlimit = None  # type: ignore[assignment]

# no playlists and no devices, which name other files
FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,mpegts,mpeg,mpegvideo,h264,hevc,avi,matroska,webm,asf"
MAX_FRAMES = 1_000_000
_FLICKS = 705_600_000  # a second, of which all usual frame rates take a whole number
PROGRAM_BYTES = 2**28  # of ffmpeg beside what it decodes
_LARGEST_ALLOCATION = 2**29  # bytes
_NO_MEMORY = (244, 245)  # its exit codes then: -ENOMEM, and -EAGAIN of a thread that has no place for its stack
_LINE = 1000
NAMELESS = os.path.isdir("/dev/fd")  # files without a name can be handed on


@dataclass(frozen=True)
class Device:
    """A camera or frame grabber.

    Attributes:
        format: what ffmpeg calls devices of its kind: "v4l2", "avfoundation" or "dshow".
        name: as ffmpeg names it, such as "/dev/video0".
    """

    format: str
    name: str


Source = str | os.PathLike[str] | IO[bytes] | Device


@dataclass(frozen=True)
class Film:
    """What is known of a video before its frames are read.

    Attributes:
        size: ``(H, W)`` as shown, upright.
        times_s: ``(T,)`` s, of every frame that can be decoded.
        pixel_aspect: width over height of a pixel as it is to be shown.
        damaged: ffmpeg met errors in it, or an AVI file is shorter than it says.
    """

    size: tuple[int, int]
    times_s: np.ndarray
    pixel_aspect: float
    damaged: bool


def look_through(path: str | os.PathLike[str]) -> Film:
    """Decodes a video once, and keeps nothing but sizes and times.

    Raises:
        InputError: there is no ffmpeg; it cannot be decoded, or has too many frames, or too large ones.
    """
    about: dict[str, str] = {}
    stamps: list[int] = []
    # by default, times are rounded to those of a constant frame rate; "demux" would do, but not before ffmpeg 6.1
    arguments = ["-enc_time_base", f"1/{_FLICKS}", "-c:v", "rawvideo", "-f", "framecrc", "-"]
    with ThreadPoolExecutor(1) as other, _running(path, arguments) as process:
        assert process.stdout is not None and process.stderr is not None
        errors = other.submit(_has_bytes, process.stderr)
        while line := process.stdout.readline(_LINE).decode("ascii", "replace"):
            if line.startswith("#"):
                name, _, value = line[1:].partition(" 0: ")
                about[name] = value.strip()
                if name == "dimensions":
                    check_frame(_size(about, path), path)
                continue
            _, _, stamp, *_ = line.split(",")
            stamps.append(int(stamp))
            if len(stamps) > MAX_FRAMES:
                raise InputError(path, f"holds more than {MAX_FRAMES} frames", "a cine")
        _check_memory(process, path)
        damaged = errors.result() or process.returncode != 0 or _is_cut_off(path)
    if not stamps:
        raise InputError(path, "has no picture that can be decoded", "a film", "the file may be damaged")
    times_s = np.array(stamps) * _ratio(about.get("tb", ""))
    return Film(_size(about, path), times_s, _ratio(about.get("sar", "")), damaged)


class Decoder:
    """Frames of a video, best read one after the other: going back means to decode from the beginning.

    Args:
        source: what ffmpeg reads: the name of a file, or an open one.
        size: ``(H, W)`` that the frames must have.
        path: for messages; another one where ``source`` is a copy.
        declared: who says so, for messages.

    Raises:
        InputError: there is no ffmpeg.
    """

    def __init__(self, source: Source, size: tuple[int, int], path: object, declared: str) -> None:
        self.source, self.size, self.path, self.declared = source, size, path, declared
        self._program = program(path)
        self._process: subprocess.Popen[bytes] | None = None
        self._next = 0

    def read(self, index: int) -> np.ndarray:
        """Frame ``index``: Y, Cb and Cr over their full range, ``(3, H, W)`` uint8.

        Raises:
            InputError: the video cannot be decoded, ends before that frame, or has frames of another size.
        """
        if self._process is None or index < self._next:
            self._start()
        while self._next < index:
            self._frame()
        return self._frame()

    def close(self) -> None:
        """Ends ffmpeg."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _start(self) -> None:
        self.close()
        self._process = _start(self._program, self.source, ["-f", "yuv4mpegpipe", "-"])
        self._next = 0
        sides = _sides(self._output())
        if sides and (sides.get("H"), sides.get("W")) != tuple(map(str, self.size)):
            found, expected = f"video of {sides.get('H')} x {sides.get('W')}", f"{self.size[0]} x {self.size[1]}"
            self.close()  # whoever asks again is told again
            raise InputError(self.path, found, f"{expected} as {self.declared}")

    def _frame(self) -> np.ndarray:
        """The next frame."""
        frame = _planes(self._output(), self.size)
        if frame is None and self._process is not None:
            _check_memory(self._process, self.path)
        if frame is None and self._next == 0:
            raise InputError(self.path, "its video cannot be decoded", advice="the file may be damaged")
        if frame is None:
            raise InputError(self.path, f"its video ends at frame {self._next}", f"frames as {self.declared}")
        self._next += 1
        return frame

    def _output(self) -> IO[bytes]:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout


class Grabber:
    """Pictures of a device, as they come.

    Args:
        device: which.
        path: for messages.

    Attributes:
        size: ``(H, W)``.

    Raises:
        InputError: there is no ffmpeg, or no picture comes; frames that are too large.
    """

    def __init__(self, device: Device, path: object) -> None:
        self._process = _start(program(path), device, ["-f", "yuv4mpegpipe", "-"])
        try:
            sides = _sides(self._output())
            if not all(sides.get(side, "").isdecimal() for side in "HW"):
                raise InputError(path, "no picture comes from it", "a video device that nothing else uses")
            self.size = int(sides["H"]), int(sides["W"])
            check_frame(self.size, path)
        except BaseException:
            self.close()
            raise

    def read(self) -> np.ndarray | None:
        """The next frame, waited for: Y, Cb and Cr over their full range, ``(3, H, W)`` uint8; None after the last."""
        return _planes(self._output(), self.size)

    def stop(self) -> None:
        """Ends ffmpeg; may be called while another thread reads, which then gets None."""
        self._process.kill()

    def close(self) -> None:
        """Ends ffmpeg and lets go of it."""
        _end(self._process)

    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout


def _sides(output: IO[bytes]) -> dict[str, str]:
    """What the head of a YUV4MPEG stream says, height under "H" and width under "W"; empty where nothing comes."""
    head = output.readline(_LINE).decode("ascii", "replace").split()
    return {part[0]: part[1:] for part in head[1:]}


def _planes(output: IO[bytes], size: tuple[int, int]) -> np.ndarray | None:
    """The next frame of such a stream: Y, Cb and Cr, ``(3, H, W)`` uint8; None where no whole one comes."""
    output.readline(_LINE)  # FRAME
    shape = (3, *size)
    frame = output.read(math.prod(shape))
    return np.frombuffer(frame, np.uint8).reshape(shape) if len(frame) == math.prod(shape) else None


def program(path: object) -> str:
    """The ffmpeg that imageio-ffmpeg brings along, or the one that it finds.

    Raises:
        InputError: there is none.
    """
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        found = "video needs a decoder that is not installed"
        raise InputError(path, found, advice="pip install usdehaze[video]") from None


@contextmanager
def _running(path: str | os.PathLike[str], arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = _start(program(path), path, arguments, subprocess.PIPE)
    try:
        yield process
    finally:
        _end(process)


def _start(
    program: str, source: Source, arguments: list[str], stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """ffmpeg, decoding the first video stream of a file or device to full-range YCbCr.

    A file is decoded in the memory that it may cost.
    """
    read, passed = _input(source)
    bounds = ["-max_alloc", str(_LARGEST_ALLOCATION), "-threads", "1"]
    full = ["-map", "0:v:0", "-vf", "scale=out_range=full", "-pix_fmt", "yuv444p", "-strict", "-1"]
    command = [program, "-v", "error", "-nostdin", *bounds, *read, *full, "-fps_mode", "passthrough", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=stderr,
        pass_fds=passed,
        start_new_session=True,  # Ctrl-C is ours to act on
    )
    if prlimit is not None and not isinstance(source, Device):
        most = PROGRAM_BYTES + most_memory()
        with suppress(OSError):  # it has ended already, or may have less
            prlimit(process.pid, RLIMIT_DATA, (most, most))
    return process


def _check_memory(process: subprocess.Popen[bytes], path: object) -> None:
    """Raises an `InputError` where ffmpeg, whose output has ended, wanted more memory than it may have."""
    if process.wait() in _NO_MEMORY:
        raise InputError(path, "needs more memory to be decoded than a film does", advice=ADVICE)


def _has_bytes(stream: IO[bytes]) -> bool:
    """Whether there is anything in a stream, which is read to its end, so that who writes to it need not wait."""
    with stream:
        return sum(map(len, iter(lambda: stream.read(_LINE), b""))) > 0


def _is_cut_off(path: str | os.PathLike[str]) -> bool:
    """Whether an AVI file is shorter than it says, of which ffmpeg says nothing where it ends between two frames."""
    with open(path, "rb") as file:
        head, length = file.read(8), os.fstat(file.fileno()).st_size
        stated = int.from_bytes(head[4:], "little")  # 2**32 - 1 where it was written to a pipe
        return head.startswith(b"RIFF") and length < stated < 2**32 - 1


def _input(source: Source) -> tuple[list[str], list[int]]:
    """Options of ffmpeg that name its input, and file descriptors to hand on."""
    if isinstance(source, Device):
        return ["-fflags", "nobuffer", "-flags", "low_delay", "-f", source.format, "-i", source.name], []
    passed = []
    if isinstance(source, str | os.PathLike):
        name = os.fspath(source)
    elif NAMELESS:
        passed = [source.fileno()]
        os.lseek(passed[0], 0, os.SEEK_SET)  # some systems share the position
        name = f"/dev/fd/{passed[0]}"
    else:
        name = str(source.name)
    return ["-protocol_whitelist", "file", "-format_whitelist", FORMATS, "-i", f"file:{name}"], passed


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _size(about: dict[str, str], path: object) -> tuple[int, int]:
    width, _, height = about.get("dimensions", "").partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise InputError(path, "does not say how large its frames are", "a film", "the file may be damaged")
    return int(height), int(width)


def _ratio(text: str) -> float:
    """A ratio such as 1/50; 1 where there is none."""
    above, _, below = text.partition("/")
    return int(above) / int(below) if above.isdigit() and below.isdigit() and int(above) and int(below) else 1.0
