#!/usr/bin/env bash
# Build the wheel, install it into an empty folder, and use it from outside the checkout.  needs .venv (scripts/environment.sh test)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/.venv/bin/python"
script="$PWD/scripts/smoke.py"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$python" -m build --quiet --outdir "$work/dist" .

# Exactly the files of the three folders travel with the package.
diff <(find specs templates generated -type f -not -path '*/__pycache__/*' | LC_ALL=C sort) \
    <("$python" -m zipfile -l "$work"/dist/*.whl | sed -n 's#^recgen/_data/\([^ ]*\) .*#\1#p' | LC_ALL=C sort)

"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/site" "$work"/dist/*.whl
cd "$work"
# The dependencies come from .venv; the folder on PYTHONPATH stands before the editable install, which the smoke test makes sure of.
PYTHONPATH="$work/site" RECGEN_CACHE_DIR="$work/cache" "$python" "$script" "$work/site"
