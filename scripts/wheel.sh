#!/usr/bin/env bash
# Build the wheel, install it into an empty folder, and use it from outside the checkout.  needs .venv (scripts/environment.sh test)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/.venv/bin/python"
script="$PWD/scripts/smoke.py"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$python" -m build --quiet --outdir "$work/dist" .
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/site" "$work"/dist/*.whl
cd "$work"
# The dependencies come from .venv; the folder on PYTHONPATH stands before the editable install, which the smoke test makes sure of.
PYTHONPATH="$work/site" RECGEN_CACHE_DIR="$work/cache" "$python" "$script" "$work/site"
