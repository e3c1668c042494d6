"""The decorators of kernels: `kernel`, `inner`, `borrowing`, `inlined` and `summing`.

`kernel` marks what Python calls: it is compiled as a whole, with everything it calls, and kept on disk.  `inner` marks
what only kernels call; `summing` is one whose sums may be reordered, which is what SIMD needs.  `borrowing` is an inner
function that makes no arrays, and neither returns one nor calls a function that does: it does not count references to
those it is given.  Numba counts them with every tuple of arrays, by atomic operations that take as long as the work of
a short function.  `inlined` is a borrowing function that becomes part of its caller even where it is long.  None of
them ever assumes that infinities or NaN are absent: a forbidden part is a score of −∞.

Numba by itself optimizes and translates every function once per level of calls, each time with all its callees linked
in, and throws most of it away.  Here a function that a kernel calls is only linked: it is optimized inside each kernel
that uses it, once.  That halves the time of a first call, and no answer changes.  Called from Python, a test or a
debugger, any of these functions is compiled as a whole at that moment.

This leans on parts of Numba that are not its public interface.  With versions for which it was not tried, or with
PULLBACK_PLAIN_NUMBA=1, plain `njit` does the same more slowly.
"""

import functools
import os

import numba
from numba import njit
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.registry import CPUDispatcher
from numba.core.targetconfig import ConfigStack

from pullback.kernels.tools.caching import keep_on_disk

_COUNTS = "_nrt"  # Numba's option to count references; one that is not set would be the caller's
TRIED = ((0, 61), (0, 68))  # the first and the last version of Numba that links functions as we expect


class _Flags(Flags):
    """Numba's options for one function, looked up more quickly: Numba compares them thousands of times.

    A copy is what functions met inside this one see: to them it makes no difference how this one is compiled, so
    that Numba's own functions are compiled once for all of ours.
    """

    def __init__(self, copy_from=None):
        super().__init__(copy_from)
        self._asked, self._answer = None, None

    def copy(self):
        seen = super().copy()
        for name in ("no_compile", "no_cpython_wrapper", "no_cfunc_wrapper"):
            seen.discard(name)
        return seen

    def values(self):
        if self._asked != self._values:
            self._asked, self._answer = dict(self._values), super().values()
        return self._answer

    def __eq__(self, other):
        return self is other or super().__eq__(other)

    def __hash__(self):
        return _HASH


_HASH = hash(Flags())  # it does not depend on the values


class _LinkedLibrary(JITCodeLibrary):
    """The code of a function that only kernels call: never optimized nor translated by itself."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True


class _LinkedCompiler(Compiler):
    """Compiles a function as far as its callers need: without native code, without wrappers for Python and C."""

    def __init__(self, typingctx, targetctx, library, args, return_type, flags, locals):
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    def compile_extra(self, func):
        self.state.library = _LinkedLibrary(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class _Whole(CPUDispatcher):
    """A function compiled as a whole; the dispatcher that Python calls, `called`, learns where the code is."""

    called = None

    def __init__(self, *args, **kws):
        super().__init__(*args, **kws)
        self._compiler._customize_flags = self._without_c

    @staticmethod
    def _without_c(flags):
        """The options without the wrapper by which C would call the function."""
        flags = _Flags(flags)
        flags.no_cfunc_wrapper = True
        return flags

    def add_overload(self, cres):
        super().add_overload(cres)
        self.called._insert([arg._code for arg in cres.signature.args], cres.entry_point, cres.objectmode)


class _Function(CPUDispatcher):
    """A function that is linked into the kernels that call it, and compiled as a whole when Python calls it."""

    keep = False

    def __init__(self, *args, **kws):
        super().__init__(*args, **kws)
        self._compiler._customize_flags = _Flags

    def get_call_template(self, args, kws):
        """What Numba asks when it compiles a caller, whose flags are on top of the stack."""
        template = super().get_call_template(args, kws)
        caller_counts = getattr(ConfigStack().top_or_none(), "nrt", True)
        if not (caller_counts and self.targetoptions[_COUNTS]):
            for cres in self.overloads.values():
                if self.targetctx.data_model_manager[cres.signature.return_type].contains_nrt_meminfo():
                    raise TypeError(f"{self.py_func.__name__} returns an array to or from a `borrowing` function.")
        return template

    def add_overload(self, cres):
        code = object()  # what kernels find the function by; there is nothing that Python could call
        self.targetctx.insert_user_function(code, cres.fndesc, [cres.library])
        self.overloads[tuple(cres.signature.args)] = cres._replace(entry_point=code)

    @functools.cached_property
    def whole(self):
        whole = _Whole(self.py_func, self.locals, {**self.targetoptions, _COUNTS: True})
        whole.called = self
        if self.keep:
            keep_on_disk(whole)
        return whole

    def _compile_for_args(self, *args, **kws):
        """What Numba asks when Python calls with types it has not seen."""
        return self.whole._compile_for_args(*args, **kws)


def _as_expected():
    """Whether this is a Numba that the classes above were written for."""
    version = tuple(int(part) for part in numba.__version__.split(".")[:2])
    parts = [
        (JITCodeLibrary, ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals")),
        (Compiler, ("compile_extra",)),
        (ConfigStack, ("top_or_none",)),
        (Flags, ("no_compile", "no_cpython_wrapper", "no_cfunc_wrapper")),
        (CPUDispatcher, ("add_overload", "get_call_template", "_insert", "_compile_for_args")),
    ]
    return TRIED[0] <= version <= TRIED[1] and all(hasattr(cls, name) for cls, names in parts for name in names)


LINKS = _as_expected() and os.environ.get("PULLBACK_PLAIN_NUMBA", "0") == "0"


def _decorator(keep, fastmath, *, counts=True, **more):
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath, **more}

    def decorate(function):
        if LINKS and not config.DISABLE_JIT:
            linked = _Function(
                function, {}, {"nopython": True, **options, _COUNTS: counts}, pipeline_class=_LinkedCompiler
            )
            linked.keep = keep
            return linked
        plain = njit(**options)(function)
        return keep_on_disk(plain) if keep and isinstance(plain, CPUDispatcher) else plain

    return decorate


kernel = _decorator(keep=True, fastmath={"contract"})
inner = _decorator(keep=False, fastmath={"contract"})
borrowing = _decorator(keep=False, fastmath={"contract"}, counts=False)
inlined = _decorator(keep=False, fastmath={"contract"}, counts=False, forceinline=True)
summing = _decorator(keep=False, fastmath={"reassoc", "contract", "nsz"})


def compiled(closure, name, home=None, decorate=inner):
    """A closure, compiled under a name of its own, as if it stood in the module `home`.

    Functions are linked, and kernels kept on disk, by module and name.  Closures of one text share both, and one could
    be taken for another.
    """
    closure.__qualname__ = closure.__name__ = name
    closure.__module__ = home or closure.__module__
    return decorate(closure)
