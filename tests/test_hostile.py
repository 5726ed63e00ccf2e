"""Some 160 hostile files over all readers: each is answered or refused in one line within bounds of time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEMORY_MIB, CPU_S = 512, 5.0
CHILD = """
import json, os, resource, signal, sys, time, traceback
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from _hostile import hostile_files
import scipy.ndimage, scipy.signal, nibabel
import usdehaze.io.dicom, usdehaze.io.hdf5, usdehaze.io.images, usdehaze.validation.regions, usdehaze.budget, yaml
from usdehaze.cli import main
from usdehaze.errors import UsdehazeError
from usdehaze.io import open_result, open_scan
from usdehaze.validation.regions import read_regions

memory_mib, folder, only = int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
usdehaze.budget.MEMORY_A_SECOND = 2**32  # an eighth of a second of parsing is enough to see that it ends

def read(reader, path):
    if reader == "scan":
        with open_scan(path) as scan:
            for _ in scan.chunks(1):
                pass
    elif reader == "result":
        with open_result(path) as result:
            result.tissue[0]
    elif reader == "regions":
        read_regions(path, (4, 64, 64))
    else:
        main(["process", "none.h5", "--config", str(path)], standalone_mode=False)

def child(reader, path, out):
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limit = size + 2 * memory_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    signal.alarm(600)
    try:
        read(reader, path)
        outcome = "read"
    except UsdehazeError as error:
        outcome = str(error)
    except Exception as error:
        words = getattr(error, "message", "").split()  # of click, which the command line prints as one line
        outcome = " ".join(words) or "unexpected: " + traceback.format_exc()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began) // 1024
    os.write(out, json.dumps([outcome, grown, time.process_time()]).encode())

def write_all(told, asked):  # what is made costs the reader nothing: one process writes, one file at a time
    for reader, name, write in hostile_files():
        if only and name not in only:
            continue
        path = folder / name.replace("/", "-")
        write(path)
        os.write(told, json.dumps([reader, name, str(path)]).encode() + b"\\n")
        os.read(asked, 1)

names, told = os.pipe()
asked, asking = os.pipe()
writer = os.fork()
if writer == 0:
    os.close(names)
    os.close(asking)
    try:
        write_all(told, asked)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
os.close(told)
os.close(asked)
for line in open(names):
    reader, name, path = json.loads(line)
    path = Path(path)
    size = path.stat().st_size if path.is_file() else 0
    inlet, outlet = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(reader, path, outlet)
        os._exit(0)
    os.close(outlet)
    with open(inlet, "rb") as answer:
        told = answer.read()
    code = os.waitpid(pid, 0)[1]
    outcome, grown, seconds = json.loads(told) if told else [f"died of {code}", 0, 0]
    print(json.dumps([f"{reader}: {name}", outcome, grown, seconds, size]), flush=True)
    if path.is_file() or path.is_symlink() or path.exists():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    os.write(asking, b".")
assert os.waitpid(writer, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits on a process there")
def test_no_hostile_file_costs_more_than_seconds_and_half_a_gigabyte(tmp_path):
    pytest.importorskip("nibabel")
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(MEMORY_MIB), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) >= 150
    wrong = []
    for name, outcome, grown_mib, seconds, size in told:
        told_of = outcome.lower().replace("needs more memory than its frames", "")
        lines = outcome == "read" or ("\n" not in outcome and not outcome.startswith(("unexpected", "died")))
        refused_by_chance = "alloc" in told_of or "not enough memory" in told_of  # by the limit, not by the reader
        if not lines or refused_by_chance or grown_mib > MEMORY_MIB or seconds > CPU_S or len(outcome) > 2000:
            wrong.append(f"{name} ({size / 1e6:.1f} MB): {grown_mib} MiB, {seconds:.1f} s, {outcome[-1500:]}")
    assert not wrong, "\n".join(wrong)
