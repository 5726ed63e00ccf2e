"""Files made to cost memory or time, none over 10 MB: by kind of reader, each as a function that writes it."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
from _scans import fan_frames

Write = Callable[[Path], object]
Hostile = tuple[str, str, Write]  # reader, name, what writes the file

US, SEG = "1.2.840.10008.5.1.4.1.1.3.1", "1.2.840.10008.5.1.4.1.1.66.4"
EXPLICIT, DEFLATED, RLE = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.5"
LONG = {"OB", "OW", "SQ", "UN", "UT"}


def hdf5(make: Callable[[h5py.File], object], **options: object) -> Write:
    def write(path: Path) -> None:
        with h5py.File(path, "w", **options) as file:
            make(file)

    return write


def framed(make: Callable[[h5py.File], object]) -> Write:
    """With frames that could be read."""

    def both(file: h5py.File) -> None:
        file["x"] = fan_frames()
        make(file)

    return hdf5(both)


def result(make: Callable[[h5py.File], object]) -> Write:
    """A result of usdehaze but for what ``make`` does to it."""

    def whole(file: h5py.File) -> None:
        file.attrs.update({"format": "usdehaze-result", "format_version": 1, "dynamic_range_db": 60.0})
        group = file.create_group("geometry")
        group.attrs.update({"kind": "cartesian", "origin_m": (0.0, 0.0), "found_by": "none"})
        for name in ("input", "tissue", "haze"):
            file[name] = -fan_frames().astype(np.float32) / 5
        make(file)

    return hdf5(whole)


def shared_text(name: str, count: int, length: int) -> Callable[[h5py.File], object]:
    """An attribute of ``count`` texts, all of them one text in the file."""

    def make(file: h5py.File) -> None:
        file.attrs.create(name, np.array(["a" * length] + ["b"] * (count - 1), object), dtype=h5py.string_dtype())

    return make


def share_texts(path: Path, count: int) -> None:
    """Makes every text of such an attribute the first one."""
    content = bytearray(path.read_bytes())
    for at in range(len(content) - 16 * count):
        length, heap, index = struct.unpack_from("<LQL", content, at)
        follow = struct.unpack_from("<L", content, at + 16)[0]
        if length > 1000 and 0 < heap < len(content) and index == 1 and follow == 1:
            content[at + 16 : at + 16 * count] = content[at : at + 16] * (count - 1)
            path.write_bytes(content)
            return
    raise AssertionError("no such attribute")


def attribute_files() -> Iterator[Hostile]:
    names = {  # by the reader that asks for them
        "scan": ("zea_version", "class", "MATLAB_class", "format"),
        "result": ("format", "format_version", "dynamic_range_db", "notes"),
    }
    values = {
        "references": lambda file: np.array([file.ref] * 4000, h5py.ref_dtype),
        "regions": lambda file: np.array([file["x"].regionref[:1]] * 50, h5py.regionref_dtype),
        "long": lambda file: np.bytes_(b"a" * 60_000),
        "numbers": lambda file: np.zeros(8000),
        "parts": lambda file: np.zeros(500, [(f"f{i}", "f8") for i in range(10)]),
        "opaque": lambda file: np.void(b"x" * 50_000),
    }
    for at, (reader, name) in enumerate((reader, name) for reader, each in names.items() for name in each):
        wrap = {"scan": framed, "result": result}[reader]
        for kind, value in list(values.items())[at % 2 :: 2]:  # each kind under two names of each reader

            def make(file: h5py.File, name: str = name, value: Callable[[h5py.File], object] = value) -> None:
                if "x" not in file:
                    file["x"] = fan_frames()
                file.attrs[name] = value(file)

            yield (reader, f"attribute {name} of {kind}", wrap(make))

        def shared(path: Path, wrap: Callable[..., Write] = wrap, name: str = name) -> None:
            wrap(shared_text(name, 3000, 100_000))(path)
            share_texts(path, 3000)

        yield (reader, f"attribute {name} of texts that are one", shared)


def links(file: h5py.File) -> None:
    for index in range(34_000):
        file.id.links.create_hard(b"g%d" % index, file.id, b"x")


def soft_links(file: h5py.File) -> None:
    for index in range(34_000):
        file.id.links.create_soft(b"g%d" % index, b"/x")


def long_names(file: h5py.File) -> None:
    group = file
    for _ in range(500):
        group = group.create_group("n" * 2000)


def many_datasets(file: h5py.File) -> None:
    space, kind = h5py.h5s.create_simple((8, 8)), h5py.h5t.NATIVE_UINT8
    for index in range(9000):
        h5py.h5d.create(file.id, b"d%d" % index, kind, space)


def zeros(name: str, shape: tuple[int, ...], chunk: tuple[int, ...], kind: str = "u1") -> Callable[[h5py.File], object]:
    """A dataset of chunks, the first of them written: zeros but for a few values."""

    def make(file: h5py.File) -> None:
        data = file.create_dataset(name, shape, kind, chunks=chunk, compression="gzip", compression_opts=1)
        block = np.zeros(chunk, kind)
        block.reshape(-1)[:: max(1, block.size // 1000)] = 1
        data[tuple(slice(0, side) for side in chunk)] = block

    return make


def nested_heaps(path: Path) -> None:
    framed(lambda file: None)(path)
    size = 2**20
    head = b"GCOL\1\0\0\0" + struct.pack("<Q", size)
    heap = bytearray(size)
    for at in range(0, size - 32, 32):
        heap[at : at + 16] = b"GCOL\1\0\0\0" + struct.pack("<Q", size - at)
        heap[at + 16 : at + 32] = struct.pack("<HH4xQ", 1, 1, 16)
    heap[:16] = head
    path.write_bytes(path.read_bytes() + heap)


def hdf5_files() -> Iterator[Hostile]:
    yield ("scan", "34,000 hard links", framed(links))
    yield ("scan", "34,000 soft links", framed(soft_links))
    yield ("scan", "long names in each other", framed(long_names))
    yield ("scan", "9,000 datasets", hdf5(many_datasets))
    yield ("scan", "heaps in each other", nested_heaps)
    for kind in ("u1", "f8", "c8"):
        yield ("scan", f"frames of 8192 x 8192 {kind}", hdf5(zeros("x", (2, 8192, 8192), (1, 1024, 1024), kind)))
        if kind != "u1":  # the largest that there may be; bytes take less
            yield ("scan", f"frames of 2880 x 2880 {kind}", hdf5(zeros("x", (2, 2880, 2880), (1, 720, 2880), kind)))
    yield ("scan", "a chunk of 256 MB", hdf5(zeros("x", (16, 4096, 4096), (16, 4096, 4096))))
    yield ("scan", "100,000 frames of 8 x 8", hdf5(zeros("x", (100_000, 8, 8), (10_000, 8, 8))))
    yield ("scan", "frames a pixel high", hdf5(zeros("x", (64, 1, 2**20), (1, 1, 2**20))))
    for name in ("data/image/coordinates", "data/image/timestamps", "scan/time_to_next_transmit"):

        def zea(file: h5py.File, name: str = name) -> None:
            file.attrs["zea_version"] = "0.1.8"
            file["data/image/values"] = fan_frames()
            zeros(name, (2**25,), (2**22,), "f8")(file)

        yield ("scan", f"zea with a huge {name}", hdf5(zea))
    for name in ("x_axis", "z_axis", "azimuth_axis"):

        def uff(file: h5py.File, name: str = name) -> None:
            file["b/data"] = np.ones((64 * 64, 2), np.float32)
            file["b"].attrs["class"] = "uff.beamformed_data"
            for other in {"depth_axis", "x_axis", "z_axis"} - {name}:
                file[f"b/scan/{other}"] = np.arange(64.0)
            zeros(f"b/scan/{name}", (2**25,), (2**22,), "f8")(file)

        yield ("scan", f"UFF with a huge {name}", hdf5(uff))
    for name in ("frame_times_s", "geometry/depths_m", "geometry/angles_rad"):

        def polar(file: h5py.File, name: str = name) -> None:
            file["geometry"].attrs["kind"] = "polar"
            for axis in {"geometry/depths_m", "geometry/angles_rad"} - {name}:
                file[axis] = np.arange(64.0)
            zeros(name, (2**26,), (2**22,), "f4")(file)

        yield ("result", f"a huge {name}", result(polar))


def element(tag: int, vr: str, value: bytes, length: int | None = None) -> bytes:
    """An element with explicit VR, little endian."""
    size = len(value) if length is None else length
    head = struct.pack("<HH", tag >> 16, tag & 0xFFFF) + vr.encode()
    return head + (struct.pack("<2xL", size) if vr in LONG else struct.pack("<H", size)) + value


def dicom(body: bytes, syntax: str = EXPLICIT, kind: str = US, meta: bytes = b"") -> bytes:
    """A file of these elements."""
    uids = ((0x00020002, kind), (0x00020003, "1.2.3"), (0x00020010, syntax))
    header = b"".join(element(tag, "UI", (uid + "\0" * (len(uid) % 2)).encode()) for tag, uid in uids) + meta
    start = bytes(128) + b"DICM" + element(0x00020000, "UL", struct.pack("<L", len(header))) + header
    if syntax != DEFLATED:
        return start + body
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return start + deflate.compress(body) + deflate.flush()


def image(
    pixels: bytes, rows: int = 64, columns: int = 64, frames: int = 2, more: bytes = b"", kind: str = US
) -> bytes:
    """Elements of an ultrasound image; ``more`` stands before Samples per Pixel."""
    return b"".join([
        element(0x00080016, "UI", (kind + "\0" * (len(kind) % 2)).encode()),
        element(0x00080060, "CS", b"US"),
        more,
        element(0x00280002, "US", struct.pack("<H", 1)),
        element(0x00280004, "CS", b"MONOCHROME2 "),
        element(0x00280008, "IS", b"%-12d" % frames),
        element(0x00280010, "US", struct.pack("<H", rows)),
        element(0x00280011, "US", struct.pack("<H", columns)),
        element(0x00280100, "US", struct.pack("<H", 8)),
        pixels,
    ])  # fmt: skip


ITEM, END, LAST = (struct.pack("<HHL", 0xFFFE, e, s) for e, s in ((0xE000, 0), (0xE0DD, 0), (0xE000, 0xFFFFFFFF)))
INFLATED = {"8 million frames of 1 x 1", "a million elements", "a million items without an end", "times of 3 MB"}
FRAMES = element(0x7FE00010, "OW", fan_frames().tobytes())


def dicom_files() -> Iterator[Hostile]:
    tiny = b"\x09\x00\x02\x10US\x00\x00"  # a private element without a value
    for name, body in {
        "8 million frames of 1 x 1": image(element(0x7FE00010, "OB", bytes(8 * 10**6)), 1, 1, 8 * 10**6),
        "100,000 frames of 8 x 8": image(element(0x7FE00010, "OB", b"\0\1" * 32 * 10**5), 8, 8, 10**5),
        "frames of 65535 x 65535": image(FRAMES, 65535, 65535),
        "frames of 8192 x 8192": image(FRAMES, 8192, 8192),
        "frames of 16384 x 8": image(FRAMES, 16384, 8),
        "two thousand million frames": image(FRAMES, frames=2**31 - 1),
        "no frame": image(FRAMES, frames=0),
        "less than no frame": image(FRAMES, frames=-1),
        "a million elements": image(FRAMES, more=b"".join(
            struct.pack("<HH2sH", 9, 0x1000 + i % 60_000, b"US", 0) for i in range(10**6))),
        "elements of one tag": image(FRAMES, more=tiny * 10**6),
        "a million items without an end": image(FRAMES, more=element(0x00081115, "SQ", ITEM * 10**6 + END, 0xFFFFFFFF)),
        "a million items with an end": image(FRAMES, more=element(0x00186011, "SQ", ITEM * 500_000)),
        "items in each other": image(FRAMES, more=(element(0x00081115, "SQ", b"", 0xFFFFFFFF) + LAST) * 10**5),
        "a text of 8 MB": image(FRAMES, more=element(0x00204000, "UT", b"a" * 8 * 10**6)),
        "times of 3 MB": image(FRAMES, more=element(0x00181065, "UN", b"1\\" * 15 * 10**5)),
        "a pointer of 3 MB": image(FRAMES, more=element(0x00280009, "UN", bytes(3 * 10**6))),
        "a window of 3 MB": image(FRAMES, more=element(0x00281050, "UN", b"1\\" * 15 * 10**5)),
        "a million fragments": image(element(0x7FE00010, "OB", ITEM * 10**6 + END, 0xFFFFFFFF)),
    }.items():  # fmt: skip
        compressed = RLE if "fragments" in name else EXPLICIT
        yield ("scan", f"DICOM, {name}", lambda p, b=body, s=compressed: p.write_bytes(dicom(b, s)))
        if name in INFLATED:
            yield ("scan", f"DICOM, deflated, {name}", lambda p, b=body: p.write_bytes(dicom(b, DEFLATED)))
    blank = element(0x7FE00010, "OB", bytes(10**8), 3 * 10**9)
    yield ("scan", "DICOM, deflated zeros", lambda p: p.write_bytes(dicom(image(blank), DEFLATED)))
    table = element(
        0x7FE00010, "OB", struct.pack("<HHL", 0xFFFE, 0xE000, 8 * 10**6) + bytes(8 * 10**6) + END, 2**32 - 1
    )
    yield ("scan", "DICOM, offsets of 8 MB", lambda p: p.write_bytes(dicom(image(table), RLE)))
    meta = b"".join(struct.pack("<HH2sH", 2, 0x100 + i % 60_000, b"US", 0) for i in range(10**6))
    yield ("scan", "DICOM, a header of a million elements", lambda p: p.write_bytes(dicom(image(FRAMES), meta=meta)))
    for side in (60_000, 20_000):
        for marker in (0xC0, 0xC3, 0xF7):
            frame = (
                b"\xff\xd8\xff" + bytes([marker]) + struct.pack(">HBHHB", 11, 8, side, side, 1) + bytes(3) + b"\xff\xd9"
            )
            frame += b"\0" * (len(frame) % 2)
            parts = ITEM + struct.pack("<HHL", 0xFFFE, 0xE000, len(frame)) + frame + END
            syntax = {0xC0: "1.2.840.10008.1.2.4.50", 0xC3: "1.2.840.10008.1.2.4.70", 0xF7: "1.2.840.10008.1.2.4.80"}[
                marker
            ]
            body = image(element(0x7FE00010, "OB", parts, 2**32 - 1), frames=1)
            yield ("scan", f"DICOM, JPEG {marker:X} of {side}", lambda p, b=body, s=syntax: p.write_bytes(dicom(b, s)))


def segmentation_files() -> Iterator[Hostile]:
    groups = element(0x52009230, "SQ", ITEM * 10**6 + END, 2**32 - 1)
    zeros_20 = element(0x7FE00010, "OB", bytes(2 * 10**7))
    for name, body in {
        "two thousand million frames": image(FRAMES, frames=2**31 - 1, kind=SEG),
        "a million items": image(FRAMES, more=groups, kind=SEG),
        "zeros": image(element(0x7FE00010, "OB", bytes(10**8)), kind=SEG),
        "more frames than the cine": image(zeros_20, frames=5000, kind=SEG),
    }.items():
        for syntax in (EXPLICIT, DEFLATED):
            if len(body) < 10**7 or syntax == DEFLATED:
                write = lambda p, b=body, s=syntax: p.write_bytes(dicom(b, s, SEG))  # noqa: E731
                yield ("regions", f"SEG {name} {'deflated' if syntax == DEFLATED else ''}.dcm", write)


def nifti(shape: tuple[int, ...], code: int = 2, start: float = 352, voxels: bytes = b"", scale: float = 0) -> bytes:
    dims = struct.pack("<8h", len(shape), *shape, *(1,) * (7 - len(shape)))
    head = bytearray(352)
    head[:4], head[40:56] = struct.pack("<l", 348), dims
    head[70:74], head[108:116] = struct.pack("<hh", code, 8), struct.pack("<2f", start, scale)
    head[344:348] = b"n+1\0"
    return bytes(head) + voxels


def region_files() -> Iterator[Hostile]:
    square = [[1, 1], [9, 1], [9, 9], [1, 9]]
    one = {"name": "a", "role": "tissue", "polygon": square}
    texts = {
        "100,000 regions": json.dumps({"regions": [one] * 100_000}),
        "200,000 corners": json.dumps(
            {"regions": [{**one, "polygon": [[i % 60, i * 7 % 60] for i in range(200_000)]}]}
        ),
        "lists in lists": "[" * 10**6,
        "objects in objects": '{"regions":' * 10**5,
        "lists in a list": '{"regions": [' + "[]," * 10**6 + "[]]}",
        "a number of a million digits": '{"regions": [{"frames": [' + "9" * 10**6 + "]}]}",
        "a name of 9 MB": json.dumps({"regions": [{**one, "name": "a" * 9 * 10**6, "role": "x"}]}),
        "frames of 9 MB": json.dumps({"regions": [{**one, "frames": [0] * 3 * 10**6}]}),
        "one line of 20 MB": '{"regions": "' + "a" * 2 * 10**7 + '"}',
        "nothing": "",
        "blanks": " " * 9 * 10**6,
        "zeros": "\0" * 10**6,
    }
    for name, text in texts.items():
        yield ("regions", f"JSON {name}.json", lambda p, t=text: p.write_text(t))
    for name, content in {
        "long": nifti((64, 64, 32767)),
        "longer": nifti((64, 64, 32767, 7)),
        "double": nifti((64, 64, 30000), 64),
        "scaled": nifti((64, 64, 30000), 2, scale=2.0),
        "complex": nifti((64, 64, 4), 2048, voxels=bytes(64 * 64 * 4 * 32)),
        "wide": nifti((32767, 32767, 4)),
        "late": nifti((64, 64, 4), start=3e9),
        "never": nifti((64, 64, 4), start=float("inf")),
        "nowhere": nifti((64, 64, 4), start=float("nan")),
    }.items():
        yield ("regions", f"NIfTI {name}.nii", lambda p, c=content: p.write_bytes(c))
        yield (
            "regions",
            f"NIfTI {name}.nii.gz",
            lambda p, c=content: p.write_bytes(gzip.compress(c + bytes(10**7), 1)),
        )
    for name, make in {
        "huge labels": zeros("label", (32767, 64, 64), (256, 64, 64), "f8"),
        "34,000 soft links": soft_links,
        "9,000 datasets": many_datasets,
    }.items():
        yield ("regions", f"HDF5 {name}.h5", hdf5(make))
    for side in (30_000, 2**31 - 1):
        yield ("regions", f"PNG of {side}.png", lambda p, s=side: p.write_bytes(png(s)))


def png(side: int, texts: int = 0) -> bytes:
    def piece(kind: bytes, value: bytes) -> bytes:
        return struct.pack(">L", len(value)) + kind + value + struct.pack(">L", zlib.crc32(kind + value))

    head = piece(b"IHDR", struct.pack(">LLBBBBB", side, side, 8, 0, 0, 0, 0))
    notes = piece(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**7))) * texts
    return (
        b"\x89PNG\r\n\x1a\n" + head + notes + piece(b"IDAT", zlib.compress(bytes(2 * 10**7), 1)) + piece(b"IEND", b"")
    )


def tiff(pages: int, side: int = 64, loop: bool = False) -> bytes:
    """A TIFF of so many pages, all of them the same pixels."""
    pixels, content = fan_frames(1).tobytes(), bytearray(b"II*\0" + struct.pack("<L", 8 + 4096))
    content += pixels
    for page in range(pages):
        after = len(content) + 2 + 12 * 7 + 4 if page + 1 < pages else (8 + 4096 if loop else 0)
        tags = [(256, side), (257, side), (258, 8), (259, 1), (262, 1), (273, 8), (279, min(side * side, 2**31))]
        content += struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHLL", tag, 4, 1, v) for tag, v in tags)
        content += struct.pack("<L", after)
    return bytes(content)


def meta_image(size: str, kind: str = "MET_UCHAR", packed: bool = True, more: str = "") -> bytes:
    lines = f"NDims = {len(size.split())}\nDimSize = {size}\nElementType = {kind}\nCompressedData = {packed}\n{more}"
    return (lines + "ElementDataFile = LOCAL\n").encode() + (
        zlib.compress(bytes(3 * 10**7), 1) if packed else bytes(10**6)
    )


def image_files() -> Iterator[Hostile]:
    contents = {
        "40,000 pages.tif": tiff(40_000),
        "pages in circles.tif": tiff(3, loop=True),
        "huge pages.tif": tiff(2, 60_000),
        "huge.png": png(60_000),
        "large.png": png(4000, texts=50),
        "huge.bmp": b"BM"
        + struct.pack("<LLL", 10**6, 0, 54)
        + struct.pack("<LllHHLLllLL", 40, 60_000, 60_000, 1, 24, 0, *(0,) * 5),
        "huge.jpg": b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 11, 8, 60_000, 60_000, 1) + bytes(1000),
        "double.mha": meta_image("2880 2880 12", "MET_DOUBLE"),
        "huge.mha": meta_image("8192 8192"),
        "long.mha": meta_image("8 8 1000000"),
        "many.mha": meta_image("8 " * 10_000),
        "digits.mha": meta_image("9" * 10_000 + " 8"),
        "lines.mha": meta_image("64 64", more="a = b\n" * 10**6),
    }
    for name, content in contents.items():
        yield ("scan", f"image {name}", lambda p, c=content: p.write_bytes(c))


def text_files() -> Iterator[Hostile]:
    texts = {
        "one line of 9 MB": "a" * 9 * 10**6,
        "lists in lists": "[" * 60_000,
        "lists in lists in lines": "- " * 30_000,
        "aliases": "a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a]\n" for i in range(2000)),
        "keys": "".join(f"a{i}: 1\n" for i in range(7000)),
        "quotes": "'" * 60_000,
        "zeros": "\0" * 1000,
    }
    for name, text in texts.items():
        yield ("configuration", name, lambda p, t=text: p.write_text(t))


def odd_files() -> Iterator[Hostile]:
    for reader in ("scan", "result", "regions", "configuration"):
        yield (reader, "a pipe", os.mkfifo)
        yield (reader, "a device", lambda p: p.symlink_to("/dev/zero"))
        yield (reader, "a folder", lambda p: p.mkdir())
        yield (reader, "nothing there", lambda p: None)


def hostile_files() -> Iterator[Hostile]:
    """All of them."""
    for files in (
        attribute_files, hdf5_files, dicom_files, segmentation_files, region_files, image_files, text_files, odd_files
    ):  # fmt: skip
        yield from files()
