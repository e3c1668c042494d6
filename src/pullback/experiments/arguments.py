"""What can be typed: a command is a frozen dataclass, its fields are options; `tyro` makes one from the other."""

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, get_type_hints

import tyro

from pullback.experiments.mistakes import Mistake, check_counts, unknown
from pullback.experiments.run import AnyTask, Run
from pullback.experiments.sweep import Engine, cells, rows_of
from pullback.experiments.tasks import SETUPS

Settings = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
Rows = Annotated[str, tyro.conf.arg(aliases=("--estimator",))]
_BESIDE_THE_RUNS = "(default: report.html in the folder of the runs)"
Page = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint=_BESIDE_THE_RUNS)]
OfSetUp = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: that of the set-up)")]


@dataclass(frozen=True)
class RunCommand(Generic[AnyTask]):
    """Train one model.  The same command goes on with a run that was interrupted.

    Attributes:
        estimator: a name in the catalog (`pullback estimators`), or a yardstick of the task such as gold or frozen;
            with settings of its own if need be: "spigot(step_size=0.1)".
        set: an option of the estimator or a setting, such as step_size=0.1; may be given several times.
        noise: the scale of Gumbel noise on the scores in training, for estimators of the kind "pulled back"; others
            have none; `pullback estimators` lists the kinds.
        noise_until: the share of the steps after which there is no noise; it falls to 0 in a line.  0: it stays.
        out: the folder for runs; each has a folder of its own in it.
        accelerator: cpu, gpu or auto; under torchrun, processes share each batch.
        tensorboard: write event files for TensorBoard into the folder of the run.
    """

    run: tyro.conf.OmitArgPrefixes[Run[AnyTask]]
    estimator: str
    set: Settings = ()
    noise: OfSetUp = None
    noise_until: OfSetUp = None
    out: Path = Path("runs")
    accelerator: Literal["cpu", "gpu", "auto"] = "cpu"
    tensorboard: bool = False

    def the_run(self) -> Run[AnyTask]:
        """What is trained."""
        runs = cells(self.run, rows_of(self.estimator, self.run.task), 1, self.set, _noise_of_rows(self))
        if len(runs) > 1:
            raise Mistake(f"run: these are {len(runs)} runs; `pullback sweep` trains one model for each.")
        runs[0].refuse_noise(self.noise or 0.0)
        return runs[0]


@dataclass(frozen=True)
class SweepCommand(Generic[AnyTask]):
    """Train one model for each estimator, combination of settings and seed.  Finished cells are skipped.

    Attributes:
        estimators: names between commas, with settings of their own if need be: "ste,spigot(step_size=0.1)"; or all.
        seeds: how many seeds, counted from --seed.
        set: values of an option or setting, such as step_size=0.1,1,10; may be given several times.
        noise: the scale of Gumbel noise on the scores in training, for estimators of the kind "pulled back"; others
            have none; `pullback estimators` lists the kinds.
        noise_until: the share of the steps after which there is no noise; it falls to 0 in a line.  0: it stays.
        engine: processes on this machine, here (one after the other), or ray.
        workers: how many runs at a time.
        out: the folder for runs; each has a folder of its own in it.
        tensorboard: write event files for TensorBoard into the folder of each run.
    """

    run: tyro.conf.OmitArgPrefixes[Run[AnyTask]]
    estimators: Rows
    seeds: int = 3
    set: Settings = ()
    noise: OfSetUp = None
    noise_until: OfSetUp = None
    engine: Engine = "processes"
    workers: int = 2
    out: Path = Path("runs")
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "workers")

    def runs(self) -> list[Run[AnyTask]]:
        """What is trained."""
        return cells(self.run, rows_of(self.estimators, self.run.task), self.seeds, self.set, _noise_of_rows(self))


def _noise_of_rows(command: RunCommand[Any] | SweepCommand[Any]) -> dict[str, float]:
    """The noise that was asked for; what is not said is that of the set-up."""
    asked = {"noise": command.noise, "noise_until": command.noise_until}
    return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True)
class CompareCommand(Generic[AnyTask]):
    """Print how the gradients of estimators compare with the exact one, on a batch of the task.

    Attributes:
        task: what is compared on, with its settings.
        estimators: names between commas, or all that fit.
        seed: the seed of the parameters.
        examples: how many there are in the batch.
        draws: how often a random estimator is run.
        samples: how many are drawn for the exact gradient, where there are too many structures to list.
    """

    task: tyro.conf.OmitArgPrefixes[AnyTask]
    estimators: str = "all"
    seed: int = 1
    examples: int = 16
    draws: int = 50
    samples: int = 1024

    def __post_init__(self) -> None:
        check_counts(self, "examples", "draws", "samples")


@dataclass(frozen=True)
class ReportCommand:
    """Write one page about all runs of a folder.

    Attributes:
        runs: the folder of earlier runs, or a tar archive of it.
        to: the page.  If it ends in .md, the tables alone, as Markdown.
    """

    runs: tyro.conf.Positional[Path] = Path("runs")
    to: Page = None


@dataclass(frozen=True)
class DemoCommand:
    """Compare eight estimators on latent clusters and four on latent trees, in a few minutes.

    Attributes:
        out: the folder for runs.
        workers: how many runs at a time.
        steps: how many each run takes; 0 for as many as the demo is meant to take.
    """

    out: Path = Path("runs") / "demo"
    workers: int = 2
    steps: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "workers")


# ---- from words to a command


def parse(kind: Any, name: str, given: Sequence[str], default: Any = None) -> Any:
    """The command that was given; what is wrong with it, as a `Mistake` of one line."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, prog=f"pullback {name}", args=list(given), default=default)
    except SystemExit as ended:
        if not ended.code:
            raise
        said = _one_line(errors.getvalue())
        strange = re.match(r"Unrecognized options: ([^\s,=]+)", said)
        if strange:
            raise unknown(f"{name}: option", strange[1], _options_of(default or kind())) from None
        raise Mistake(f"{name}: {said}") from None


def _options_of(command: Any) -> list[str]:
    """Every option of a command and of its parts, as it is typed."""
    hints, found = get_type_hints(type(command), include_extras=True), []
    for name in (one.name for one in fields(command)):
        value, marks = getattr(command, name), getattr(hints[name], "__metadata__", ())
        if is_dataclass(value):
            found += _options_of(value)
        elif tyro.conf.Suppress not in marks and tyro.conf.Positional not in marks:
            aliases = [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
            found += [f"--{name.replace('_', '-')}", *aliases]
    return found


_NOT_A_NUMBER = re.compile(
    r"Error parsing (--[\w-]+): (?:invalid literal for int\(\) with base 10|(could not convert string to float)): (.*?)"
    r"(?= Argument helptext:|$)"
)


def _expected(found: re.Match[str]) -> str:
    """What Python says of a word that is no number, in the words of our own errors."""
    return f"{found[1]} is {found[3]}; expected {'a number' if found[2] else 'an integer'}."


def _one_line(box_of_text: str) -> str:
    """What tyro says in a box, without the box and its title; where letters are ASCII, the box is rows of dashes."""
    lines = [re.sub(r"\x1b\[[0-9;]*m|[─│╰╯├┤]", "", line).strip() for line in box_of_text.splitlines()]
    is_rule = [bool(line) and not line.strip("-") for line in lines]
    has_title = lines[:1] and (lines[0].startswith("╭") or is_rule[1:2] == [True])
    text = [line for line, rule in zip(lines, is_rule) if line and not rule and "--help" not in line]
    words = " ".join(text[1:] if has_title else text)
    words = re.sub(_NOT_A_NUMBER, _expected, words)
    return words.partition(" Argument helptext:")[0] or "this cannot be read"


def parse_of_task(kind: Any, command: str, given: Sequence[str]) -> Any:
    """A command about a task; the name of its set-up comes first."""
    about = f"pullback {command} TASK"
    if not given:
        raise Mistake(f"{command}: which task?  There are: {', '.join(SETUPS)}.")
    if given[0] in ("-h", "--help"):
        print(f"usage: {about} [options]\n\nTASK is one of {', '.join(SETUPS)}; `{about} --help` explains the options.")
        raise SystemExit(0)
    if given[0] not in SETUPS:
        raise unknown("task", given[0], SETUPS)
    standard = SETUPS[given[0]]
    made = kind[type(standard.task)]
    default = made(standard.task) if kind is CompareCommand else made(standard, standard.estimator)
    return parse(made, f"{command} {given[0]}", given[1:], default)
