"""The `pullback` command: `warm` and `--version` by itself, the experiments where their packages are installed.

What takes long to import is imported inside `main`, where Ctrl-C ends it in a line.
"""

import argparse
import sys
from collections.abc import Sequence

from pullback import __version__

EXTRA = {"rich", "sklearn", "tyro", "lightning_fabric", "joblib"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `pullback` command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["--version"]:
            print(f"pullback {__version__}")
        elif given[:1] == ["warm"]:
            _warm(given[1:])
        else:
            _experiments(given)
    except KeyboardInterrupt:  # in what is not trained, or before training began
        print("\npullback: stopped.", file=sys.stderr)
        sys.exit(130)


def _warm(given: Sequence[str]) -> None:
    from pullback.warming import NAMES, warm

    parser = argparse.ArgumentParser(prog="pullback warm", description="Compile the kernels ahead of time.")
    parser.add_argument("structures", nargs="*", metavar="STRUCTURE", help=f"{', '.join(NAMES)}; default: all")
    parser.add_argument("--processes", type=int, metavar="N", help="default: one for each processor")
    options = parser.parse_args(given)
    try:
        warm(*options.structures, processes=options.processes)
    except ValueError as error:
        parser.error(str(error))


def _experiments(given: Sequence[str]) -> None:
    try:
        from pullback.experiments import cli
    except ModuleNotFoundError as missing:
        if str(missing.name).split(".")[0] not in EXTRA:
            raise
        print(
            f'pullback: {missing.name} is not installed; pip install "pullback[experiments]" for the experiments.  '
            "`pullback warm` and `pullback --version` do without.",
            file=sys.stderr,
        )
        sys.exit(2)
    cli.main(given)
