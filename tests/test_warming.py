"""Compiling ahead of time: names, processes, progress, and what is left for a second time."""

import builtins
import inspect
import sys

import pytest
import torch

import pullback as pb
from pullback import warming
from pullback.kernels.tools import caching


@pytest.fixture
def one_task(monkeypatch, tmp_path):
    """A single small workload, and an empty directory to keep its kernels in."""
    load = warming.Workload("Subset", lambda: pb.Subset(2), (5,), ("argmax",))
    monkeypatch.setattr(warming, "TASKS", {"Subset, argmax, float32": (load, "float32")})
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_warming_compiles_and_the_second_time_starts_no_process(one_task, monkeypatch, capsys):
    pb.warm("subset", processes=2)
    (path,) = one_task.rglob("subset.projection.argmax*.kernel")
    monkeypatch.setattr(warming.subprocess, "Popen", None)
    pb.warm("subset")
    assert "nothing to compile" in capsys.readouterr().err
    path.unlink()
    with pytest.raises(TypeError):
        pb.warm("subset", progress=False)


def test_the_processes_see_what_this_process_would_import(one_task, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, "a place with 'quotes'"])
    assert repr(sys.path) in warming._CHILD.format(path=sys.path)


def test_a_workload_that_fails_says_how(one_task, monkeypatch):
    monkeypatch.setattr(warming, "_CHILD", "raise SystemExit('no such thing')")
    with pytest.raises(RuntimeError, match=r"Subset, argmax, float32 failed.\n.*no such thing"):
        pb.warm("Subset", progress=False)


def test_a_warning_says_if_nothing_could_be_kept(one_task, monkeypatch, caplog):
    monkeypatch.setattr(warming, "_run_all", lambda *_: None)
    caching.warn_once.cache_clear()
    pb.warm("Subset", progress=False)
    caching.warn_once.cache_clear()
    assert "NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.parametrize("name", ["DependencyTree", "dependencytree", "DEPENDENCYTREE"])
def test_structures_are_named_in_upper_or_lower_case(name):
    assert warming._named(name) == "DependencyTree"


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"'dependncy'; did you mean DependencyTree\?"):
        pb.warm("dependncy")
    with pytest.raises(ValueError, match="'qqq'; expected one of Alignment, Binary, Categorical"):
        pb.warm("qqq")
    with pytest.raises(TypeError, match="expected its name, such as 'DependencyTree'"):
        pb.warm(pb.DependencyTree)
    with pytest.raises(ValueError, match="processes is 0; expected at least 1"):
        pb.warm("Subset", processes=0)


def test_every_structure_of_the_library_can_be_warmed():
    classes = [thing for thing in (getattr(pb, name) for name in pb.__all__) if isinstance(thing, type)]
    structures = {cls for cls in classes if issubclass(cls, pb.Structure) and not inspect.isabstract(cls)}
    composed = {pb.Independent, pb.Product}  # they have no kernels of their own
    assert {cls.__name__ for cls in structures - composed} == set(warming.NAMES)


def test_tasks_have_names_of_their_own():
    assert len(warming.TASKS) == len(warming.WORKLOADS) * len(warming.DTYPES)


def test_every_call_a_structure_knows_is_made():
    for name in warming.NAMES:
        loads = [load for load in warming.WORKLOADS if load.name == name]
        made = {call for load in loads for call in load.calls}
        structure = loads[0].make()
        explained = set() if structure.offers(pb.LogLinear) else set(vars(pb.LogLinear))  # methods that say why not
        assert {call for call in warming.CALLS if hasattr(structure, call)} - explained <= made


def test_progress_is_told_in_lines_without_rich(monkeypatch, capsys):
    real = builtins.__import__

    def without_rich(name, *rest):
        if name.startswith("rich"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with warming._shown(2) as tell:
        tell("Subset, argmax, float32", 1.2)
        tell("Subset, argmax, float64", 3.4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["1/2  Subset, argmax, float32  1 s", "2/2  Subset, argmax, float64  3 s"]


def test_progress_is_a_bar_with_rich(capsys):
    with warming._shown(2) as tell:
        tell("Subset, argmax, float32", 1.2)
        tell("Subset, argmax, float64", 3.4)
    assert "2/2" in capsys.readouterr().err


@pytest.mark.parametrize("load", warming.WORKLOADS, ids=lambda load: f"{load.name} {load.kind} {load.calls[0]}")
def test_a_workload_runs_forward_and_backward(load, monkeypatch):
    answers, pulled = {}, {}

    def recorded(name, call):
        def record(structure, scores):
            answers[name] = answer = call(structure, scores)
            if isinstance(answer, torch.Tensor) and answer.requires_grad:
                answer.register_hook(lambda gradient: pulled.update({name: gradient}))
            return answer

        return record

    monkeypatch.setattr(warming, "CALLS", {name: recorded(name, call) for name, call in warming.CALLS.items()})
    load.run(torch.float64)
    assert tuple(answers) == load.calls
    for answer in answers.values():
        assert all(
            torch.isfinite(tensor).all() for tensor in ([answer] if isinstance(answer, torch.Tensor) else answer)
        )
    differentiable = {"sparsemap", "flat", "support", "entmax", "soft_rank", "soft_sort", "sinkhorn"}
    differentiable |= {"log_partition", "marginals", "pair_marginals", "entropy"}
    assert set(pulled) == differentiable & set(load.calls)
    assert all(gradient.abs().sum() > 0 for gradient in pulled.values())
