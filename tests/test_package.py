"""The package as a whole: what is public, what can be reached, what the wheel holds."""

import ast
import doctest
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import usdehaze

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "usdehaze"
PUBLIC = ("usdehaze", "usdehaze.transforms", "usdehaze.validation.metrics", "usdehaze.validation.monai_metrics")
BARE = {"torch", "numpy", "scipy", "safetensors"}
LARGEST_WHEEL = 15_000_000


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("usdehaze", include_external_packages=True, cache_dir=None)


def path_of(module):
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_every_public_name_is_there_and_known_to_type_checkers():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    typed = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    names = set(usdehaze.__all__) - {"__version__"}
    assert names == set(usdehaze._HOME) and names <= typed
    for name in names:
        assert getattr(usdehaze, name) is getattr(import_module(usdehaze._HOME[name]), name)


def test_no_module_is_out_of_reach_of_command_line_and_public_names(graph):
    ours = {m for m in graph.modules if m.partition(".")[0] == "usdehaze"}
    todo, reached = ["usdehaze.__main__", *PUBLIC], set()
    while todo:
        module = todo.pop()
        if module in reached:
            continue
        reached.add(module)
        # What it imports or names in a string (a registry's entry, "module:name"), and the package that it lies in.
        constants = (n.value for n in ast.walk(ast.parse(path_of(module).read_text())) if isinstance(n, ast.Constant))
        named = {value.partition(":")[0] for value in constants if isinstance(value, str)}
        todo += (graph.find_modules_directly_imported_by(module) | named | {module.rpartition(".")[0]}) & ours
    assert ours <= reached


@pytest.mark.parametrize("room", ["diffusion", "priors", "simulate"])
def test_rooms_of_a_bare_gpu_machine_need_torch_numpy_scipy_and_safetensors_alone(graph, room):
    modules = {m for m in graph.modules if m.startswith(f"usdehaze.{room}")}
    found = {e.partition(".")[0] for m in modules for e in graph.find_modules_directly_imported_by(m)}
    assert found - set(sys.stdlib_module_names) - {"usdehaze"} <= BARE


EXAMPLES = sorted(p.relative_to(ROOT) for p in PACKAGE.rglob("*.py") if ">>>" in p.read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_examples_in_docstrings_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    assert doctest.testmod(module).failed == 0


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source distribution, built from a copy: nothing left over from another build gets in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "MANIFEST.in", "LICENSE", "NOTICE", "SECURITY.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source)
    for name in ("usdehaze", "tests", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else_in_little_space(built):
    wheel, source = built
    assert wheel.stat().st_size < LARGEST_WHEEL
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        about = file.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    package = {str(p.relative_to(ROOT)) for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {n for n in names if ".dist-info/" not in n} == package
    assert re.findall(r"\]\((?!https?://)[^)]*\)", about) == []  # a package index has no files to link to
    with tarfile.open(source) as file:
        roots = {n.split("/")[1] for n in file.getnames() if "/" in n}
    assert roots >= {"usdehaze", "docs", "LICENSE", "CHANGELOG.md"} and not roots & {"tests", "validation"}


@pytest.mark.slow
def test_the_installed_wheel_dehazes(built, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    programs = tmp_path / "venv" / "bin"
    run(sys.executable, "-m", "venv", "--without-pip", programs.parent)
    python, ours = programs / "python", programs / "usdehaze"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", built[0])
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # The dependencies are those of the tests. A line in a .pth file adds a folder, and not what that folder's own .pth
    # files add: an editable installation of this very package stays outside.
    (packages / "dependencies.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    assert run(python, "-c", "import usdehaze; print(usdehaze.__file__)").startswith(str(packages))
    assert run(ours, "--version") == f"usdehaze {usdehaze.__version__}\n"
    run(ours, "simulate", "scan.h5", "--frames", "2", "--seed", "1")
    run(ours, "process", "scan.h5", "--preset", "preview", "--device", "cpu", "--review")
    assert {p.name for p in tmp_path.iterdir() if p.is_file()} == {
        "scan.h5",
        "scan.rois.json",
        "scan.dehazed.h5",
        "scan.review.html",
    }
