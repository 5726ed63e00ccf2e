"""``usdehaze node``: what is acknowledged is dehazed and delivered, whatever happens in between."""

import contextlib
import errno
import os
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pydicom
import pytest
from _dicom import SENTINEL, region, write_dicom
from _scans import fan_frames
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.node import destinations
from usdehaze.node import queue as queues
from usdehaze.node.access import Access, Rate, is_loopback, networks, tls_context
from usdehaze.node.destinations import ByStore, NotSent
from usdehaze.node.fetch import fetch_study
from usdehaze.node.queue import Queue
from usdehaze.node.receive import OUT_OF_RESOURCES, ULTRASOUND, Receiver
from usdehaze.node.titles import Peer
from usdehaze.node.work import Dehazed, Node

pynetdicom = pytest.importorskip("pynetdicom", reason="the extra node is not installed")
loopback = pytest.importorskip("validation.loopback")


@pytest.fixture
def archive():
    archive = loopback.Archive()
    yield archive
    archive.stop()


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path / "spool")
    yield queue
    queue.close()


def send(path, port, **more):
    return loopback.send(port, pydicom.dcmread(path), **more)


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def scan(path, uid="1.2.3.4.5.6", frames=1, **attributes):
    return write_dicom(path, fan_frames(frames), SOPInstanceUID=uid, **attributes)


def mirrored(path, folder):
    """Stands in for dehazing: a derived image of the same study."""
    image = pydicom.dcmread(path)
    image.SOPInstanceUID += ".1"
    image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
    made = folder / "made.dcm"
    image.save_as(made)
    return Dehazed([made])


def receiver_of(queue, said=None, **access):
    receiver = Receiver(queue, "USDEHAZE", Access(**access), (said if said is not None else []).append)
    return receiver, receiver.start("127.0.0.1", 0)


def test_what_comes_in_is_dehazed_and_sent_on_and_nothing_is_left(tmp_path, archive, queue):
    said = []
    receiver, port = receiver_of(queue, said)
    node = Node(queue, mirrored, [ByStore(archive.peer, "USDEHAZE")], said.append)
    node.start()
    try:
        assert send(scan(tmp_path / "a.dcm", "1.2.3"), port) == 0
        assert send(scan(tmp_path / "b.dcm", "1.2.4"), port) == 0
        wait_for(lambda: queue.counts()["done"] == 2)
        assert set(archive.uids) == {"1.2.3.1", "1.2.4.1"}
        assert {image.StudyInstanceUID for image in archive.kept} == {"1.2.3.4"}
        assert send(next(iter(archive_file(tmp_path, archive))), port) == 0  # the archive sends it back: no circle
        time.sleep(0.1)
        assert queue.counts()["waiting"] == queue.counts()["sending"] == 0 and len(archive.kept) == 2
    finally:
        receiver.stop()
        node.stop()
    assert (
        not any(queue.incoming.iterdir()) and not any(queue.outgoing.iterdir()) and not any(queue.receiving.iterdir())
    )
    assert SENTINEL not in " ".join(said) and "1.2.3" not in " ".join(said) and len(said) >= 6


def archive_file(tmp_path, archive):
    path = tmp_path / "back.dcm"
    archive.kept[archive.uids.index("1.2.3.1")].save_as(path, enforce_file_format=True)
    yield path


@pytest.mark.parametrize("kind", ULTRASOUND)
def test_images_of_retired_classes_are_taken_too(tmp_path, queue, kind):
    receiver, port = receiver_of(queue, [])
    try:
        assert send(scan(tmp_path / "a.dcm", "1.2.3", SOPClassUID=kind), port) == 0
        assert queue.counts()["waiting"] == 1
    finally:
        receiver.stop()


def test_c_echo_is_answered(queue):
    receiver, port = receiver_of(queue)
    entity = pynetdicom.AE("MODALITY")
    entity.add_requested_context("1.2.840.10008.1.1")
    association = entity.associate("127.0.0.1", port, ae_title="USDEHAZE")
    assert association.send_c_echo().Status == 0
    association.release()
    receiver.stop()


def test_a_destination_that_is_away_is_tried_again_then_parked_then_taken_up_by_retry(
    tmp_path, archive, queue, monkeypatch
):
    monkeypatch.setattr(queues, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(queues, "TRIES", 3)
    archive.status = OUT_OF_RESOURCES
    node = Node(queue, mirrored, [ByStore(archive.peer, "USDEHAZE")], lambda line: None)
    queue.add("1.2.3", scan(tmp_path / "a.dcm", "1.2.3"))
    node.start()
    try:
        wait_for(lambda: queue.counts()["deliveries parked"] == 1)
        assert f"object 1 to {archive.peer}: parked, 3 tries: refused with status A700" in queue.troubles()
        outcome = CliRunner().invoke(main, ["node", "status", "--spool", str(queue.folder)])
        assert outcome.exit_code == 1 and "1 deliveries parked" in outcome.output and "A700" in outcome.output
        archive.status = 0
        assert "1 taken up again" in CliRunner().invoke(main, ["node", "retry", "--spool", str(queue.folder)]).output
        wait_for(lambda: queue.counts()["done"] == 1)
    finally:
        node.stop()
    assert set(archive.uids) == {"1.2.3.1"}
    assert CliRunner().invoke(main, ["node", "status", "--spool", str(queue.folder)]).exit_code == 0


def test_an_archive_may_take_the_default_transfer_syntax_alone(tmp_path, recwarn):
    """And text goes out with its bytes, whatever the character set says of them, and without a word of it."""
    kept = []

    def keep(event):
        event.dataset.file_meta = event.file_meta
        kept.append(event.dataset)
        return 0

    entity = pynetdicom.AE("STRICT")
    entity.add_supported_context(pydicom.uid.UltrasoundImageStorage, pydicom.uid.ImplicitVRLittleEndian)
    server = entity.start_server(("127.0.0.1", 0), False, evt_handlers=[(pynetdicom.evt.EVT_C_STORE, keep)])
    try:
        charset = {"SpecificCharacterSet": "ISO_IR 192", "regions": [region(0, 0, 63, 63)]}
        path = scan(tmp_path / "a.dcm", "1.2.3", PatientName="M_ller^X", **charset)
        path.write_bytes(path.read_bytes().replace(b"M_ller", b"M\xfcller").replace(b"S-ID", b"S\xfcID"))
        recwarn.clear()
        ByStore(Peer("STRICT", "127.0.0.1", server.server_address[1]), "USDEHAZE").send(path)
    finally:
        server.shutdown()
    assert not recwarn.list
    image, source = kept[0], pydicom.dcmread(path)
    assert image.file_meta.TransferSyntaxUID == pydicom.uid.ImplicitVRLittleEndian
    text = [image.get_item(keyword).value for keyword in ("PatientName", "StudyID")]
    assert text == [b"M\xfcller^X", b"S\xfcID"] and image.PixelData == source.PixelData
    assert image.SequenceOfUltrasoundRegions == source.SequenceOfUltrasoundRegions


def test_nobody_listening_is_a_reason_not_an_end(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NotSent, match="no association"):
        ByStore(Peer("ARCHIVE", "127.0.0.1", port), "USDEHAZE").send(scan(tmp_path / "a.dcm"))


def test_an_archive_that_hangs_up_is_a_reason_not_an_end(tmp_path, archive, monkeypatch):
    from pynetdicom.association import Association

    plain = Association.send_c_store

    def cut_off(association, image):
        association.abort()
        return plain(association, image)

    monkeypatch.setattr(Association, "send_c_store", cut_off)
    with pytest.raises(NotSent, match=r"could not be sent \(RuntimeError\)"):
        ByStore(archive.peer, "USDEHAZE").send(scan(tmp_path / "a.dcm"))


def test_images_that_wait_for_a_destination_that_is_named_no_more_are_told(tmp_path, queue):
    queue.add("1.2.3", scan(tmp_path / "a.dcm"))
    queue.results(1).mkdir()
    made = mirrored(queue.next_object().path, queue.results(1)).images[0]
    queue.made(1, [(made, "1.2.3.1"), (made, "1.2.3.2")], ["OLD@localhost:104", "NEW@localhost:104"])
    queue.sent(queue.next_delivery("OLD@localhost:104"))
    assert queue.elsewhere(["NEW@localhost:104"]) == {"OLD@localhost:104": 1}


def test_a_disk_that_is_full_as_a_change_is_completed_stops_no_later_one(tmp_path, queue):
    class Full:
        def __init__(self, db):
            self.db, self.in_order = db, False

        def execute(self, order, *values):
            if order == "COMMIT" and not self.in_order:
                self.in_order = True
                raise sqlite3.OperationalError("database or disk is full")
            return self.db.execute(order, *values)

        def __getattr__(self, name):
            return getattr(self.db, name)

    queue._db = Full(queue._db)
    path = scan(tmp_path / "a.dcm")
    with pytest.raises(sqlite3.OperationalError):
        queue.add("1.2.3", path)
    assert queue.counts()["waiting"] == 0
    assert queue.add("1.2.3", path) is not None and queue.counts()["waiting"] == 1


def test_what_holds_no_image_is_passed_over_and_what_fails_is_tried_again(tmp_path, queue, monkeypatch):
    monkeypatch.setattr(queues, "FIRST_WAIT_S", 0.001)
    told = iter([Dehazed(reason="full"), Dehazed(reason="no B-mode", hopeless=True)])
    node = Node(queue, lambda *_: next(told), [], lambda line: None)
    queue.add("1.2.3", scan(tmp_path / "a.dcm"))
    node.start()
    wait_for(lambda: queue.counts()["passed"] == 1)
    node.stop()
    assert queue.troubles() == ["object 1: passed, 1 tries: no B-mode"]
    assert len(list(queue.incoming.iterdir())) == 1  # kept for a while
    monkeypatch.setattr(queues, "KEEP_S", -1)
    queue.forget()
    assert not any(queue.incoming.iterdir())


def test_a_crash_at_any_point_leaves_a_queue_that_goes_on(tmp_path):
    queue = Queue(tmp_path / "spool")
    queue.add("1.2.3", scan(tmp_path / "a.dcm"))
    queue.add("1.2.4", scan(tmp_path / "b.dcm", "1.2.4"))
    (queue.receiving / "half.dcm").write_bytes(b"half")
    (queue.incoming / "000000009.part").write_bytes(b"half")  # cut off while it was copied
    (queue.incoming / "000000009.dcm").write_bytes(b"never acknowledged")
    queue.results(2).mkdir()  # dehazed, not yet noted
    (queue.results(2) / "made.dcm").write_bytes(b"half")
    queue.results(1).mkdir()
    made = mirrored(queue.next_object().path, queue.results(1)).images[0]
    queue.made(1, [(made, "1.2.3.1")], ["A", "B"])
    queue.close()
    queue = Queue(tmp_path / "spool")
    assert sorted(path.name for path in queue.incoming.iterdir()) == ["000000001.dcm", "000000002.dcm"]
    assert not any(queue.receiving.iterdir()) and [path.name for path in queue.outgoing.iterdir()] == ["000000001"]
    assert queue.next_object().number == 2 and queue.next_delivery("A").path.read_bytes() == made.read_bytes()
    queue.sent(queue.next_delivery("A"))
    assert queue.counts()["sending"] == 1  # B has not got it yet
    queue.sent(queue.next_delivery("B"))
    assert queue.counts()["done"] == 1 and not (queue.incoming / "000000001.dcm").exists()
    queue.close()


def test_an_object_that_waits_is_not_queued_twice_and_one_that_is_done_may_come_again(tmp_path, queue):
    path = scan(tmp_path / "a.dcm")
    assert queue.add("1.2.3", path) == 1 and queue.add("1.2.3", path) is None
    queue.passed(1, "no B-mode")
    assert queue.add("1.2.3", path) == 2


def test_an_object_that_was_corrected_while_the_first_waits_is_queued_too(tmp_path, queue):
    assert queue.add("1.2.3", scan(tmp_path / "a.dcm", "1.2.3", PatientID="WRONG")) == 1
    assert queue.add("1.2.3", scan(tmp_path / "b.dcm", "1.2.3", PatientID="RIGHT")) == 2
    assert queue.add("1.2.3", tmp_path / "a.dcm") is queue.add("1.2.3", tmp_path / "b.dcm") is None


def test_a_full_disk_is_refused_not_acknowledged(tmp_path, queue, monkeypatch):
    receiver, port = receiver_of(queue)
    path = scan(tmp_path / "a.dcm")
    monkeypatch.setattr("usdehaze.node.receive.free_bytes", lambda folder: 0)
    assert send(path, port) == OUT_OF_RESOURCES
    monkeypatch.undo()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    assert send(path, port) == OUT_OF_RESOURCES
    monkeypatch.undo()
    assert queue.counts()["waiting"] == 0 and not any(queue.incoming.iterdir())
    assert send(path, port) == 0 and queue.counts()["waiting"] == 1
    receiver.stop()


def test_a_spool_on_a_mount_that_cannot_sync_folders_works_but_a_failing_disk_acknowledges_nothing(
    tmp_path, queue, monkeypatch
):
    path, sync, number = scan(tmp_path / "a.dcm"), os.fsync, errno.EINVAL

    def of_files_alone(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr("os.fsync", of_files_alone)
    assert queue.add("1.2.3", path) == 1
    queue.results(1).mkdir()
    made = mirrored(queue.next_object().path, queue.results(1)).images[0]
    queue.made(1, [(made, "1.2.3.1")], ["A"])
    assert queue.next_delivery("A").path.read_bytes() == made.read_bytes()
    number = errno.EIO
    with pytest.raises(OSError, match=os.strerror(number)):
        queue.add("1.2.4", path)
    assert queue.counts()["waiting"] == 0


def test_who_may_call_and_how_much(tmp_path, queue):
    path = scan(tmp_path / "a.dcm")
    said = []
    receiver, port = receiver_of(queue, said, titles=("KNOWN",), per_minute=2)
    assert send(path, port) is None and send(path, port, calling="KNOWN", called="OTHER") is None
    assert send(path, port, calling="KNOWN") == 0 and send(path, port, calling="KNOWN") == 0
    assert send(path, port, calling="KNOWN") == OUT_OF_RESOURCES and "a minute" in said[-1]
    receiver.stop()
    receiver, port = receiver_of(queue, said, networks=networks(("10.0.0.0/8",)))
    assert send(path, port) is None and "not an allowed address" in said[-1]
    receiver.stop()
    receiver, port = receiver_of(queue, said, networks=networks(("127.0.0.1",)), max_bytes=1000)
    assert send(path, port) is None and "cut off" in said[-1]
    receiver.stop()
    assert queue.counts()["waiting"] == 1


def test_bytes_that_are_no_dicom_end_in_a_line_and_the_node_goes_on(tmp_path, queue):
    said = []
    receiver, port = receiver_of(queue, said)
    request = b"\x01\x00\x00\x00\x00\x44\x00\x01\x00\x00" + b"USDEHAZE".ljust(16) + b"X" * 48
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x04" + request[1:], request, request[:20], b"\xff" * 300, b"\x07"):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(data)
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):
                connection.recv(100)
    assert send(scan(tmp_path / "a.dcm"), port) == 0 and queue.counts()["waiting"] == 1
    receiver.stop()
    assert all("\n" not in line for line in said)


@pytest.mark.parametrize("pages", [2, 100])
@pytest.mark.parametrize("begins_anew", [True, False])
def test_a_server_may_list_only_so_many_images_at_once(tmp_path, monkeypatch, pages, begins_anew):
    images = {uid: pydicom.dcmread(scan(tmp_path / "a.dcm", uid)) for uid in (f"1.2.{n}" for n in range(5))}
    listed = [image.to_json_dict() for image in images.values()]

    def search(study, *, fields, offset=0):
        return listed if begins_anew else listed[offset : offset + pages]

    client = SimpleNamespace(search_for_instances=search, retrieve_instance=lambda *uids: images[uids[-1]])
    monkeypatch.setattr("usdehaze.node.fetch.web_client", lambda url: client)
    assert len(fetch_study("url", "1.2.3.4", tmp_path)) == 5


@pytest.mark.parametrize("tells", [True, False])
def test_images_that_were_compressed_with_loss_are_fetched_and_those_made_from_others_are_not(
    tmp_path, monkeypatch, tells
):
    kinds = {
        "1.2.1": ["ORIGINAL", "PRIMARY"],
        "1.2.2": ["DERIVED", "PRIMARY", "", "0001"],
        "1.2.3": ["DERIVED", "SECONDARY"],
    }
    images = {uid: pydicom.dcmread(scan(tmp_path / "a.dcm", uid, ImageType=kind)) for uid, kind in kinds.items()}
    listed = [image.to_json_dict() for image in images.values()]
    listed[0]["00200011"] = {"vr": "IS", "Value": [None]}
    for item in listed if not tells else ():
        del item["00080008"]
    client = SimpleNamespace(
        search_for_instances=lambda *_, **__: listed, retrieve_instance=lambda study, series, instance: images[instance]
    )
    monkeypatch.setattr("usdehaze.node.fetch.web_client", lambda url: client)
    fetched = [pydicom.dcmread(path).SOPInstanceUID for path in fetch_study("url", "1.2.3.4", tmp_path)]
    assert fetched == ["1.2.1", "1.2.2"]


def test_a_dicomweb_server_that_never_answers_is_waited_for_as_long_as_an_archive(tmp_path, monkeypatch):
    monkeypatch.setattr(destinations, "TIMEOUT_S", 0.05)
    path = scan(tmp_path / "a.dcm")
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        with pytest.raises(NotSent, match="not stored"):
            destinations.ByWeb(f"http://127.0.0.1:{server.getsockname()[1]}").send(path)
    assert 0.4 < time.monotonic() - began < 10


def test_access_by_address():
    access = Access(networks=networks(("10.1.0.0/16", "fd00::/8")))
    assert access.admits("10.1.2.3") and access.admits("::ffff:10.1.2.3") and access.admits("fd00::1%eth0")
    assert not access.admits("10.2.0.1") and not access.admits("::1") and Access().admits("203.0.113.9")
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("pacs.example")
    with pytest.raises(UsdehazeError, match="no address or network"):
        networks(("10.1.2.300",))
    rate = Rate(1)
    assert rate.allows("a") and rate.allows("b") and not rate.allows("a")


def test_one_node_to_a_queue(queue):
    with pytest.raises(InputError, match="in use by another node"):
        Queue(queue.folder)
    Queue(queue.folder, exclusive=False).close()


def test_a_spool_that_is_no_spool(tmp_path):
    (tmp_path / "queue.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(InputError, match="cannot be used as a spool"):
        Queue(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be used as a spool"):
        Queue(tmp_path / "file" / "spool")


@pytest.mark.parametrize("text", ["ARCHIVE", "A@host", "A@:104", "@host:104", "A@host:0", "A" * 17 + "@host:104"])
def test_destinations_that_are_none(text):
    with pytest.raises(UsdehazeError, match=r"no destination|no AE title"):
        Peer.parse(text)


def test_destinations():
    assert Peer.parse("ARCHIVE@pacs.example:104") == Peer("ARCHIVE", "pacs.example", 104)
    assert Peer.parse("A@[::1]:104").host == "::1"


def test_a_port_that_another_has_is_one_line(tmp_path):
    from _tiny_priors import write_tiny_posterior

    write_tiny_posterior(tmp_path / "posterior.safetensors")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        options = ["--send-to", "A@localhost:104", "--port", port, "--spool", tmp_path / "spool", "--device", "cpu"]
        options += ["--posterior", tmp_path / "posterior.safetensors"]
        outcome = CliRunner().invoke(main, ["node", *map(str, options)])
    assert outcome.exit_code == 1
    assert outcome.stderr == f"usdehaze: cannot listen at 127.0.0.1:{port} (Address already in use)\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nowhere to send to"),
        (["--send-to", "A@localhost:104", "--bind", "0.0.0.0"], "--allow-address"),
        (["--send-to", "A@localhost:104", "--tls-key", __file__], "need --tls-cert"),
        (["--send-to", "A@localhost:104", "--tls-cert", __file__], "cannot be used for TLS"),
        (["--send-to", "A@localhost"], "no destination"),
        (["--send-to", "A@localhost:104", "--aet", "A" * 17], "no AE title"),
        (["--send-to", "A@localhost:104", "--allow-address", "x"], "no address or network"),
        (["--dicomweb", "ftp:x"], "no DICOMweb service"),
        (["status", "--spool", "/nowhere"], "no queue of a node"),
    ],
)
def test_wrong_usage_is_one_line(options, message):
    outcome = CliRunner().invoke(main, ["node", *options])
    assert outcome.exit_code in (1, 2) and message in outcome.output and "Traceback" not in outcome.output


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed PEM certificate with its key."""
    path = tmp_path_factory.mktemp("tls") / "node.pem"
    subject = ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(path), "-out", f"{path}.crt"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("openssl is not here")
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def test_tls_both_ways(tmp_path, queue, certificate):
    tls = {"certificate": certificate, "key": None, "authority": certificate}
    receiver = Receiver(queue, "USDEHAZE", Access(), lambda line: None, tls_context(server=True, **tls))
    port = receiver.start("127.0.0.1", 0)
    path = scan(tmp_path / "a.dcm")
    assert send(path, port) is None  # in the clear
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    assert send(path, port, tls=(stranger, None)) is None  # without a certificate
    assert send(path, port, tls=(tls_context(server=False, **tls), "127.0.0.1")) == 0
    receiver.stop()
    archive = loopback.Archive(tls=tls_context(server=True, **tls))
    ByStore(archive.peer, "USDEHAZE", tls_context(server=False, **tls)).send(path)
    assert len(archive.kept) == 1
    archive.stop()


def start(spool, archive, posterior, *more):
    command = [sys.executable, "-m", "usdehaze", "node", "--port", "0", "--spool", str(spool), "--posterior"]
    command += [str(posterior), "--send-to", str(archive.peer), "--device", "cpu", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
    line = process.stdout.readline()
    assert "listens at 127.0.0.1:" in line, line + process.stdout.read()
    return process, int(line.split("127.0.0.1:")[1].split(",")[0])


@pytest.mark.slow
def test_the_command_killed_and_stopped_delivers_all_it_acknowledged(tmp_path, archive):
    from _tiny_priors import write_tiny_posterior

    write_tiny_posterior(tmp_path / "posterior.safetensors")
    spool = tmp_path / "spool"
    process, port = start(spool, archive, tmp_path / "posterior.safetensors")
    accepted = [uid for uid in ("1.2.5", "1.2.6") if send(scan(tmp_path / "a.dcm", uid, 2), port) == 0]
    assert send(scan(tmp_path / "b.dcm", "1.2.7", Modality="MR", SOPClassUID="1.2.840.10008.5.1.4.1.1.4"), port) is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(accepted) == 2
    again = ("--save-haze", "--send-to", str(archive.peer))  # named twice
    process, port = start(spool, archive, tmp_path / "posterior.safetensors", *again)
    assert send(scan(tmp_path / "a.dcm", "1.2.8", 2), port) == 0
    with sqlite3.connect(spool / "queue.sqlite") as db:
        wait_for(lambda: db.execute("SELECT count(*) FROM objects WHERE state = 'done'").fetchone()[0] == 3, 120)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    out = process.stdout.read()
    assert "Traceback" not in out and "usdehaze: stopped" in out and SENTINEL not in out
    derived = [image for image in archive.kept if image.ImageType[0] == "DERIVED"]
    assert len(derived) == len(archive.kept) >= 4 and all(image.StudyInstanceUID == "1.2.3.4" for image in derived)
    sources = [item.ReferencedSOPInstanceUID for image in derived for item in image.SourceImageSequence]
    assert set(sources) >= {"1.2.5", "1.2.6", "1.2.8"} and sources.count("1.2.8") == 2
    assert oct(os.stat(spool).st_mode & 0o777) == "0o700"
