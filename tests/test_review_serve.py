"""The review page served to this machine alone."""

import http.client
import json
import threading

import pytest
from _results import REGIONS, make_result
from click.testing import CliRunner

from usdehaze.cli import main
from usdehaze.errors import InputError
from usdehaze.review import ReviewServer, build_review

GOOD = {"regions": [{"name": "wall", "role": "faint", "frames": [3], "polygon": [[0, 0], [5, 0], [5, 5]]}]}


@pytest.fixture
def server(tmp_path):
    for name in ("page.html", "a.dehazed.h5"):
        (tmp_path / name).write_text("the page")
    with ReviewServer(tmp_path / "page.html", tmp_path / "a.rois.json", tmp_path / "a.dehazed.h5", (40, 48)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_only_the_address_with_the_token_answers_and_only_under_its_own_name(server):
    home = f"/{server.token}/"
    assert server.server_address[0] == "127.0.0.1" and ask(server, "GET", home) == (200, "the page")
    assert ask(server, "GET", "/")[0] == ask(server, "GET", "/wrong/")[0] == 404
    assert ask(server, "GET", home, Host="evil.example")[0] == 404
    assert ask(server, "POST", home + "regions", json.dumps(GOOD), Origin="http://evil.example")[0] == 404


def test_regions_are_saved_in_the_contract_s_form_and_bad_ones_leave_the_file_as_it_is(server):
    path = f"/{server.token}/regions"
    assert ask(server, "POST", path, json.dumps(GOOD)) == (200, "1 region saved: a.rois.json")
    assert json.loads(server.review.regions.read_text()) == GOOD
    for body in (
        "",
        "[]",
        '{"regions": []}',
        json.dumps(GOOD).replace("faint", "x"),
        json.dumps(GOOD).replace("5", "99"),
    ):
        status, text = ask(server, "POST", path, body)
        assert status == 400 and text.startswith("Not saved: found no")
    assert json.loads(server.review.regions.read_text()) == GOOD


def test_regions_that_another_page_or_program_saved_meanwhile_are_not_replaced(server):
    path, regions = f"/{server.token}/regions", server.review.regions
    assert ask(server, "POST", path, json.dumps(GOOD))[0] == ask(server, "POST", path, json.dumps(GOOD))[0] == 200
    regions.with_name("other").write_text("drawn by somebody else")
    regions.with_name("other").replace(regions)
    status, text = ask(server, "POST", path, json.dumps(GOOD))
    assert status == 500 and "a.rois.json: was changed by somebody else meanwhile; move it away" in text
    assert regions.read_text() == "drawn by somebody else"
    regions.unlink()
    assert ask(server, "POST", path, json.dumps(GOOD))[0] == 200


def test_regions_that_another_saved_while_the_page_was_made_are_not_replaced(tmp_path, monkeypatch):
    result, regions, told = tmp_path / "a.dehazed.h5", tmp_path / "a.rois.json", []
    make_result(result)

    def build(*args, plain=build_review, **options):
        regions.write_text("drawn by somebody else")
        return plain(*args, **options)

    def serve(server):
        with pytest.raises(InputError) as error:
            server.save(GOOD)
        told.append(str(error.value))

    monkeypatch.setattr("usdehaze.review.build_review", build)
    monkeypatch.setattr(ReviewServer, "serve_forever", serve)
    served = CliRunner().invoke(main, ["review", str(result), "--no-open", "--serve"])
    assert served.exit_code == 0 and regions.read_text() == "drawn by somebody else"
    assert told == ["a.rois.json: was changed by somebody else meanwhile; move it away to save these"]


@pytest.mark.parametrize("serve", [[], ["--serve"]])
def test_the_folder_one_is_in_is_no_result(tmp_path, monkeypatch, serve):
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, ["review", ".", "--no-open", *serve])
    assert told.exit_code == 1 and ".: is a folder" in told.stderr and not any(tmp_path.iterdir())


IN_MM = {  # of frames whose pixels are 0.3 mm wide and 0.2 mm high
    "units": "mm",
    "regions": [
        {"name": "septum", "role": "tissue", "polygon": [[1, 1], [6, 1], [6, 7]]},
        {"name": "ventricle", "role": "haze", "polygon": [[8, 1], [13, 1], [13, 7]]},
    ],
}


@pytest.mark.parametrize(("units", "margin"), [("mm", "0"), ("px", "2")])
def test_regions_that_the_page_cannot_draw_are_not_replaced_by_those_drawn_on_it(tmp_path, monkeypatch, units, margin):
    monkeypatch.setattr(ReviewServer, "serve_forever", lambda _: pytest.fail("is served"))
    make_result(tmp_path / "a.dehazed.h5")
    document = json.dumps(REGIONS if units == "px" else IN_MM)
    (tmp_path / "a.rois.json").write_text(document)
    for roi in (tmp_path / "a.rois.json", tmp_path):
        how = ["--serve", "--roi", str(roi), "--margin", margin, "--no-open"]
        done = CliRunner().invoke(main, ["review", str(tmp_path / "a.dehazed.h5"), *how])
        assert done.exit_code == 1 and "a.rois.json: exists already" in done.stderr
    assert (tmp_path / "a.rois.json").read_text() == document
