"""What the pages take from the library itself: its public names by room, the tables, and the folders of kernels.

A page says where: `<!-- public: descents._descent -->` for the public names of a module, `<!-- names: warm -->` for
names one by one, `<!-- room: descents -->` for a room's own words, `<!-- modules: operators -->` for a list of its
modules; `<!-- catalog -->`, `<!-- capabilities -->` and `<!-- offered -->` for tables; `<!-- drawing -->` for the
`drawing` that the Python right above it makes.
"""

import ast
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import pullback

SOURCE = Path(pullback.__file__).parent
CAPABILITIES = (
    pullback.LogLinear,
    pullback.Simplex,
    pullback.KBest,
    pullback.Enumerable,
    pullback.Lattice,
    pullback.Transport,
)
FOR_AUTHORS = {  # see extending.md
    "event_dims",
    "lengths",
    "mask",
    "tolerance",
    "length_axes",
    "length_advice",
    "longest",
    "check_event",
    "allowed",
    "fixed_sums",
    "visible",
    "count_once",
    "gradient_of_parts",
    "offer",
    "is_zero_one",
    "has_own_scores",
    "own_score",
    "why_not",
}
MADE_WITH = {  # where a structure needs an argument
    "Subset": (1,),
    "Tagging": (torch.zeros(1, 1),),
    "Path": (torch.tensor([[0, 1]]), 0, 1),
    "Oracle": (lambda scores: scores,),
}

DRAWN = re.compile(r"^```python\n((?:(?!```).*\n)*)```\n\n<!-- drawing -->$", re.MULTILINE)

shown: set[str] = {"CATALOG"}  # a dictionary, shown as a table


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces the comments above by what they ask for."""
    for kind, write in WRITERS.items():
        markdown = re.sub(rf"<!-- {kind}(?:: ([\w. ,]+?))? -->", lambda match: write(match[1] or ""), markdown)  # noqa: B023
    return DRAWN.sub(_drawing, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Drops the titles of links that name a module nobody imports from."""
    return re.sub(r' title="[^"]*pullback[\w.]*\._[\w.]+\)?"', "", output)


def on_post_build(**_: Any) -> None:
    """Every public name stands on some page."""
    missing = set(pullback.__all__) - shown
    if missing:
        raise LookupError(f"no page shows {', '.join(sorted(missing))}.")


# ---- tables


def _link(name: str) -> str:
    return f"[`{name}`][pullback.{name}]"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _catalog(_: str) -> str:
    header = ("name", "kind", "gradient to the scores", "needs beside argmax", "decoder evaluations", "callable")
    return _table(
        header,
        (
            (
                _link(name),
                entry.kind,
                entry.formula,
                ", ".join(_link(needed.__name__) for needed in entry.needs),
                str(entry.evaluations),
                "yes" if entry.callable else "",
            )
            for name, entry in pullback.CATALOG.items()
        ),
    )


def _capabilities(_: str) -> str:
    """Each capability with the operations that come with it."""
    rows = []
    for capability in (pullback.Structure, *CAPABILITIES):
        own = [name for name in vars(capability) if _documents(capability, name) and _is_operation(capability, name)]
        rows.append([_link(capability.__name__), ", ".join(_link_to(capability, name) for name in own)])
    return _table(("capability", "operations"), rows)


def _offered(_: str) -> str:
    """Which structure offers which capability; wrappers offer what they wrap."""
    public = {name: getattr(pullback, name) for name in pullback.__all__}
    structures = [
        thing
        for thing in public.values()
        if inspect.isclass(thing) and issubclass(thing, pullback.Structure) and not inspect.isabstract(thing)
    ]
    rows = []
    for structure in structures:
        if structure not in (pullback.Independent, pullback.Product):
            one = structure(*MADE_WITH.get(structure.__name__, ()))
            rows.append([_link(structure.__name__), *("yes" if one.offers(what) else "" for what in CAPABILITIES)])
    return _table(("structure", *(_link(capability.__name__) for capability in CAPABILITIES)), rows)


# ---- drawings


def _drawing(match: re.Match[str]) -> str:
    """The Python as it stands, and the drawing it makes; neither its text nor its style is searched."""
    made: dict[str, Any] = {}
    exec(compile(match[1], "a block of the docs", "exec"), made)
    return f"```python\n{match[1]}```\n\n<div data-search-exclude>{made['drawing'].svg}</div>"


# ---- public names


def _public(module: str) -> str:
    """The public names of a module or of a room: interfaces first, then members, each as its source has them."""
    full = f"pullback.{module}"
    inside = []
    for name in pullback.__all__:
        thing = getattr(pullback, name)
        home = getattr(thing, "__module__", "")
        if callable(thing) and (home == full or home.startswith(f"{full}.")) and name not in shown:
            inside.append((home.rsplit(".", 1)[1].startswith("_") is False, home, _line(thing), name))
    return "\n".join(_reference(name) for *_, name in sorted(inside))


def _names(names: str) -> str:
    return "\n".join(_reference(name.strip()) for name in names.split(","))


def _line(thing: Any) -> int:
    return inspect.getsourcelines(thing)[1]


def _reference(name: str) -> str:
    shown.add(name)
    thing = getattr(pullback, name)
    if not inspect.isclass(thing):
        return _block(name, level=3)
    owners = {member: next(base for base in thing.__mro__ if _documents(base, member)) for member in _members(thing)}
    here = [member for member, owner in owners.items() if owner is thing]
    blocks = [_block(name, level=3), _fields(thing), _bases(thing)]
    if len(here) < len(owners) and thing not in CAPABILITIES:
        rows = (
            (_link_to(owner, member), _first_line(owner, member), "" if owner is thing else _link(owner.__name__))
            for member, owner in owners.items()
        )
        blocks.append(_table(("member", "what it is", "from"), rows))
    return "\n".join(blocks + [_block(f"{name}.{member}", level=4) for member in here])


def _block(name: str, *, level: int) -> str:
    return f"::: pullback.{name}\n    options:\n      members: false\n      heading_level: {level}\n"


def _fields(thing: Any) -> str:
    """The fields of a named tuple, whose signature is not in its source."""
    if not hasattr(thing, "_fields"):
        return ""
    defaults = thing._field_defaults
    fields = (f"{field}={defaults[field]}" if field in defaults else field for field in thing._fields)
    return f"A named tuple: `{thing.__name__}({', '.join(fields)})`.\n"


def _bases(thing: type) -> str:
    """The nearest public classes that a class derives from."""
    bases = [base for base in thing.__mro__[1:] if base.__module__.startswith("pullback")]
    bases = [base for base in bases if base.__name__ in pullback.__all__]
    nearest = [base for base in bases if not any(base is not other and issubclass(other, base) for other in bases)]
    return f"Derives from {', '.join(_link(base.__name__) for base in nearest)}.\n" if nearest else ""


def _members(thing: type) -> list[str]:
    """The documented public members that the library itself defines, in the order of their definition."""
    bases = [base for base in thing.__mro__ if base.__module__.startswith("pullback")]
    names = dict.fromkeys(name for base in reversed(bases) for name in vars(base))
    is_interface = thing is pullback.Structure or thing in CAPABILITIES
    return [
        name
        for name in names
        if any(_documents(base, name) for base in bases)
        and (not name.startswith("_") or name == "__call__")
        and (is_interface or _is_operation(thing, name))
    ]


def _is_operation(thing: type, name: str) -> bool:
    return not issubclass(thing, pullback.Structure) or (not name.startswith("_") and name not in FOR_AUTHORS)


def _documents(base: type, name: str) -> bool:
    """Whether a class of the library documents this member itself; a field says what it is in the class's own words."""
    if not base.__module__.startswith("pullback"):
        return False
    member = vars(base).get(name)
    member = getattr(member, "__func__", member)
    written = inspect.isroutine(member) or isinstance(member, property) or hasattr(member, "func")
    return written and bool(member.__doc__) and base.__name__ in pullback.__all__


def _first_line(owner: type, member: str) -> str:
    text = inspect.cleandoc(getattr(vars(owner)[member], "__doc__", "") or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def _link_to(owner: type, member: str) -> str:
    return f"[`{member}`][pullback.{owner.__name__}.{member}]"


# ---- rooms


def _room(room: str) -> str:
    """The words that a room's `__init__` opens with."""
    return _words(SOURCE.joinpath(*room.split(".")) / "__init__.py")


def _modules(room: str) -> str:
    """The members of a room, or its folders, with the first sentence of each; folders with the names they show."""
    rows = []
    for path in sorted((SOURCE / room).iterdir()):
        if path.name.startswith(("_", ".")) or not (path.is_dir() or path.suffix == ".py"):
            continue
        source = path / "__init__.py" if path.is_dir() else path
        first = " ".join(_words(source).split("\n\n")[0].split())
        rows.append((f"`{path.stem}`", first, ", ".join(f"`{name}`" for name in _exports(source))))
    if not any(exports for *_, exports in rows):
        return _table(("module", "what it is"), (row[:2] for row in rows))
    return _table(("folder", "what it is", "what it shows"), rows)


def _words(source: Path) -> str:
    return ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""


def _exports(source: Path) -> list[str]:
    for node in ast.parse(source.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


WRITERS = {
    "catalog": _catalog,
    "capabilities": _capabilities,
    "offered": _offered,
    "public": _public,
    "names": _names,
    "room": _room,
    "modules": _modules,
}
