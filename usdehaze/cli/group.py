"""What all commands share: --debug and --quiet, one-line errors, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import click

from usdehaze import stopping
from usdehaze.budget import max_memory
from usdehaze.errors import InputError, UsdehazeError

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
            click.echo(printable(message))

    def note(self, message: str) -> None:
        """A line on stderr, unless ``--quiet``."""
        if not self.quiet:
            complain(message)

    def report(self, error: Exception, scan: object = None) -> None:
        """One line on stderr, which names the scan at fault; with ``--debug`` the traceback before it."""
        stopping.check()
        if self.debug:
            import traceback

            traceback.print_exception(error, file=sys.stderr)
        complain(describe(error, scan))


def describe(error: Exception, scan: object = None) -> str:
    """What is wrong, in one line."""
    if isinstance(error, InputError):  # names what is at fault itself
        return str(error)
    if isinstance(error, UsdehazeError):
        message = str(error)
    elif isinstance(error, MemoryError):
        message = "not enough memory; take part of the frames with --frames"
    else:
        message = f"unexpected {type(error).__name__}: {error}; see where with --debug"
    return message if scan is None else f"{scan}: {message}"


def complain(message: str) -> None:
    """One line on stderr."""
    click.echo("usdehaze: " + printable(message), err=True)


def printable(message: str) -> str:
    """One line without control characters: names in files may hold anything, terminal commands included."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))


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
        type=click.FloatRange(0.125, 4096),
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
            click.echo(stopping.MESSAGE, err=True)
            sys.exit(getattr(stop.__cause__ or stop, "code", INTERRUPTED))
        sys.exit(code or DONE)


def _exit_with_usage(error: click.UsageError) -> NoReturn:
    message = error.format_message().rstrip(".")
    if error.ctx is not None:
        message += f"; see {error.ctx.command_path} --help"
    complain(message)
    sys.exit(USAGE)
