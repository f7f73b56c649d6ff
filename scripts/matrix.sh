#!/usr/bin/env bash
# Compile for every target, with both Tritons, the kernels that tests/triton/matrix.json lacks.  usage: scripts/matrix.sh [--all] [--only REGEX]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/environment.sh test
bash scripts/newest.sh
.venv/bin/python -m tests.triton.matrix "$@"
PYTHONPATH="$PWD/.venv-newest" .venv/bin/python -m tests.triton.matrix "$@"
