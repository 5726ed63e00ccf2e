"""The loop: the newest frame in, its result to screens and files, until the stream or somebody ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from threading import Event

from usdehaze.cine import Cine
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.io.sink import Sink
from usdehaze.live.figures import Counter, Figures
from usdehaze.live.newest import Newest
from usdehaze.live.screen import TICK_S, Screen, Shown
from usdehaze.live.stream import Changed, Frame, FrameSource, Stream
from usdehaze.live.writing import Writing
from usdehaze.result import Result
from usdehaze.stopping import uninterrupted

FIRST_S = 1.0  # after the first frame, that more are waited for to find the geometry in
ENDING_S = 5.0  # that a source may take to end


def run(
    source: FrameSource,
    dehaze: Callable[[Cine], Result],
    ended: Event,
    *,
    screens: Sequence[Screen] = (),
    files: Callable[[Stream], Sequence[Sink]] = lambda stream: (),
    every: bool = False,
    begun: Callable[[Stream], None] = lambda stream: None,
    watch: Callable[[Figures], None] = lambda figures: None,
) -> Figures:
    """Dehazes the frames of a source as they come; of those that came meanwhile only the newest.

    Geometry and units are found in the first frames and kept; frames count from then on. However the stream ends, files
    hold all frames that were dehazed; one that cannot be written any more, those until then if it can be completed.

    Args:
        source: where frames come from; closed in the end.
        dehaze: `usdehaze.Dehazer.dehaze`.
        ended: set when enough is enough.
        screens: shown every result, while files are still written.
        files: makes the files to write, once the stream is known.
        every: no frame is left out: the source waits, and latency has no bound.
        begun: called once, with what is known of the stream.
        watch: called after every frame, and several times a second while none comes.

    Raises:
        UsdehazeError: a source that cannot be read any more, whose frames changed, or that gave none; a file that
            cannot be written; a computation that broke down.
    """
    newest, counter, left_out = Newest[Frame](every), Counter(), 0
    failed: UsdehazeError | KeyboardInterrupt | None = None
    with ExitStack() as stack:
        stack.callback(source.close)
        first: list[Frame] = []
        if source.first_frames:
            stack.enter_context(_capturing(source, newest))
            first, left_out = _first_frames(source, newest, ended)
        stream = source.stream(first)
        begun(stream)
        dehaze(stream.blank())  # the first pass takes longer than all others
        if not source.first_frames:
            stack.enter_context(_capturing(source, newest))
        elif not every:
            newest.restart(first[-1])
            first, left_out = [], 0
        writing = stack.enter_context(Writing(files(stream), stream))
        counter.begin()
        try:
            for frame in _frames(first, newest, ended):
                if frame is not None:
                    _pass_on(frame, stream, dehaze, counter, screens, writing)
                watch(counter.figures(*newest.counts, left_out))
        except (UsdehazeError, KeyboardInterrupt) as error:  # what was dehazed before is as good
            failed = error
        newest.discard()
        figures = counter.figures(*newest.counts, left_out)
        if figures.dehazed:
            with uninterrupted():  # some ask for the end twice
                writing.finish(f"Dehazed live: {figures.line()}.")
        elif failed is None:
            raise InputError(source.name, "gave no frame to dehaze")
    if failed is not None:
        raise failed
    return figures


def _first_frames(source: FrameSource, newest: Newest[Frame], ended: Event) -> tuple[list[Frame], int]:
    """Frames with an image in them, of one shape and type, and how many were left out before them.

    Raises:
        InputError: there is none.
    """
    first: list[Frame] = []
    left_out = 0
    while len(first) < source.first_frames and not (ended.is_set() or newest.over):
        if first and time.monotonic() - first[0].came_s > FIRST_S:
            break
        frame = newest.take(TICK_S)
        if frame is None:
            continue
        values = frame.values
        if values.min() == values.max():
            left_out += 1
        elif first and (values.shape, values.dtype) != (first[0].values.shape, first[0].values.dtype):
            first, left_out = [frame], left_out + len(first)
        else:
            first.append(frame)
    if not first:
        raise InputError(source.name, "gave no frame to dehaze")
    return first, left_out


def _frames(first: Sequence[Frame], newest: Newest[Frame], ended: Event) -> Iterator[Frame | None]:
    """The first frames, then those that come; None where for a while none does."""
    for frame in first:
        if ended.is_set():
            return
        yield frame
    while not (ended.is_set() or newest.over):
        yield newest.take(TICK_S)


def _pass_on(
    frame: Frame,
    stream: Stream,
    dehaze: Callable[[Cine], Result],
    counter: Counter,
    screens: Sequence[Screen],
    writing: Writing,
) -> None:
    """One frame, from where it came to where its result goes."""
    try:
        cine = stream.cine_of(frame)
    except Changed:
        raise
    except InputError:
        counter.unusable += 1
        return
    result = dehaze(cine)
    for screen in screens:
        screen.show(Shown(result, frame))
    counter.add(time.monotonic() - frame.came_s)
    writing.append(result)


@contextmanager
def _capturing(source: FrameSource, newest: Newest[Frame]) -> Iterator[None]:
    """Inside the block frames come, on a thread of its own."""
    stop = Event()

    def capture() -> None:
        try:
            with closing(source.frames(newest.every, stop)) as frames:
                for frame in frames:
                    newest.put(frame, frame.missed)
                    if stop.is_set():
                        break
            newest.close()
        except BaseException as error:  # raised where frames are taken
            newest.close(error)

    thread = threading.Thread(target=capture, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        newest.discard()
        source.interrupt()
        thread.join(ENDING_S)
