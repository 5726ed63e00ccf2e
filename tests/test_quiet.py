"""Libraries are kept quiet in every thread, and the process hears warnings again afterwards."""

import logging
import threading
import warnings

from PIL import Image

from usdehaze.io.images.read import upright
from usdehaze.quiet import quiet


def side_by_side(*works):
    """Each in a thread of its own, until all are done."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_threads_that_overlap_are_all_quiet_and_leave_the_filters_as_they_were():
    """The first thread in is the first out, while the second is still inside."""
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    logger, heard = logging.getLogger("pydicom"), []

    def first():
        with quiet():
            first_in.set()
            second_in.wait(30)
        first_out.set()

    def second():
        first_in.wait(30)
        with quiet():
            second_in.set()
            first_out.wait(30)
            warnings.warn("SENTINEL", UserWarning, stacklevel=1)
            heard.append(logger.propagate)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        side_by_side(first, second)
        assert not caught and heard == [False]
        assert warnings.filters == before and logger.propagate
        warnings.warn("heard again", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["heard again"]


def test_pictures_read_by_threads_that_overlap_leave_the_filters_as_they_were(monkeypatch):
    """As above: a picture is turned as its EXIF says, with warnings left out."""
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def turned(picture):
        (first_in if picture.width == 1 else second_in).set()
        (second_in if picture.width == 1 else first_out).wait(30)
        return picture

    def first():
        upright(Image.new("L", (1, 1)))
        first_out.set()

    def second():
        first_in.wait(30)
        upright(Image.new("L", (2, 1)))

    monkeypatch.setattr("PIL.ImageOps.exif_transpose", turned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = list(warnings.filters)
        side_by_side(first, second)
        assert warnings.filters == before
