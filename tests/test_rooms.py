"""The drawing of the rooms, held by reading the import statements.

command ─► experiments ─► instruments ─► warming ─► estimators ─► descents ─► regularizers ─► structures ─► operators ─►
kernels
                                                    estimators ─► distributions ─► structures

`warming` and `command` are rooms of one file.
"""

import ast
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pullback"
ROOMS = (  # each sees those before it
    "kernels",
    "operators",
    "structures",
    "distributions",
    "regularizers",
    "descents",
    "estimators",
    "warming",
    "instruments",
    "experiments",
    "command",
)
USERS = ("experiments", "command")  # they use the library as a reader would
NEVER_IN_KERNELS = {"torch"}

# Otherwise members do not import each other.
WORK_TOGETHER = (
    {"estimators.surrogate", "estimators.spigot", "estimators.supervised"},
    {"estimators.spigot", "estimators.identity"},
    {"estimators.sample", "estimators.relaxation"},
    {"estimators.noise", "estimators.relaxation", "estimators.perturbed", "estimators.perturbed_maximum"},
    {"estimators.noise", "estimators.perturbed", "estimators.surrogate", "estimators.blackbox"},
    {"operators.trees", "operators.tree_sparsemap", "operators.labelled_trees"},
)
LISTS = ("estimators.catalog", "instruments.draw")  # imports whatever it lists


def name_of(path: Path) -> str:
    """kernels.simplex for kernels/simplex.py, kernels for kernels/__init__.py, nothing for the front door."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
MODULES[""] = SOURCE / "__init__.pyi"  # the front door imports a name when it is used, and lists all of them here


def imports_of(source: str, module: str, is_package: bool) -> set[str]:
    """Full names of everything `module` imports, at its top or inside a function."""
    package = ["pullback", *filter(None, module.split("."))]
    package = package if is_package else package[:-1]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{origin}.{alias.name}" for alias in node.names}
    return found


def imports_within(name: str) -> set[str]:
    """Modules of the package that the module `name` imports; the front door is the empty name."""
    path = MODULES[name]
    inside = set()
    for full in imports_of(path.read_text(encoding="utf-8"), name, path.stem == "__init__"):
        if full.split(".")[0] == "pullback":
            inner = full.split(".")[1:]
            while ".".join(inner) not in MODULES:  # the last part was a name in the module, not a module
                inner.pop()
            inside.add(".".join(inner))
    return inside


def room(name: str) -> str:
    return name.split(".")[0]


def is_member(name: str) -> bool:
    """Members stand in a room under their own name; interfaces begin with an underscore, a room has no dot."""
    return "." in name and not name.rsplit(".", 1)[1].startswith("_")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.nn", {"torch.nn"}),
        ("from pullback.kernels import simplex", {"pullback.kernels.simplex"}),
        ("def f():\n    from pullback import spigot", {"pullback.spigot"}),
        ("from . import subset", {"pullback.structures.subset"}),
        ("from ..kernels.subset import project", {"pullback.kernels.subset.project"}),
    ],
)
def test_every_form_of_import_is_read(source, expected):
    assert imports_of(source, "structures.binary", is_package=False) == expected


def test_every_module_lives_in_a_room():
    assert {room(name) for name in MODULES} <= {"", *ROOMS}


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_imports_follow_the_arrows(name):
    seen = ROOMS[: ROOMS.index(room(name)) + 1]
    backwards = {other for other in imports_within(name) if other and room(other) not in seen}
    assert not backwards


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in MODULES
        if is_member(name) and name not in LISTS and room(name) not in ("experiments", "kernels")
    ],
)
def test_members_of_a_room_do_not_import_each_other(name):
    siblings = {other for other in imports_within(name) if room(other) == room(name) and is_member(other)}
    assert siblings <= set().union(*(group for group in WORK_TOGETHER if name in group))


@pytest.mark.parametrize("name", [name for name in MODULES if "." in name and not is_member(name)])
def test_interfaces_do_not_depend_on_the_members_of_their_room(name):
    assert not {other for other in imports_within(name) if room(other) == room(name) and is_member(other)}


def folder(name: str) -> str:
    """kernels.trees for kernels.trees.heads and for kernels.trees itself."""
    return ".".join(name.split(".")[:2])


def is_shown(name: str) -> bool:
    """Whether a module is a folder, or one that its folder lists among its names."""
    return name == folder(name) or name.rsplit(".", 1)[1] in importlib.import_module(f"pullback.{folder(name)}").__all__


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("kernels.")])
def test_kernels_of_other_folders_are_imported_through_their_folder(name):
    others = {other for other in imports_within(name) if room(other) == "kernels" and folder(other) != folder(name)}
    assert all(map(is_shown, others))


@pytest.mark.parametrize("name", [name for name in MODULES if name and room(name) != "kernels"])
def test_other_rooms_import_kernels_through_their_folders(name):
    kernels = {other for other in imports_within(name) if room(other) == "kernels"}
    assert all(other == "kernels" or is_shown(other) for other in kernels)


@pytest.mark.parametrize("name", [name for name in MODULES if room(name) == "kernels"])
def test_kernels_do_not_import_torch(name):
    path = MODULES[name]
    roots = {full.split(".")[0] for full in imports_of(path.read_text("utf-8"), name, path.name == "__init__.py")}
    assert not roots & NEVER_IN_KERNELS


@pytest.mark.parametrize("name", [name for name in MODULES if room(name) not in ("", *USERS)])
def test_the_front_door_is_used_by_users_alone(name):
    assert "" not in imports_within(name)


def test_the_front_door_does_not_open_the_experiments():
    assert not {room(other) for other in imports_within("")} & set(USERS)
