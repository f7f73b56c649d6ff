#!/usr/bin/env bash
# Put the newest Triton into .venv-newest, a folder that stands before .venv's packages as PYTHONPATH.  needs .venv (scripts/environment.sh test)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest="${NEWEST:-3.9.0}"
[ -d ".venv-newest/triton-$newest.dist-info" ] && exit
rm -rf .venv-newest
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target .venv-newest "triton==$newest"
