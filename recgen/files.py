"""Writing results so that they are never seen half done."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def holds(path: Path, text: str) -> bool:
    """Whether the file's content is exactly this text."""
    return path.read_bytes() == text.encode("utf-8")


def write_text(path: Path, text: str) -> None:
    """Replace the file's content in one step, so that no reader and no crash ever leaves a part of it.

    A link is followed, and an existing file keeps its permissions.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
