"""A small folder of test data of the paper's kinds, made up."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image


def write_images(folder: Path) -> Path:
    """Faces (colour blobs), natural images, digits and letters: some of each, in the files of the real ones."""
    random = np.random.default_rng(0)
    for kind, n in (("faces", 24), ("natural", 4)):
        (folder / kind).mkdir(parents=True)
        pictures = [Image.fromarray(_blob(random, 64)) for _ in range(n)]
        if kind == "natural":
            for i, picture in enumerate(pictures):
                picture.resize((96, 72)).save(folder / kind / f"{i}.jpg")
        else:
            with zipfile.ZipFile(folder / kind / "utkface64_part0.zip", "w") as archive:
                for i, picture in enumerate(pictures):
                    content = io.BytesIO()
                    picture.save(content, "PNG")
                    archive.writestr(f"{i:02}.png", content.getvalue())
    (folder / "digits").mkdir()
    strokes = np.zeros((24, 28, 28), np.uint8)
    for i, stroke in enumerate(strokes):
        stroke[4:24, 6 + i % 16 : 9 + i % 16] = 255
    np.savez(folder / "digits" / "mnist.npz", x_train=strokes, y_train=np.zeros(24, np.uint8))
    head = np.array([0x803, 24, 28, 28], ">u4").tobytes()
    (folder / "digits" / "notmnist-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + strokes.tobytes()))
    return folder


def _blob(random: np.random.Generator, side: int) -> np.ndarray:
    y, x = np.mgrid[:side, :side] / side
    centre, colour = random.uniform(0.3, 0.7, 2), random.uniform(0.2, 1, 3)
    light = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / 0.05)
    return (255 * light[..., None] * colour).astype(np.uint8)
