"""Files written beside the loop: one result at a time, on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType

from usdehaze.errors import UsdehazeError
from usdehaze.io.sink import Sink, SinkSet
from usdehaze.live.stream import Stream
from usdehaze.result import Result


class Writing:
    """Files of a stream, which appear together in the end; a context manager that otherwise removes them.

    Args:
        files: to write; there may be none.
        stream: what they are of.
    """

    def __init__(self, files: Sequence[Sink], stream: Stream) -> None:
        self._set, self._stream = SinkSet(files, stream), stream
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def append(self, result: Result) -> None:
        """Writes a result while the next one is made; waits until the one before is written.

        Raises:
            InputError: one of the files cannot be written.
        """
        if self._set.sinks:
            self._wait()
            self._last = self._thread.submit(self._append, result)

    def finish(self, note: str) -> None:
        """Completes the files and gives them their names; where one could not be written any more, with what it has.

        Args:
            note: on how the stream went.

        Raises:
            UsdehazeError: one of them could not be written; says what is kept.
        """
        if not self._set.sinks:
            return
        failed: UsdehazeError | None = None
        self._thread.shutdown()  # a signal may have come before `append` kept what to wait for
        try:
            self._wait()
        except UsdehazeError as error:
            failed, note = error, f"{note} Then it could not be written any more."
        source = self._stream.source
        self._stream.source = replace(source, assumptions=(*source.assumptions, note))
        for sink in list(self._set.sinks):
            self._stream.n_frames = sink.n_done  # which differ after a failure
            try:
                if sink.n_done:
                    sink.finish()
                    continue
            except UsdehazeError as error:
                failed = failed or error
            self._set.leave_out(sink)
        if self._set.sinks:
            self._set.commit()
        if failed is not None:
            kept = ", ".join(f"{sink.path} ({sink.n_done} frames)" for sink in self._set.sinks)
            raise UsdehazeError(f"{failed}; what was dehazed until then is in {kept}") if kept else failed

    def _append(self, result: Result) -> None:
        self._set.append(result)
        self._stream.n_frames += 1

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def __enter__(self) -> Writing:
        self._set.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._set.__exit__(kind, error, trace)
