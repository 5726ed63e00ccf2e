"""What the package is made with and of: ``python -m validation.supply lock | licences | sbom WHEEL``.

``lock`` writes requirements.lock: the versions of constraints.txt with the hashes of their files. ``licences`` lists
those of what is installed. ``sbom`` writes a bill of materials (CycloneDX 1.6) beside a wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from usdehaze.io.result import now_utc

ROOT = Path(__file__).resolve().parents[1]
LOCK, CONSTRAINTS = ROOT / "requirements.lock", ROOT / "constraints.txt"
OURS = "usdehaze"
UV = "uv==0.13.9"  # what finds versions and hashes for all systems and Pythons at once
# The build of torch is the user's choice (CPU, CUDA), each with files and libraries of its own: `make` installs the
# version of constraints.txt from the index that PIP_ARGS names, without a hash.
OF_TORCH = re.compile("torch|triton|nvidia-.*|cuda-.*")
HEADER = """\
# Files that CI installs, by their hashes: pip install --no-deps --require-hashes -r requirements.lock
# Made by `make lock` from pyproject.toml and constraints.txt. Without torch and the CUDA libraries that some builds of
# it bring along: which build (CPU, CUDA) is everybody's own choice, and each has hashes of its own.
"""
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
}
ALLOWED_TO_DEVELOP = ALLOWED | {"MPL-2.0"}  # changes to their files would have to be published; there are none
IN_WORDS = {  # what packages say that do not say it in SPDX's words
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
AS_READ = {  # from the licence files of packages whose metadata leave it open
    "hdf5plugin": "MIT",
    "jinja2": "BSD-3-Clause",
    "mpmath": "BSD-3-Clause",
    "pysocks": "BSD-3-Clause",
    "scikit-image": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "sympy": "BSD-3-Clause",
}


def installed(*extras: str) -> dict[str, Distribution]:
    """Every installed package that usdehaze needs, with these extras and without itself, by its canonical name.

    Raises:
        PackageNotFoundError: one is needed here, but not installed.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(OURS, extra) for extra in ("", *extras)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found[name] = distribution(name)
        for requirement in needs(found[name], extra):
            todo += [(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)]
    del found[OURS]
    return dict(sorted(found.items()))


def needs(package: Distribution, extra: str = "") -> list[Requirement]:
    """What a package asks for on this machine."""
    asked = map(Requirement, package.requires or [])
    return [r for r in asked if r.marker is None or r.marker.evaluate({"extra": extra})]


def licence_of(package: Distribution) -> str:
    """A package's licence as an SPDX expression, or what it says where that is none."""
    about = package.metadata
    name = canonicalize_name(about["Name"])
    if name in AS_READ:
        return AS_READ[name]
    classifiers = [c for c in about.get_all("Classifier") or [] if c.startswith("License :: OSI")]
    told = [words for field in ("License-Expression", "License") for words in about.get_all(field) or []]
    known = [IN_WORDS.get(words, words) for words in (*told, *(c.rpartition(" :: ")[2] for c in classifiers))]
    return next((words for words in known if is_allowed(words, ALLOWED_TO_DEVELOP)), known[0] if known else "unknown")


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether all parts of an SPDX expression without brackets are allowed, or one of the choices that it leaves."""
    return all(any(choice in allowed for choice in part.split(" OR ")) for part in expression.split(" AND "))


def pins(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Versions by canonical name that a file of ``name==version`` lines asks for in an environment of markers."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        line = line.partition("#")[0].removesuffix("\\").strip()
        if line and not line.startswith("--hash"):
            asked, _, marker = line.partition(";")
            if not marker or Marker(marker.strip()).evaluate(dict(environment)):
                name, _, version = asked.partition("==")
                found[canonicalize_name(name.strip())] = version.strip()
    return found


def write_lock() -> None:
    """Writes requirements.lock by uv, which is installed for the purpose alone."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", folder, UV], check=True)
        command = [f"{folder}/bin/uv", "pip", "compile", "--universal", "--python-version", "3.10", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--no-python-downloads", "--extra", "dev", "-c", str(CONSTRAINTS)]
        made = subprocess.run([*command, "pyproject.toml"], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    entries = re.split(r"\n(?=\w)", made.stdout.strip())
    kept = [entry for entry in entries if not OF_TORCH.fullmatch(entry.partition("==")[0])]
    LOCK.write_text(HEADER + "\n".join(kept) + "\n")


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """The CycloneDX document of a wheel: what it needs as installed here, the weights in it, and ffmpeg."""
    packages = installed()
    ours = distribution(OURS)
    refs = {name: _reference(name, package.version) for name, package in {**packages, OURS: ours}.items()}
    components = [_component(refs[name], name, package) for name, package in packages.items()]
    components += [*_weights(), _ffmpeg()]
    graph = {}
    for name, package in {**packages, OURS: ours}.items():
        graph[refs[name]] = sorted({refs[canonicalize_name(r.name)] for r in needs(package)})
    graph[refs[OURS]] += [c["bom-ref"] for c in components if c["type"] == "machine-learning-model"]
    graph[refs["imageio-ffmpeg"]] += [c["bom-ref"] for c in components if c["name"] == "ffmpeg"]
    main = {**_component(refs[OURS], OURS, ours), "hashes": _hashes(wheel)}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    body = {
        "metadata": {"timestamp": now_utc().isoformat(timespec="seconds"), "component": main},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": of} for ref, of in graph.items()],
    }
    name = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, name)}", **body}


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{quote(version)}"


def _component(reference: str, name: str, package: Distribution) -> dict[str, Any]:
    about = {"type": "library", "bom-ref": reference, "name": name, "version": package.version, "purl": reference}
    return {**about, "licenses": [{"expression": licence_of(package)}]}


def _weights() -> list[dict[str, Any]]:
    """The networks in the wheel."""
    paths = sorted((ROOT / OURS / "priors" / "weights").glob("*.safetensors"))
    model = {"type": "machine-learning-model", "licenses": [{"expression": "Apache-2.0"}]}
    return [{**model, "bom-ref": f"weights/{p.stem}", "name": p.stem, "hashes": _hashes(p)} for p in paths]


def _ffmpeg() -> dict[str, Any]:
    """The program that imageio-ffmpeg brings, under the licence that it was built for."""
    import imageio_ffmpeg

    program = Path(imageio_ffmpeg.get_ffmpeg_exe())
    build = subprocess.run([program, "-version"], check=True, capture_output=True, text=True).stdout
    gpl, later = "--enable-gpl" in build, "--enable-version3" in build
    licence = ("GPL-" + ("3.0" if later else "2.0") if gpl else "LGPL-" + ("3.0" if later else "2.1")) + "-or-later"
    about = {"type": "application", "bom-ref": "ffmpeg", "name": "ffmpeg", "hashes": _hashes(program)}
    version = {"version": imageio_ffmpeg.get_ffmpeg_version(), "description": "Runs as a process of its own."}
    return {**about, **version, "licenses": [{"expression": licence}]}


def _hashes(path: Path) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["lock", "licences", "sbom"])
    parser.add_argument("wheel", type=Path, nargs="?", help="of sbom")
    args = parser.parse_args()
    if args.what == "lock":
        write_lock()
    elif args.what == "licences":
        for name, package in installed().items():
            print(f"{name} {package.version}: {licence_of(package)}")
    elif args.wheel is None:
        parser.error("sbom needs a wheel")
    else:
        path = args.wheel.with_suffix(".cdx.json")
        path.write_text(json.dumps(bill_of_materials(args.wheel), indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
