"""Where the top-level folders `specs`, `templates` and `generated` lie, in a checkout and in an installed wheel alike."""

from __future__ import annotations

from pathlib import Path
from typing import Final

KINDS: Final = ("specs", "templates", "generated")
"""The folders that travel with the package."""


def resource(kind: str) -> Path:
    """The folder of this kind.

    A wheel carries the folders as `recgen/_data/<kind>`; a checkout (also an editable install) has no `_data` and keeps them beside the
    package.

    Args:
        kind: one of `KINDS`.

    Raises:
        ValueError: for any other kind.
        FileNotFoundError: when the package was copied without its folders.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    package = Path(__file__).resolve().parent
    candidates = (package / "_data" / kind, package.parent / kind)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"recgen's {kind} folder is missing; looked for {' and '.join(map(str, candidates))}")
