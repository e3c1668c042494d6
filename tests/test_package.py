"""What a user meets first: the import, the public names, the version and the README's example."""

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import pullback

ROOT = Path(__file__).parents[1]
PUBLIC = [name for name in getattr(pullback, "__all__", ()) if not name.startswith("__")]


SOURCE = Path(pullback.__file__).parent
WITH_EXAMPLES = [
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


def run(program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=cwd, timeout=300)


def test_importing_the_library_leaves_compilers_and_the_experiments_unloaded(tmp_path):
    heavy = ("numba", "llvmlite", "scipy", "sklearn", "rich", "torch._dynamo", "pullback.experiments")
    finished = run(
        f"import sys, torch; before = set(sys.modules); import pullback; "
        f"print(*(name for name in {heavy!r} if name in set(sys.modules) - before))",
        tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == []


def test_the_front_door_lists_its_names_once():
    assert PUBLIC
    assert len(set(pullback.__all__)) == len(pullback.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_exists_and_has_a_docstring_of_its_own(name):
    thing = getattr(pullback, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        described = thing.__doc__ or ""
        assert described.strip()
        assert not described.startswith(f"{name}("), "this is the signature a dataclass writes for itself"


def test_the_version_is_that_of_the_project():
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert pullback.__version__ == declared[1] == metadata.version("pullback")


def test_the_first_example_of_the_readme_works_when_pasted(tmp_path):
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert examples
    finished = run(examples[0], tmp_path)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_docstrings_are_true(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "py.typed").is_file()
