"""How kernels are compiled and kept: linked into wholes, found again on disk, compiled again when a file is bad."""

import importlib
import inspect
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

from pullback.kernels import _numba
from pullback.kernels.tools import borrowing, caching, compilation, inner, kernel, summing

FOLDERS = sorted(path.parent.name for path in caching.SOURCES.glob("*/__init__.py") if path.parent.name != "tools")


def square(x):
    return x * x


def total(values):
    result = 0.0
    for i in range(values.shape[0]):
        result += linked_square(values[i])
    return result


def norms(rows, out, lo, hi):
    for b in range(lo, hi):
        out[b] = linked_total(rows[b])
    return -1


linked_square, linked_total = inner(square), summing(total)

ROWS = np.arange(12.0).reshape(3, 4)
EXPECTED = (ROWS**2).sum(1)


def run(function):
    """What a kernel answers for `ROWS`, and whether its code came from disk."""
    out = np.empty(3)
    assert function(ROWS, out, 0, 3) == -1
    compiled = getattr(function, "whole", function)
    return out, sum(compiled._cache_hits.values()) > 0


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty directory that kernels are kept in."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def only_file(directory):
    (path,) = directory.rglob("*norms*.kernel")
    return path


# ---- linking


@pytest.mark.parametrize("links", [True, False], ids=["linked", "plain Numba"])
def test_a_kernel_gives_the_same_answer_linked_and_by_plain_numba(directory, monkeypatch, links):
    monkeypatch.setattr(compilation, "LINKS", links)
    answer, _ = run(kernel(norms))
    np.testing.assert_array_equal(answer, EXPECTED)
    again, from_disk = run(kernel(norms))
    np.testing.assert_array_equal(again, EXPECTED)
    assert from_disk


def test_this_numba_is_one_that_links():
    assert compilation._as_expected()


@pytest.mark.parametrize("version", ["0.60.0", "0.99.1", "1.0.0"])
def test_another_numba_compiles_by_itself(monkeypatch, version):
    monkeypatch.setattr(numba, "__version__", version)
    assert not compilation._as_expected()


def test_a_numba_without_the_parts_we_lean_on_compiles_by_itself(monkeypatch):
    monkeypatch.delattr(compilation.Compiler.__mro__[1], "compile_extra")
    assert not compilation._as_expected()


def test_an_inner_function_may_be_called_from_python_before_and_after_a_kernel_links_it(directory):
    for _ in range(2):
        assert linked_total(ROWS[1]) == EXPECTED[1]
        run(kernel(norms))
    assert linked_square(3.0) == linked_square.py_func(3.0) == 9.0
    assert linked_square(3) == 9
    assert not list(directory.rglob("*total*")), "only kernels are kept on disk"


def test_an_inner_function_refuses_what_it_cannot_compile():
    with pytest.raises(numba.core.errors.TypingError):
        linked_square("a word")
    with pytest.raises(TypeError):
        linked_square()


def test_a_borrowing_function_returns_no_array(directory):
    def same(row):
        return row

    def total_of_same(rows, out, lo, hi):
        out[0] = linked_total(linked_same(rows[0]))
        return -1

    linked_same = borrowing(same)
    with pytest.raises(TypeError, match="same returns an array to or from"):
        kernel(total_of_same)(ROWS, np.empty(3), 0, 3)


def test_a_borrowing_function_takes_no_array_from_another(directory):
    def same(row):
        return row, len(row)

    def total_of_same(rows):
        return linked_total(linked_same(rows[0])[0])

    def totals(rows, out, lo, hi):
        out[0] = linked_total_of_same(rows)
        return -1

    linked_same, linked_total_of_same = inner(same), borrowing(total_of_same)
    with pytest.raises(TypeError, match="same returns an array to or from"):
        kernel(totals)(ROWS, np.empty(3), 0, 3)


def test_a_borrowing_function_can_be_called_from_python():
    assert borrowing(total)(ROWS[1]) == EXPECTED[1]


def compiled_functions():
    """Every function of the library that Numba compiles, under its name."""
    for folder in FOLDERS:
        importlib.import_module(f"pullback.kernels.{folder}")
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith("pullback.kernels.")]
    return {
        f"{name}.{key}": value
        for name, module in modules
        for key, value in vars(module).items()
        if isinstance(value, compilation._Function)
    }


def test_what_structures_call_is_a_kernel():
    """Otherwise it would not be kept on disk, and every process would compile it again."""
    rooms = [path for path in caching.SOURCES.parent.rglob("*.py") if caching.SOURCES not in path.parents]
    text = "\n".join(path.read_text("utf-8") for path in rooms)
    folders = {folder: importlib.import_module(f"pullback.kernels.{folder}") for folder in FOLDERS}
    called = {getattr(folders[folder], name) for folder, name in re.findall(r"\bkernels\.(\w+)\.(\w+)", text)}
    entries = [function for function in called if isinstance(function, compilation._Function)]
    assert len(entries) > 15
    assert [function for function in entries if not function.keep] == []


def test_what_takes_a_range_of_instances_is_a_kernel():
    ranges = {
        name: function
        for name, function in compiled_functions().items()
        if list(inspect.signature(function.py_func).parameters)[-2:] == ["lo", "hi"]
        and name.startswith(f"{function.py_func.__module__}.")  # others are made by a factory, for a kernel to call
    }
    assert len(ranges) > 25
    assert [name for name, function in ranges.items() if not function.keep] == []


def test_what_functions_in_plain_python_call_is_a_kernel():
    for name, module in list(sys.modules.items()):
        if name.startswith("pullback.kernels.") and ".tools" not in name:
            for plain in filter(inspect.isfunction, vars(module).values()):
                called = [plain.__globals__.get(used) for used in plain.__code__.co_names]
                assert all(f.keep for f in called if isinstance(f, compilation._Function)), plain


# ---- on disk


def test_a_kernel_is_found_again_on_disk(directory):
    assert not run(kernel(norms))[1]
    assert run(kernel(norms))[1]
    only_file(directory)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:20],
        lambda data: b"garbage" * 100,
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: caching.hashlib.sha256(pickle.dumps("nonsense")).digest() + pickle.dumps("nonsense"),
    ],
    ids=["empty", "half of it", "a few bytes", "garbage", "one bit", "one bit of the checksum", "something else"],
)
def test_a_damaged_file_is_replaced(directory, damage):
    run(kernel(norms))
    path = only_file(directory)
    intact = path.read_bytes()
    path.write_bytes(damage(intact))
    answer, from_disk = run(kernel(norms))
    np.testing.assert_array_equal(answer, EXPECTED)
    assert not from_disk
    assert len(path.read_bytes()) > len(intact) // 2
    assert run(kernel(norms))[1], "the file is good again"


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the kernels' sources, whose state decides what is found on disk."""
    copy = tmp_path / "sources"
    shutil.copytree(caching.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(caching, "SOURCES", copy)
    caching._generation.cache_clear()
    yield copy
    caching._generation.cache_clear()


def test_a_change_in_any_source_makes_all_files_out_of_date(directory, sources):
    run(kernel(norms))
    assert run(kernel(norms))[1]
    (sources / "tools" / "vector.py").write_text("# another exponential")
    caching._generation.cache_clear()
    assert not run(kernel(norms))[1]
    assert run(kernel(norms))[1]


def test_files_of_older_sources_are_removed_in_time(directory, sources, monkeypatch):
    monkeypatch.setattr(caching, "GENERATIONS", 2)
    for state in range(4):
        (sources / "state.py").write_text(f"# {state}")
        caching._generation.cache_clear()
        caching.write("file", b"")
    assert len(list(directory.iterdir())) == 2


@pytest.fixture
def nowhere(tmp_path, sources, monkeypatch):
    """No directory can be made where kernels might be kept: there are files in all places."""
    obstacle = tmp_path / "obstacle"
    obstacle.write_text("")
    (sources / "__pycache__").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(obstacle))
    monkeypatch.setenv("XDG_CACHE_HOME", str(obstacle))
    monkeypatch.setattr(tempfile, "tempdir", str(obstacle))
    caching.warn_once.cache_clear()
    yield
    caching.warn_once.cache_clear()


def test_without_any_directory_kernels_work_and_one_warning_is_given(nowhere, caplog):
    for _ in range(2):
        answer, from_disk = run(kernel(norms))
        np.testing.assert_array_equal(answer, EXPECTED)
        assert not from_disk
    (record,) = caplog.records
    assert record.name == "pullback" and "NUMBA_CACHE_DIR" in record.message


def test_the_next_directory_is_taken_where_one_cannot_be_written(nowhere, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    run(kernel(norms))
    assert only_file(tmp_path / "caches" / "pullback")
    assert run(kernel(norms))[1]
    assert not caplog.records


def test_a_directory_that_was_chosen_is_the_only_one(directory, sources):
    assert list(caching._folders()) == [directory]


def test_temporary_files_are_the_last_resort_and_only_our_own_are_trusted(nowhere, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(kernel(norms))
    (private,) = (path for path in tmp_path.glob("pullback-*") if path.is_dir())
    assert run(kernel(norms))[1]
    private.chmod(0o777)
    assert not run(kernel(norms))[1]


def test_a_home_that_cannot_be_found_is_no_error(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert list(caching._folders())


def test_what_one_user_has_compiled_is_read_where_another_cannot_write(directory, monkeypatch):
    run(kernel(norms))

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(caching, "_replace", refuse)
    assert run(kernel(norms))[1]


def test_a_file_that_many_write_at_once_is_never_seen_half_written(directory):
    data = [bytes([i]) * 200_000 for i in range(4)]
    caching.write("file", data[0])
    writers = [threading.Thread(target=lambda d=d: [caching.write("file", d) for _ in range(20)]) for d in data]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert caching.read(caching.find("file") / "file") in data
    assert [path.name for path in caching.find("file").iterdir()] == ["file"]


# ---- in processes of their own

PROGRAM = """
import gc, sys, torch, pullback as pb
from pullback.kernels import _collector, _numba
_numba.PATIENCE = float(sys.argv[1])
resume, enabled = _collector.resume_collector, []
_collector.resume_collector = lambda: (enabled.append(gc.isenabled()), resume())
best = pb.Subset(2).argmax(torch.tensor([0.0, 3.0, 1.0, 2.0]))
print(best.tolist() == [0, 1, 0, 1], len(enabled), any(enabled), gc.isenabled())
"""


def start(directory, patience, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(patience)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(directory), **environment},
    )


def test_processes_that_compile_at_once_share_their_directory_say_so_and_pause_the_collector(directory):
    both = [start(directory, patience=0) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=300)
        right, pauses, *collector = out.split()
        assert right == "True", err
        assert int(pauses) > 1 and collector == ["False", "True"]
        (line,) = err.splitlines()
        assert "compiling its kernels for subset" in line and "once" in line
    later = start(directory, patience=0)
    out, err = later.communicate(timeout=300)
    assert out.split()[:2] == ["True", "1"], "the collector paused for loading alone: nothing was compiled"
    assert err == ""


# ---- the message


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have passed, for the announcement."""
    now = [0.0]
    monkeypatch.setattr(_numba.time, "monotonic", lambda: now[0])
    return now


def test_a_long_compilation_is_announced_once_for_each_folder(clock, caplog):
    news = _numba.Announcement()
    for name in ("trees.mixture.sparsemap", "trees.arborescence.argmax", "tree_cuts.projection.project"):
        news.begin(name)
        for inner_name in "abc":
            clock[0] += 0.8
            news.begin(f"active_set.core.{inner_name}")
            news.end()
        news.end()
    assert ["trees" in caplog.messages[0], "tree cuts" in caplog.messages[1]] == [True, True]
    assert len(caplog.messages) == 2
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_short_compilation_is_not_announced(clock, caplog):
    news = _numba.Announcement()
    for _ in range(10):
        clock[0] += 0.8
        news.begin("subset.projection.argmax")
        clock[0] += 0.8
        news.end()
    assert not caplog.messages


def test_the_message_can_be_silenced(clock, caplog):
    logger = logging.getLogger("pullback")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        news = _numba.Announcement()
        news.begin("trees.argmax")
        clock[0] += 5
        news.end()
    finally:
        logger.setLevel(before)
    assert not caplog.messages
