"""What a user meets first: the import, the public names, the version and the README's example."""

import ast
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
    heavy = (
        "numba",
        "llvmlite",
        "scipy",
        "sklearn",
        "rich",
        "tyro",
        "joblib",
        "lightning_fabric",
        "torch._dynamo",
        "pullback.experiments",
    )
    finished = run(
        f"import sys, torch; before = set(sys.modules); import pullback; "
        f"print(*(name for name in {heavy!r} if name in set(sys.modules) - before))",
        tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == []


def test_using_a_structure_loads_no_other(tmp_path):
    finished = run(
        "import sys, torch, pullback as pb; pb.ste().loss(pb.Categorical(), torch.zeros(2, 3), lambda z: z.sum(-1)); "
        "print(*(name for name in sys.modules if name.startswith('pullback.structures.')))",
        tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    loaded = [name for name in finished.stdout.split() if "._" not in name]
    assert loaded == ["pullback.structures.categorical"]


def test_the_front_door_lists_its_names_once():
    assert PUBLIC
    assert len(set(pullback.__all__)) == len(pullback.__all__)


def test_type_checkers_are_shown_the_names_that_there_are():
    shown = {}
    stub = ast.parse((SOURCE / "__init__.pyi").read_text("utf-8"))
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            shown |= {alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.Assign):
            assert sorted(ast.literal_eval(node.value)) == sorted(pullback.__all__)
    assert shown == {name: f"pullback.{module}" for name, module in pullback._HOMES.items()}


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'spigott'"):
        _ = pullback.spigott
    assert "spigot" in dir(pullback)


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
