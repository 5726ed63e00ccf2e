"""What is installed is what is written down: hashes, versions, licences, bill of materials; and nothing unpickles."""

import ast
import hashlib
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path

import imageio_ffmpeg
import pytest
from packaging.markers import default_environment

from validation import supply

ROOT = Path(__file__).resolve().parents[1]
SAFE_LOADERS = ("yaml.BaseLoader", "yaml.SafeLoader", "yaml.CSafeLoader")  # that construct nothing but plain values
# The extra archive, which CI does not install, and what it brings along.
OF_ARCHIVE = "ray pyarrow grpcio msgpack pandas python-dateutil pytz six tzdata".split()
SYSTEMS = {"linux": ("posix", "Linux"), "darwin": ("posix", "Darwin"), "win32": ("nt", "Windows")}


def environment(python, system):
    os_name, name = SYSTEMS[system]
    where = {"os_name": os_name, "sys_platform": system, "platform_system": name}
    return default_environment() | {"python_version": python, "python_full_version": f"{python}.9", **where}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_lock_and_constraints_name_the_same_versions_for_every_python_and_system(python, system):
    where = environment(python, system)
    locked, constrained = supply.pins(supply.LOCK, where), supply.pins(supply.CONSTRAINTS, where)
    assert len(locked) > 90 and locked.items() <= constrained.items()


def test_no_constraint_is_left_over_and_every_file_has_a_hash():
    lock = supply.LOCK.read_text()
    named = {
        supply.canonicalize_name(line.partition("==")[0])
        for line in supply.CONSTRAINTS.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    entries = re.findall(r"^([\w.-]+)==\S+(.*(?:\n    --hash=.*)*)", lock, re.M)
    assert named - {name for name, _ in entries} == {"torch", *OF_ARCHIVE}
    for name, rest in entries:
        hashes = re.findall(r"^    --hash=sha256:([0-9a-f]{64})", rest, re.M)
        assert hashes and len(hashes) == len(set(hashes)) == rest.count("--hash"), name
    assert lock.startswith(supply.HEADER) and not any(supply.OF_TORCH.fullmatch(name) for name, _ in entries)


def test_what_is_installed_is_what_the_lock_says():
    locked = supply.pins(supply.LOCK, default_environment())
    torch = supply.pins(supply.CONSTRAINTS, default_environment())["torch"]
    assert version("torch").partition("+")[0] == torch
    here = {n: p.version for n, p in supply.installed("dev").items() if not supply.OF_TORCH.fullmatch(n)}
    assert len(here) > 90 and here.items() <= locked.items()


def test_every_licence_of_what_is_installed_is_known_and_allowed():
    packages = {n: p for n, p in supply.installed("dev").items() if not re.fullmatch("nvidia-.*|cuda-.*", n)}
    refused = {n: supply.licence_of(p) for n, p in packages.items()}
    needed = supply.installed()
    for name in packages:
        if supply.is_allowed(refused[name], supply.ALLOWED if name in needed else supply.ALLOWED_TO_DEVELOP):
            del refused[name]
    assert refused == {}
    assert supply.is_allowed("GPL-3.0-only OR MIT", {"MIT"}) and not supply.is_allowed("MIT AND GPL-3.0-only", {"MIT"})


def test_the_notice_lists_the_licence_of_everything_that_is_needed_and_ffmpeg_s():
    notice = (ROOT / "NOTICE").read_text()
    listed = dict(line.strip().split(": ", 1) for line in notice.splitlines() if re.match(r"    [\w-]+: ", line))
    assert listed.pop("torch").startswith("Apache-2.0")  # builds of torch differ
    needed = {n: p for n, p in supply.installed().items() if not supply.OF_TORCH.fullmatch(n)}
    assert {n: supply.licence_of(p) for n, p in needed.items()}.items() <= listed.items()
    assert set(listed) - set(needed) <= {"importlib-resources"}  # of Pythons before 3.12 alone
    assert "ffmpeg, a program under the GPL, version 3 or later" in notice


def test_the_bill_of_materials_is_complete(tmp_path, monkeypatch):
    wheel = tmp_path / "usdehaze-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    monkeypatch.setattr(sys, "argv", ["supply", "sbom", str(wheel)])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    supply.main()
    path = tmp_path / "usdehaze-0.1.0-py3-none-any.cdx.json"
    first = path.read_text()
    supply.main()
    assert path.read_text() == first  # the same wheel, the same bill
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(b"a wheel").hexdigest()

    by_ref = {c["bom-ref"]: c for c in bill["components"]}
    assert len(by_ref) == len(bill["components"])
    assert all(c["licenses"][0]["expression"] not in ("", "unknown") for c in bill["components"])
    libraries = {c["name"]: c["version"] for c in bill["components"] if c["type"] == "library"}
    assert libraries == {n: p.version for n, p in supply.installed().items()}
    wanted = {r.partition(";")[0] for r in supply.distribution("usdehaze").requires if "extra ==" not in r}
    direct = {supply.canonicalize_name(re.split(r"[<>=~! ]", name)[0]) for name in wanted}
    assert len(direct) >= 17 and direct <= set(libraries)

    graph = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    reached, todo = set(), [bill["metadata"]["component"]["bom-ref"]]
    while todo:
        ref = todo.pop()
        if ref not in reached:
            reached.add(ref)
            todo += graph.get(ref, [])
    assert reached - {bill["metadata"]["component"]["bom-ref"]} == set(by_ref)

    program = by_ref["ffmpeg"]
    content = Path(imageio_ffmpeg.get_ffmpeg_exe()).read_bytes()
    assert program["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]
    if "binaries" in imageio_ffmpeg.get_ffmpeg_exe():  # the one that the package carries
        assert program["licenses"] == [{"expression": "GPL-3.0-or-later"}]
    weights = {c["name"]: c["hashes"][0]["content"] for c in by_ref.values() if c["type"] == "machine-learning-model"}
    cards = {p.stem: json.loads(p.read_text()) for p in (ROOT / "usdehaze/priors/weights").glob("*.json")}
    assert weights == {name: card["sha256"] for name, card in cards.items()}


def unsafe_calls(source):
    """Lines that load what may run code: torch.load that does not say weights_only=True, pickle and its like."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        said = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called == "torch.load" and said.get("weights_only") != "True":
            yield node.lineno
        if called == "yaml.load" and said.get("Loader") not in SAFE_LOADERS:
            yield node.lineno
        if re.fullmatch(r"(c?[pP]ickle|dill|joblib|cloudpickle|marshal|shelve)\.\w*(load|open|Unpickler)\w*", called):
            yield node.lineno
        if called in ("yaml.unsafe_load", "yaml.full_load") or said.get("allow_pickle") == "True":
            yield node.lineno


def test_nothing_that_is_read_is_unpickled():
    files = [path for room in ("usdehaze", "validation", "pipelines") for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 250
    assert [f"{p.name}:{line}" for p in files for line in unsafe_calls(p.read_text())] == []
    for unsafe in (
        "torch.load(p)",
        "torch.load(p, weights_only=False)",
        "pickle.loads(b)",
        "np.load(p, allow_pickle=True)",
    ):
        assert list(unsafe_calls(unsafe)) == [1]
    assert list(unsafe_calls("torch.load(p, weights_only=True); np.load(p, allow_pickle=False)")) == []
