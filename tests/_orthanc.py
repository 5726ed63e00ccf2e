"""An Orthanc of the test's own, on loopback, with nothing in it."""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import requests

PLUGINS = Path("/usr/share/orthanc/plugins")


def absent() -> str:
    """Why Orthanc cannot be started; empty where it can."""
    if shutil.which("Orthanc", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        return "Orthanc is not installed (Debian: orthanc)"
    if not (PLUGINS / "libOrthancDicomWeb.so").exists():
        return "Orthanc has no DICOMweb (Debian: orthanc-dicomweb)"
    return ""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Orthanc:
    """Runs until `stop`; ``modalities`` are those it knows, by name: (AE title, port)."""

    def __init__(self, folder: Path, modalities: dict[str, tuple[str, int]], script: Path | None = None) -> None:
        self.http, self.dicom = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        settings = {
            "Name": "test", "StorageDirectory": str(folder / "db"), "IndexDirectory": str(folder / "db"),
            "HttpPort": self.http, "RemoteAccessAllowed": False, "AuthenticationEnabled": False,
            "DicomPort": self.dicom, "DicomAet": "ORTHANC", "DicomCheckCalledAet": False,
            "DicomAlwaysAllowStore": True, "DicomAlwaysAllowEcho": True,
            "Plugins": [str(PLUGINS / "libOrthancDicomWeb.so")],
            "DicomModalities": {name: [title, "127.0.0.1", port] for name, (title, port) in modalities.items()},
            "LuaScripts": [str(script)] if script else [],
        }  # fmt: skip
        (folder / "orthanc.json").write_text(json.dumps(settings))
        command = [shutil.which("Orthanc", path=f"{os.environ['PATH']}:/usr/sbin"), str(folder / "orthanc.json")]
        self.log = open(folder / "orthanc.log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 30
        while True:
            try:
                requests.get(f"{self.url}/system", timeout=1).raise_for_status()
                return
            except requests.RequestException:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.stop()
                    raise RuntimeError((folder / "orthanc.log").read_text()[-2000:]) from None
                time.sleep(0.1)

    def get(self, path: str) -> requests.Response:
        answer = requests.get(f"{self.url}/{path}", timeout=10)
        answer.raise_for_status()
        return answer

    def put_in(self, path: Path) -> str:
        """Uploads a DICOM file; its Orthanc identifier."""
        answer = requests.post(f"{self.url}/instances", data=path.read_bytes(), timeout=10)
        answer.raise_for_status()
        return str(answer.json()["ID"])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()
