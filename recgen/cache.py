"""The modules that `recgen.load` emits: one readable file each, named by its content, in the user's cache folder.

A file's name carries the digest of its text, so a name never means two texts and nothing has to be invalidated. Files are found by
`inspect.getsource`, which `triton.jit` needs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from recgen.files import holds, write_text

ENVIRONMENT_VARIABLE: Final = "RECGEN_CACHE_DIR"
"""Names another folder than the platform's."""

_DIGEST_LENGTH: Final = 16
_FILE = re.compile(rf"(?P<name>[A-Za-z_]\w*)_(?P<digest>[0-9a-f]{{{_DIGEST_LENGTH}}})\.py")
_IMPORTING = threading.RLock()


class CacheError(Exception):
    """A cached module cannot be trusted, or the cache cannot be written; the message says what to do."""


@dataclass(frozen=True)
class Entry:
    """A cached module: `size` in bytes, `modified` in seconds since the epoch."""

    name: str
    digest: str
    path: Path
    size: int
    modified: float


def directory() -> Path:
    """The cache folder, which need not exist: `RECGEN_CACHE_DIR`, else the platform's place for caches."""
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("recgen", appauthor=False)


def load(name: str, text: str) -> ModuleType:
    """The module with this text, written to the cache and imported once per process.

    Args:
        name: the recurrence's name, a Python identifier.
        text: the module's source.

    Raises:
        CacheError: when the cached file has been edited or damaged, or the folder cannot be read and written.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
    path = directory() / f"{name}_{digest}.py"
    if not _kept(path, text):
        raise CacheError(f"{path} is not what was written there; remove it, or run `recgen cache clear`, and load again")
    return _import(f"recgen_cache_{name}_{digest}", path)


def _kept(path: Path, text: str) -> bool:
    """Whether the file holds the text, which is written if there is no file."""
    try:
        if path.exists():
            return holds(path, text)
        write_text(path, text)
    except OSError as problem:
        reason, advice = problem.strerror or problem, f"set {ENVIRONMENT_VARIABLE} to a folder that can be written"
        raise CacheError(f"the cache folder {path.parent} cannot be used: {reason}; {advice}") from problem
    return True


def entries() -> tuple[Entry, ...]:
    """What the cache holds, by name; files that vanish meanwhile or are not ours are left out."""
    found = []
    for path in sorted(directory().glob("*.py")):
        match = _FILE.fullmatch(path.name)
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if match:
            found.append(Entry(match["name"], match["digest"], path, status.st_size, status.st_mtime))
    return tuple(found)


def clear() -> tuple[Entry, ...]:
    """Remove every cached module with its byte code, and nothing else; returns what was removed."""
    removed = entries()
    for entry in removed:
        entry.path.unlink(missing_ok=True)
        for compiled in (entry.path.parent / "__pycache__").glob(f"{entry.path.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)
    return removed


def _import(name: str, path: Path) -> ModuleType:
    """Import the file under this name, unless the process already has it."""
    with _IMPORTING:
        if loaded := sys.modules.get(name):
            return loaded
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, "a file that ends in .py has a loader"
        assert spec.loader is not None, "a file that ends in .py has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
