"""`python -m recgen`."""

from recgen.cli import main

main()
