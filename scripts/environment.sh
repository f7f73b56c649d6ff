#!/usr/bin/env bash
# Create .venv in the checkout if need be and install recgen into it, editable.  usage: scripts/environment.sh [EXTRA]
#
# torch is pinned for a reproducible environment; PYTHON and TORCH choose others, as in  TORCH=torch==2.11.0 bash scripts/test.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extra="${1:-}"
python="${PYTHON:-python3}"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "recgen needs Python 3.11 or newer; $python is $("$python" --version 2>&1). Set PYTHON to a newer one." >&2
    exit 2
}
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check "${TORCH:-torch==2.13.0}" -e ".${extra:+[$extra]}"
