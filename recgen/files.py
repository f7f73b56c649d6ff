"""Reading specs and writing results: decoding with clear errors, and writes that are never seen half done."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class UnreadableFileError(Exception):
    """A file that the user named cannot be read as text; the message is complete and names the file."""


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with line feeds for newlines and without a byte-order mark.

    Raises:
        UnreadableFileError: when it is missing, not a file, not permitted or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UnreadableFileError(f"{path}: no such file{_nearby(path)}") from None
    except IsADirectoryError:
        raise UnreadableFileError(f"{path}: is a directory; name the .rec files in it") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        raise UnreadableFileError(f"{path}: is not UTF-8 text ({where}); save it as UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableFileError(f"{path}: cannot be read: {reason}") from None


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


def _nearby(path: Path) -> str:
    """A hint when the folder holds a spec of nearly this name."""
    from difflib import get_close_matches

    stems = [entry.stem for entry in path.parent.glob("*.rec")]
    close = get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {path.parent / close[0]}.rec?" if close else ""


def _umask() -> int:
    """The process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
