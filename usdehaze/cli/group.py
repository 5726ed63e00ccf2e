"""What all commands share: --debug and --quiet, one-line errors, exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from usdehaze import stopping
from usdehaze.budget import max_memory
from usdehaze.cli.options import Number
from usdehaze.errors import InputError, UsdehazeError, foreign
from usdehaze.plain_text import one_line, table_line

DONE, SOME_FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass
class Console:
    """What is told the user: as ``--debug`` and ``--quiet`` say, given before or after the name of the command."""

    debug: bool = False
    quiet: bool = False

    def say(self, message: str) -> None:
        """Prints a line for the user, unless ``--quiet``."""
        if not self.quiet:
            echo(message)

    def note(self, message: str) -> None:
        """A line on stderr, unless ``--quiet``."""
        if not self.quiet:
            complain(message)

    def report(self, error: Exception, scan: object = None) -> None:
        """One line on stderr, which names the scan at fault; with ``--debug`` the traceback before it."""
        stopping.check()
        if self.debug:
            for line in traceback_of(error):
                click.echo(table_line(line), err=True)
        complain(describe(error, scan))


def results_in(console: Console, given: Iterable[Path]) -> tuple[list[Path], int]:
    """Results as given, folders replaced by those in them; and how many folders cannot be read, each told in one line.

    Raises:
        UsdehazeError: there is no result.
    """
    from usdehaze.io import RESULT_SUFFIX, list_results

    lost: dict[Path, InputError] = {}
    found = list_results(given, lost)
    for path, error in lost.items():
        console.report(error, path)
    if not found:
        raise UsdehazeError(f"no result in {', '.join(map(str, given))}; expected files that end in {RESULT_SUFFIX}")
    return found, len(lost)


def describe(error: Exception, scan: object = None) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):  # names what is at fault itself
        return str(error)
    if isinstance(error, UsdehazeError):
        message = str(error)
    elif isinstance(error, OSError) and error.filename and error.strerror:
        return f"{os.fsdecode(error.filename)}: cannot be read or written ({error.strerror})"
    elif isinstance(error, MemoryError):
        message = "not enough memory; take part of the frames with --frames"
    else:
        message = f"unexpected {foreign(error)}; see where with --debug"
    return message if scan is None else f"{scan}: {message}"


def complain(message: str) -> None:
    """One line on stderr; where that can be written no more, the work goes on without."""
    try:
        click.echo("usdehaze: " + one_line(message), err=True)
    except OSError:
        sys.stderr = open(os.devnull, "w")


def echo(line: str) -> None:
    """One line on stdout, without control characters; blanks stay, as a table needs them.

    Raises:
        UsdehazeError: it goes to a file that cannot be written.
    """
    try:
        click.echo(table_line(line))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsdehazeError(f"standard output cannot be written ({error.strerror})") from error


def traceback_of(error: BaseException) -> list[str]:
    """Lines of a traceback, causes first. Of errors that are not ours their text is left out: it may quote a file."""
    import traceback

    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    lines: list[str] = []
    for link in reversed(chain):
        lines.append("Traceback (most recent call last):")
        lines += [line for entry in traceback.format_tb(link.__traceback__) for line in entry.rstrip().split("\n")]
        kind = type(link)
        text = f": {link}" if isinstance(link, UsdehazeError) else ""
        lines.append(f"{kind.__module__}.{kind.__qualname__}{text}")
    return lines


def common_options(command: _Command) -> _Command:
    """Adds ``--debug``, ``--quiet`` and ``--max-memory``."""

    def remember(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        if wanted:
            setattr(console_of(ctx), str(parameter.name), True)

    def allow(ctx: click.Context, _: click.Parameter, gigabytes: float | None) -> None:
        if gigabytes is not None:
            ctx.find_root().with_resource(max_memory(round(gigabytes * 2**30)))

    command = click.option(
        "--max-memory",
        type=Number(0.125, 4096),
        metavar="GB",
        expose_value=False,
        callback=allow,
        help="GiB that reading a file may take beside its frames; 0.5 by default.",
    )(command)
    for name, text in (("--quiet", "Print nothing but errors."), ("--debug", "Show tracebacks.")):
        command = click.option(name, is_flag=True, expose_value=False, callback=remember, help=text)(command)
    return command


def console_of(ctx: click.Context) -> Console:
    """The console of this run of the program."""
    return ctx.find_root().ensure_object(Console)


class UsdehazeGroup(click.Group):
    """A group whose errors, wrong usage included, are one line on stderr."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(not word or (word.startswith("--") and word.endswith("=")) for word in args):
            raise click.UsageError("an argument is empty; a variable that is not set?", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise click.Abort from stop
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click ends quietly when nobody reads on: usdehaze info scans | head
        except Exception as error:
            console_of(ctx).report(error)
            ctx.exit(SOME_FAILED)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run: Callable[..., Any] = super().main
        extra.setdefault("prog_name", self.name)
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        _any_name_may_be_printed()
        try:
            with stopping.stoppable():
                code = run(*args, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(USAGE)
        except click.UsageError as error:
            _exit_with_usage(error)
        except click.ClickException as error:
            complain(error.format_message())
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt) as stop:
            complain(stopping.TOLD)
            sys.exit(getattr(stop.__cause__ or stop, "code", INTERRUPTED))
        sys.exit(code or DONE)


def _any_name_may_be_printed() -> None:
    """A stream that is closed, or cannot encode a name, never stops the work."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _exit_with_usage(error: click.UsageError) -> NoReturn:
    message = error.format_message().rstrip(".")
    if error.ctx is not None:
        message += f"; see {error.ctx.command_path} --help"
    complain(message)
    sys.exit(USAGE)
