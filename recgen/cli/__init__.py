"""The command line. One file per command; each imports the compiler only when it runs, so that `--help` is instant.

Exit status: 0 fine, 1 findings (errors in a spec, files that differ, checks that fail), 2 usage, 70 a failure of recgen itself.
"""

from __future__ import annotations

import click

from recgen import __version__
from recgen.cli.build import build
from recgen.cli.cache import cache
from recgen.cli.check import check
from recgen.cli.doctor import doctor
from recgen.cli.explain import explain
from recgen.cli.fmt import fmt
from recgen.cli.group import ReportingGroup
from recgen.cli.tune import tune
from recgen.cli.verify import verify

__all__ = ["main"]


@click.group(cls=ReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="recgen %(version)s")
@click.option("--debug", is_flag=True, help="Show the full traceback when recgen itself fails.")
def main(debug: bool) -> None:
    """Compile linear-attention recurrences to PyTorch and Triton modules.

    Exit status: 0 fine, 1 findings, 2 usage, 70 a failure of recgen itself.
    """


for command in (check, fmt, explain, build, verify, tune, doctor, cache):
    main.add_command(command)
