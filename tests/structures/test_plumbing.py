"""How kernels behave as PyTorch operators: compile, vmap, threads, forks, devices, memory."""

import gc
import os
import subprocess
import sys
import threading
import tracemalloc
import warnings
from pathlib import Path

import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import pullback as pb
from families import ALONE, BARE, LOG_LINEAR, WHOLE, is_alike_for_all, one_of_each_kind
from pullback.operators import _kernel_operator, _search, _threads
from pullback.operators._kernel_operator import EXAMPLES
from pullback.operators._register import complete_registration

COMPILED = one_of_each_kind(WHOLE) + one_of_each_kind(BARE[::2]) + ALONE
every_structure = pytest.mark.parametrize("case", COMPILED, ids=repr)


def operations(case):
    """Inherited marginals are derivatives of the log-partition, which compilers and transforms do not take."""
    sums = ["log_partition", "marginals", "entropy"] if case in WHOLE else ["log_partition"]
    return ["argmax", "sparsemap", "project"] + sums * (case in LOG_LINEAR)


@every_structure
def test_a_compiled_model_gives_the_eager_result(case):
    torch.compiler.reset()

    def model(scores):
        return [getattr(case.structure, name)(2 * scores) + scores.sum() for name in operations(case)]

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    answers = []
    for function in (model, compiled):
        scores = case.scores().requires_grad_()
        values = function(scores)
        sum(value.square().sum() for value in values).backward()
        answers.append([*values, scores.grad])
    for expected, found in zip(*answers):
        assert_close(found, expected)


@pytest.mark.parametrize(
    ("structure", "event"),
    [(pb.Categorical(), (4,)), (pb.Binary(), (4,)), (pb.Subset(2), (4,)), (pb.Chain(), (3, 2, 2))],
    ids=lambda given: type(given).__name__ if isinstance(given, pb.Structure) else "",
)
def test_compiled_samples_are_the_eager_ones_at_any_size_of_the_batch(structure, event):
    torch.compiler.reset()
    compiled = torch.compile(lambda scores: structure.sample(scores, (3,)), fullgraph=True, backend="aot_eager")
    for batch in (2, 5, 4):
        scores, drawn = torch.randn(batch, *event), []
        for sample in (compiled, lambda scores: structure.sample(scores, (3,))):
            torch.manual_seed(batch)
            drawn.append(sample(scores))
        assert_close(*drawn)


@pytest.mark.parametrize("case", [case for case in COMPILED if is_alike_for_all(case)], ids=repr)
def test_vmap_over_the_batch_gives_the_batched_result(case):
    for name in operations(case):
        operation = getattr(case.structure, name)
        assert_close(torch.func.vmap(operation)(case.scores()), operation(case.scores()))


@pytest.mark.parametrize("case", [case for case in COMPILED if is_alike_for_all(case)], ids=repr)
def test_vmap_over_the_batch_gives_the_gradients_of_the_batch(case):
    for name in operations(case):
        operation, gradients = getattr(case.structure, name), []
        for batched in (torch.func.vmap(operation), operation):
            scores = case.scores().requires_grad_()
            answer = batched(scores)
            if not answer.requires_grad:
                assert name == "argmax"
                continue
            weights = torch.linspace(-1, 1, answer.numel(), dtype=answer.dtype).reshape(answer.shape)
            gradients += torch.autograd.grad((weights * answer).sum(), scores)
        if name != "argmax":
            assert_close(*gradients)


class Watch(TorchDispatchMode):
    """Lists the operators that run."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_the_operators():
    scores = torch.randn(3, 5, requires_grad=True)
    with Watch() as watch:
        pb.Categorical().sparsemap(scores).square().sum().backward()
    assert "pullback.sparsemax.default" in watch.seen and "pullback.sparsemax_backward.default" in watch.seen


def test_tensors_without_data_give_shapes():
    for structure, shape in ((pb.Categorical(), (3, 5)), (pb.DependencyTree(), (3, 6, 6))):
        scores = torch.randn(shape, device="meta")
        assert structure.sparsemap(scores).shape == shape and structure.sparsemap(scores).is_meta


def test_a_profile_lists_the_operators():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        pb.Categorical().sparsemap(torch.randn(3, 5))
    assert "pullback::sparsemax" in {event.key for event in profile.key_averages()}


def test_negated_views_are_read_with_their_sign():
    scores = torch.randn(3, 6, 6)
    assert_close(pb.DependencyTree().argmax(torch._neg_view(scores)), pb.DependencyTree().argmax(-scores))


def test_a_trace_keeps_the_operators():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        traced = torch.jit.trace(pb.Categorical().sparsemap, torch.randn(3, 5))
    scores = torch.randn(3, 5)
    assert "pullback::sparsemax" in str(traced.graph)
    assert_close(traced(scores), pb.Categorical().sparsemap(scores))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def large_work():
    """A call long enough to be spread over threads."""
    scores = torch.randn(64, 5000, generator=torch.Generator().manual_seed(0))
    return lambda: pb.Categorical().sparsemap(scores)


def test_the_answer_does_not_depend_on_the_number_of_threads(two_threads):
    work = large_work()
    both = work()
    torch.set_num_threads(1)
    assert torch.equal(work(), both)


@pytest.mark.parametrize("case", one_of_each_kind(WHOLE), ids=repr)
def test_two_threads_that_share_a_batch_give_the_answer_of_one(case, two_threads, monkeypatch):
    """However little work it is: by itself, so small a batch is left to one thread."""

    def shared(kernel, arguments, *, batch, work):
        return _threads.over_batch(kernel, arguments, batch=batch, work=1e9)

    def answers():
        scores = case.scores().requires_grad_()
        values = [getattr(case.structure, name)(scores) for name in operations(case)]
        sum(value.square().sum() for value in values).backward()
        return [*values, scores.grad]

    alone = answers()
    for module in (_kernel_operator, _search):
        monkeypatch.setattr(module, "over_batch", shared)
    for expected, found in zip(alone, answers()):
        assert torch.equal(found, expected)


@pytest.fixture(params=[_threads._openmp(), None], ids=["OpenMP", "pool"])
def either_kind_of_threads(request, monkeypatch, two_threads):
    monkeypatch.setattr(_threads, "_openmp", lambda: request.param)


def test_work_is_shared_by_two_threads_the_same_each_time(either_kind_of_threads):
    seen, both = set(), threading.Barrier(2)

    def kernel(lo, hi):
        seen.add(threading.get_ident())
        both.wait(timeout=60)  # so that one thread cannot do it all
        return -1

    for _ in range(3):
        assert _threads.over_batch(kernel, (), batch=2, work=1e6) == -1
    assert len(seen) == 2 and threading.get_ident() in seen


def test_the_first_failure_is_reported_and_errors_are_raised_from_any_thread(either_kind_of_threads):
    def fail(lo, hi):
        return next((i for i in range(lo, hi) if i in (3, 5)), -1)

    def break_off(lo, hi):
        if lo > 0:
            raise KeyError(lo)
        return -1

    assert _threads.over_batch(fail, (), batch=8, work=1e7) == 3
    with pytest.raises(KeyError):
        _threads.over_batch(break_off, (), batch=8, work=1e7)


def test_kernels_take_the_threads_that_torch_has_rather_than_more():
    """In a process of its own, where no other test has started any."""
    program = """
import os, torch, pullback as pb
torch.set_num_threads(2)
scores = torch.randn(64, 5000)
scores.add(1)
pb.Categorical().sparsemap(scores[:1])  # what Numba imports has threads of its own
before = os.listdir("/proc/self/task")
pb.Categorical().sparsemap(scores)
assert set(os.listdir("/proc/self/task")) <= set(before) and len(before) > 1, before
"""
    if sys.platform == "linux":
        subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_several_python_threads_may_call_at_once(two_threads):
    work = large_work()
    expected, wrong = work(), []

    def repeat():
        wrong.extend(not torch.equal(work(), expected) for _ in range(10))

    threads = [threading.Thread(target=repeat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == [False] * 40


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_works_after_its_parent_has(two_threads):
    work = large_work()
    expected = work()
    child = os.fork()
    if child == 0:  # compared by NumPy: torch's own threads do not survive a fork
        os._exit(0 if (work().numpy() == expected.numpy()).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_backward_may_run_in_another_thread_than_forward(two_threads):
    scores = torch.randn(64, 5000, requires_grad=True)
    loss = pb.Categorical().sparsemap(scores).square().sum()
    (expected,) = torch.autograd.grad(loss, scores, retain_graph=True)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join(timeout=60)
    assert torch.equal(scores.grad, expected)


class Sums(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return pb.Subset(2).marginals(torch.arange(5.0) + i)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on a machine with one core
def test_data_loader_workers_may_use_kernels(two_threads):
    expected = torch.stack([Sums()[i] for i in range(4)])
    loader = torch.utils.data.DataLoader(Sums(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    (found,) = list(loader)
    assert_close(found, expected)


FLAT = (pb.Categorical(), pb.Subset(2), pb.Binary())
TREES = tuple(pb.DependencyTree(projective=projective) for projective in (False, True))


@pytest.mark.parametrize(("structures", "event"), [(FLAT, (6,)), (TREES, (5, 5))], ids=["flat", "trees"])
def test_inference_allocates_nothing_that_grows_with_calls(structures, event):
    scores = torch.randn(2, *event)

    def once():
        for structure in structures:
            structure.argmax(scores), structure.sparsemap(scores), structure.marginals(scores)

    with torch.inference_mode():
        for _ in range(200):
            once()
        gc.collect()
        tracemalloc.start()
        for _ in range(10_000 // len(structures) // 3):
            once()
        gc.collect()
        kept = tracemalloc.take_snapshot()
        tracemalloc.stop()
    ours = [tracemalloc.Filter(True, f"{Path(pb.__file__).parent}/*"), tracemalloc.Filter(True, "<string>")]
    found = kept.filter_traces(ours).statistics("lineno")  # threads of other tests may still be at work
    assert sum(line.size for line in found) < 50_000, found[:3]


def test_a_derivative_of_too_high_an_order_is_refused():
    scores = torch.randn(1, 3, 3, dtype=torch.float64, requires_grad=True)
    marginals = pb.DependencyTree().marginals(scores)
    (second,) = torch.autograd.grad(marginals[0, 0, 1], scores, create_graph=True)
    with pytest.raises(RuntimeError, match="no derivative of this order"):
        second.sum().backward()


@pytest.mark.parametrize("name", EXAMPLES)
def test_operators_are_registered_as_pytorch_wants_them(name):
    complete_registration()
    torch.library.opcheck(getattr(torch.ops.pullback, name).default, EXAMPLES[name]())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operator_frees_the_arrays_that_its_kernel_makes(name):
    operator, example = getattr(torch.ops.pullback, name).default, EXAMPLES[name]()
    operator(*example)
    counted = _nrt_python.memsys_stats_enabled()
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats()
        operator(*example)
        after = rtsys.get_allocation_stats()
    finally:
        if not counted:
            _nrt_python.memsys_disable_stats()
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free


def test_every_operator_has_an_example():
    names = {
        name.split("::")[1].split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("pullback::")
    }
    assert names == set(EXAMPLES)
