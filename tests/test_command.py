"""The `pullback` command, with and without the packages of the experiments."""

import subprocess
import sys

import pytest

import pullback
from pullback import command, warming

WITHOUT_THE_EXTRA = """
import sys
for name in ("rich", "sklearn", "tyro", "lightning_fabric", "joblib"):
    sys.modules[name] = None
from pullback.command import main
main({arguments!r})
"""


def run_without_the_extra(*arguments):
    program = WITHOUT_THE_EXTRA.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)


def test_without_the_extra_one_line_says_what_to_install():
    finished = run_without_the_extra("demo")
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert 'pip install "pullback[experiments]"' in line
    assert finished.stdout == ""


def test_warming_does_without_the_extra():
    finished = run_without_the_extra("warm", "Binry")
    assert finished.returncode == 2
    assert "did you mean Binary?" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_the_version_does_without_the_extra():
    finished = run_without_the_extra("--version")
    assert (finished.returncode, finished.stdout) == (0, f"pullback {pullback.__version__}\n")


def test_another_missing_package_is_not_blamed_on_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pullback.experiments", None)
    with pytest.raises(ModuleNotFoundError):
        command.main(["demo"])


def test_the_structures_and_processes_are_handed_on(monkeypatch):
    given = []
    monkeypatch.setattr(warming, "warm", lambda *names, **options: given.append((names, options)))
    command.main(["warm", "Subset", "binary", "--processes", "3"])
    command.main(["warm"])
    assert given == [(("Subset", "binary"), {"processes": 3}), ((), {"processes": None})]


def test_the_experiments_are_found_where_they_are_installed(capsys):
    command.main(["--help"])
    shown = capsys.readouterr().out
    assert "demo" in shown and "warm" in shown


SLOW_TO_IMPORT = """
import builtins, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from pullback.command import main

import_module = builtins.__import__
def interrupted(name, *others):
    if {name!r} in name:
        os.kill(os.getpid(), signal.SIGINT)
    return import_module(name, *others)

builtins.__import__ = interrupted
main({arguments!r})
"""


@pytest.mark.parametrize(("arguments", "name"), [(["run", "clusters"], "tyro"), (["warm", "Binary"], "torch")])
def test_ctrl_c_while_packages_are_imported_is_one_line(arguments, name):
    program = SLOW_TO_IMPORT.format(arguments=arguments, name=name)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (finished.returncode, finished.stderr.split()) == (130, ["pullback:", "stopped."])
