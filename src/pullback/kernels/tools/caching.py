"""Compiled kernels on disk: one file for each kernel, types of its arguments and kind of processor.

A file's name is a hash of all that its code depends on: the sources of all kernels, Python, Numba, the processor, and
the types.  So a file is right or absent, never out of date.  It begins with a checksum of the rest: what is damaged is
thrown away and compiled again.  Files are written under another name and then renamed, so any number of processes may
share a directory.

Files are read from any of the directories below and written to the first that allows it:

    NUMBA_CACHE_DIR, if it is set; where that can be written to, it is the only one
    beside the sources, as Python does with its own compiled files
    the user's directory for caches (XDG_CACHE_HOME, or what the system calls it)
    a directory of this user's among the temporary files

Where none can be written to, kernels are compiled anew in every process, and a warning says so once.
"""

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import shutil
import sys
import tempfile
from pathlib import Path

import numba
from numba.core import config
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.serialize import dumps

SOURCES = Path(__file__).parents[1]
GENERATIONS = 8  # states of the sources whose files are kept in a directory

_logger = logging.getLogger("pullback")
_used: set[str] = set()  # names of the files that this process has read or written


def keep_on_disk(dispatcher):
    """Lets a function find its compiled code on disk, and leave it there; returns the function."""
    if hasattr(dispatcher, "_cache") and hasattr(CompileResult, "_reduce") and hasattr(CompileResult, "_rebuild"):
        dispatcher._cache = KernelCache(dispatcher.py_func)
    return dispatcher


class KernelCache:
    """What Numba asks of the cache of one function."""

    def __init__(self, function):
        self._name = f"{function.__module__.removeprefix('pullback.kernels.')}.{function.__qualname__}"
        self._function = function

    @functools.cached_property
    def _foreign_source(self):
        """The text of a module that is not among our sources, a test's, say; if it cannot be read, never the same."""
        if self._function.__module__.startswith("pullback.kernels."):
            return ""
        try:
            return Path(sys.modules[self._function.__module__].__file__).read_text("utf-8")
        except (KeyError, AttributeError, TypeError, OSError):
            return os.urandom(16).hex()

    @property
    def cache_path(self):
        return str(next(_generations(), ""))

    def load_overload(self, signature, target_context):
        target_context.refresh()
        name = self._file_name(signature, target_context.codegen())
        for folder in _generations():
            with contextlib.suppress(Exception):  # a file that cannot be read, for whatever reason, is not there
                result = CompileResult._rebuild(target_context, *pickle.loads(read(folder / name)))
                _used.add(name)
                return result
        return None

    def save_overload(self, signature, result):
        if result.lifted or result.library.has_dynamic_globals:
            return
        name = self._file_name(signature, result.codegen)
        with contextlib.suppress(Exception):  # what cannot be kept can still be used
            if write(name, dumps(result._reduce())):
                _used.add(name)

    def _file_name(self, signature, codegen):
        key = hash_of(str(signature), self._foreign_source, *map(str, codegen.magic_tuple()))
        return f"{self._name}-{key}.kernel"

    def enable(self):
        pass

    def disable(self):
        pass

    def flush(self):
        pass


def hash_of(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@functools.cache
def _generation():
    """A name for what all kernels depend on: their sources, Python and Numba; empty if the sources cannot be read."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {numba.__version__}".encode())
    paths = sorted(SOURCES.rglob("*.py"))
    try:
        for path in paths:
            digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    except OSError:
        return ""
    return f"pullback-{digest.hexdigest()[:16]}" if paths else ""


def _generations():
    """The folders that may hold files for these sources, best first."""
    generation = _generation()
    if generation:
        for folder in _folders():
            yield folder / generation


def _folders():
    chosen = os.environ.get("NUMBA_CACHE_DIR") or config.CACHE_DIR  # Numba may not have looked yet
    if chosen:
        yield Path(chosen)
        if _can_be_written(Path(chosen)):
            return
    yield SOURCES / "__pycache__"
    with contextlib.suppress(RuntimeError):  # there is no home
        yield _users_caches() / "pullback"
    private = _private_folder()
    if private is not None and _is_private(private):
        yield private


def _can_be_written(folder):
    """Whether files can be put into `folder`, which may have to be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def _users_caches():
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _private_folder():
    """This user's among the temporary files; None if there is no place for those."""
    try:
        return Path(tempfile.gettempdir()) / f"pullback-{os.getuid() if hasattr(os, 'getuid') else 'kernels'}"
    except OSError:
        return None


def _is_private(folder):
    """Whether nobody else has made `folder` or can write to it: what is read from it will be run."""
    try:
        state = folder.lstat()
    except OSError:  # there is nothing that could be read
        return True
    return not hasattr(os, "getuid") or (state.st_uid == os.getuid() and not state.st_mode & 0o022)


def find(name):
    """The folder that holds the file `name`, or None."""
    return next((folder for folder in _generations() if (folder / name).is_file()), None)


def read(path):
    """The contents of a file that `write` has written; a damaged one is removed."""
    contents = path.read_bytes()
    checksum, data = contents[:32], contents[32:]
    if hashlib.sha256(data).digest() != checksum:
        path.unlink()
        raise OSError(f"{path} is damaged")
    return data


def write(name, data):
    """Puts a file into the first folder that takes it; False if none does."""
    for folder in _generations():
        with contextlib.suppress(OSError):
            if not folder.is_dir():
                _make(folder)
            _replace(folder / name, hashlib.sha256(data).digest() + data)
            return True
    warn_once()
    return False


def _make(folder):
    if folder.parent == _private_folder():
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder.parent):
            raise PermissionError(f"{folder.parent} belongs to somebody else")
    folder.mkdir(parents=True, exist_ok=True)
    _forget_old(folder.parent)


def _replace(path, contents):
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(contents)
        os.chmod(temporary, 0o644)  # a machine's other users may read what its administrator has compiled
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _forget_old(folder):
    """Removes what earlier states of the sources have left, except for the last few."""
    generations = sorted(folder.glob("pullback-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in generations[GENERATIONS:]:
        shutil.rmtree(old, ignore_errors=True)


@functools.cache
def warn_once():
    _logger.warning(
        "pullback found no directory to keep its compiled kernels in, so every process compiles them again; "
        "set NUMBA_CACHE_DIR to one that can be written to."
    )


def _note_of(task):
    return f"{hash_of(task, *map(str, cpu_target.target_context.codegen().magic_tuple()))}.task"


def note(task):
    """Notes on disk that `task` needs no other files than this process has used; False if nothing can be kept."""
    return write(_note_of(task), "\n".join(["needs:", *sorted(_used)]).encode())


def is_noted(task):
    """Whether all the files that `task` needs are there."""
    folder = find(_note_of(task))
    try:
        return folder is not None and all(map(find, read(folder / _note_of(task)).decode().split("\n")[1:]))
    except OSError:
        return False
