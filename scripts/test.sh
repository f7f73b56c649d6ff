#!/usr/bin/env bash
# Install recgen for development into .venv and run every gate; all of them run even when one fails.  usage: scripts/test.sh
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/environment.sh test && bash scripts/newest.sh || exit
newest="PYTHONPATH=$PWD/.venv-newest"
export PATH="$PWD/.venv/bin:$PATH" PYTHONDONTWRITEBYTECODE=1

failed=()
gate() { # gate NAME COMMAND...
    local name="$1" start=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@" || failed+=("$name")
    printf -- '-- %s: %ss\n' "$name" $((SECONDS - start))
}

gate "ruff check" ruff check --output-format concise .
gate "ruff format" ruff format --check .
gate "mypy" mypy
gate "generated modules are up to date" recgen build --check
gate "wheel" bash scripts/wheel.sh
# Triton decides once per process whether it interprets, so those tests have a process of their own.
gate "pytest, Triton kernels interpreted" env TRITON_INTERPRET=1 pytest -n 2 tests/triton
# By the newest one without the longest, whose kernels it compiles all the same.
long=(--ignore=tests/triton/test_matrix.py --ignore=tests/triton/test_phases.py --ignore=tests/triton/test_scan.py)
gate "pytest, interpreted by the newest Triton" env "$newest" TRITON_INTERPRET=1 pytest -n 2 tests/triton "${long[@]}"
gate "Triton kernels compile for GPUs" python -m tests.triton.matrix --verify
gate "Triton kernels compile, the newest Triton" env "$newest" python -m tests.triton.matrix --verify
gate "pytest" pytest -n 2 --ignore=tests/triton

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nfailed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
    exit 1
fi
