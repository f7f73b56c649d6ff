"""The group of all commands: what the user did wrong is one line; what recgen did wrong says so and asks for a report."""

from __future__ import annotations

import shlex
import sys
from typing import Any, Final

import click

from recgen.cache import CacheError

INTERNAL_FAILURE: Final = 70
"""Exit status of a fault in recgen (EX_SOFTWARE of sysexits.h)."""


class Findings(click.ClickException):
    """Ends a command with status 1 and one line on standard error."""

    exit_code = 1


class Misuse(click.ClickException):
    """Ends a command with status 2 and one line on standard error: what was asked for cannot be done."""

    exit_code = 2


class ReportingGroup(click.Group):
    """A group whose commands never end in a traceback unless `--debug` asks for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of use, not of the alphabet."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an exception that is not meant for the user becomes an internal failure."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except CacheError as error:
            raise Misuse(str(error)) from error
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            _report(error)
            ctx.exit(INTERNAL_FAILURE)


def _report(error: Exception) -> None:
    """Say that recgen failed, where, and what to do."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" at {frame.tb_frame.f_globals.get('__name__', '?')}:{frame.tb_lineno}" if frame is not None else ""
    again = shlex.join(["recgen", "--debug", *sys.argv[1:]])
    click.echo(
        f"recgen failed: {type(error).__name__}: {error}\n"
        f"  This is a fault in recgen{where}, not in your spec.\n"
        f"  Please report it with the spec and the output of: {again}",
        err=True,
    )
