#!/usr/bin/env bash
# Install recgen into .venv and build specs.  usage: scripts/build.sh [FILE...]   (default: all of specs/, into generated/)
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$root/scripts/environment.sh"
[ $# -gt 0 ] || cd "$root"
exec "$root/.venv/bin/recgen" build "$@"
