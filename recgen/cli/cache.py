"""`recgen cache`: the modules that `recgen.load` has emitted."""

from __future__ import annotations

import datetime

import click

from recgen.cli.output import echo_json, format_option


@click.group()
def cache() -> None:
    """List or clear the modules that recgen.load has emitted.

    They lie in the platform's cache folder, or in RECGEN_CACHE_DIR.
    """


@cache.command("ls")
@format_option
def list_(format_: str) -> None:
    """List the cached modules."""
    from recgen.cache import directory, entries

    found = entries()
    if format_ == "json":
        modules = [{"name": e.name, "digest": e.digest, "path": str(e.path), "size": e.size, "modified": _time(e.modified)} for e in found]
        echo_json({"directory": str(directory()), "modules": modules})
        return
    for entry in found:
        click.echo(f"{_time(entry.modified)}  {entry.size:>9,}  {entry.path.name}")
    click.echo(f"{_count(len(found))}, {sum(e.size for e in found):,} bytes, in {directory()}", err=True)


@cache.command("clear")
@format_option
def clear_(format_: str) -> None:
    """Remove the cached modules, and nothing else that may lie in the folder."""
    from recgen.cache import clear, directory

    removed = clear()
    if format_ == "json":
        echo_json({"directory": str(directory()), "removed": [str(e.path) for e in removed]})
        return
    click.echo(f"removed {_count(len(removed))}, {sum(e.size for e in removed):,} bytes, from {directory()}")


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def _count(number: int) -> str:
    return f"{number} module{'' if number == 1 else 's'}"
