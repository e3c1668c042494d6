"""Run the benchmarks: every case, or those whose name begins with one of the arguments."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import warnings
from pathlib import Path

from rich.console import Console

from . import _report
from ._harness import CASES, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, or the beginnings of their names; default: all")
    parser.add_argument(
        "--data", metavar="FOLDER", help="a treebank, *-ud-train.conllu and *-ud-dev.conllu, for trees.parser"
    )
    parser.add_argument("--base", metavar="SRC", help="the `src` of an older checkout, for start_up.against_base")
    parser.add_argument("--cpu", action="store_true", help="measure processor time, on a busy machine; not for threads")
    parser.add_argument("--list", action="store_true", help="name the cases and leave")
    options = parser.parse_args()
    if options.data:
        os.environ["PULLBACK_BENCH_DATA"] = options.data
    if options.cpu:
        os.environ["PULLBACK_BENCH_CPU"] = "1"
    if options.base:
        os.environ["PULLBACK_BENCH_BASE"] = options.base

    _register_cases()
    console = Console(width=None if sys.stdout.isatty() else 180)
    if options.list:
        for name, function in sorted(CASES.items()):
            console.print(f"{name:32} {(function.__doc__ or '').strip().splitlines()[0]}")
        return 0
    unknown = [name for name in options.names if not any(known.startswith(name) for known in CASES)]
    if unknown:
        parser.error(f"no case is called {', '.join(unknown)}; --list names them")

    warnings.simplefilter("ignore")  # the peers' deprecations are not our subject
    chosen = [known for known in sorted(CASES) if not options.names or known.startswith(tuple(options.names))]
    figures = []
    for figure in run(chosen):
        figures.append(figure)
        console.print(_report.line(figure), highlight=False, soft_wrap=True)
    console.print(_report.table(figures))
    console.print(f"Results: {_report.save(figures)}")
    return 1 if any(figure.failed for figure in figures) else 0


def _register_cases() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__package__}.{module.name}")


if __name__ == "__main__":
    sys.exit(main())
