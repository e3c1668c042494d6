"""A run: everything that decides a result, as one value."""

import json
import math
import shlex
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from pullback.experiments.mistakes import Mistake, check_counts, unknown
from pullback.experiments.rows import Value, make_estimator, standard_options, takes_noise
from pullback.experiments.task import Task

AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(frozen=True)
class Optimizer:
    """How parameters follow their gradients.

    Attributes:
        algorithm: adam, adamw or sgd (with momentum 0.9).
        learning_rate: that of the decoder, and of the encoder unless it has one of its own.
        encoder_learning_rate: that of the encoder; 0 for the same as the decoder's.
        batch_size: examples in a step; 0 for all of them.
        decay: constant, or cosine: the learning rate falls to 0 along a cosine.
        clip: the largest norm of the gradient; 0 for any.
    """

    algorithm: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    encoder_learning_rate: float = 0.0
    batch_size: int = 0
    decay: Literal["constant", "cosine"] = "constant"
    clip: float = 0.0

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, above=0)
        for name in ("encoder_learning_rate", "batch_size", "clip"):
            _check(name, getattr(self, name))

    def factor(self, step: int, steps: int) -> float:
        """What learning rates are multiplied with in the step after `step` steps."""
        return 1.0 if self.decay == "constant" else 0.5 * (1 + math.cos(math.pi * step / steps))


@dataclass(frozen=True)
class Run(Generic[AnyTask]):
    """One model, trained once.

    Attributes:
        task: what is learned, with its settings.
        estimator: a name in the catalog (`pullback estimators`), or a yardstick of the task such as gold or frozen.
        options: those of the estimator, as pairs in the order of their names, without those that say what it does
            anyway.
        noise: the scale of Gumbel noise on the scores in training, for methods that pull labels back; others are random
            by themselves, have names of their own where they are, or need none: they have 0.
        noise_until: the share of the steps after which there is no noise; it falls to 0 in a line.  0: it stays.
        optimizer: how parameters follow their gradients.
        steps: how many times the parameters are updated.
        evaluate_every: steps between two records.
        seed: the seed of parameters, order of the data, samples and noise.
    """

    task: AnyTask
    estimator: tyro.conf.Suppress[str] = "spigot"  # commands have options for what is suppressed here
    options: tyro.conf.Suppress[tuple[tuple[str, Value], ...]] = ()
    noise: tyro.conf.Suppress[float] = 0.0
    noise_until: tyro.conf.Suppress[float] = 0.0
    optimizer: Optimizer = field(default_factory=Optimizer)
    steps: int = 1000
    evaluate_every: int = 100
    seed: int = 1

    def __post_init__(self) -> None:
        for part in (self.task, self.optimizer):
            _check_choices(part)
        standard = self._standard_options()
        given = dict(self.options)
        changed = {name: value for name, value in given.items() if not _is_same(value, standard.get(name))}
        object.__setattr__(self, "options", tuple(sorted(changed.items())))
        _check("noise", self.noise)
        if not takes_noise(self.task, self.estimator):
            object.__setattr__(self, "noise", 0.0)
        if not 0 <= self.noise_until <= 1:
            raise Mistake(f"noise_until is {self.noise_until}; expected a share of the steps, between 0 and 1.")
        if self.noise == 0:
            object.__setattr__(self, "noise_until", 0.0)
        check_counts(self, "steps", "evaluate_every")
        for name, seed in (("seed", self.seed), ("data_seed", getattr(self.task, "data_seed", 0))):
            if not 0 <= seed < 2**32:
                raise Mistake(f"{name} is {seed}; expected an integer from 0 to 2^32 − 1.")
        make_estimator(self.task, self.estimator, dict(self.options), self.noise)  # says what is wrong with the name

    @property
    def key(self) -> str:
        """A name for the run: the same for the same value, another for any other."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return f"{self.task.name}-{self.estimator}-s{self.seed}-{sha256(text.encode()).hexdigest()[:10]}"

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON has it."""
        return {
            "task": {"name": self.task.name, **_settings_of(self.task)},
            "estimator": self.estimator,
            "options": {name: _plain(value) for name, value in self.options},
            "noise": self.noise,
            "noise_until": self.noise_until,
            "optimizer": asdict(self.optimizer),
            "steps": self.steps,
            "evaluate_every": self.evaluate_every,
            "seed": self.seed,
        }

    @staticmethod
    def from_dict(given: dict[str, Any], tasks: dict[str, type[Task]]) -> "Run[Task]":
        """The run that `to_dict` described; `Mistake` if it is from another version or another program."""
        given = dict(given)
        settings = dict(given.pop("task"))
        name = settings.pop("name")
        if name not in tasks:
            raise unknown("task", name, tasks)
        options = tuple(given.pop("options").items())
        optimizer = _made(Optimizer, given.pop("optimizer"))
        task = _made(tasks[name], settings)
        made: Run[Task] = _made(Run, {**given, "task": task, "options": options, "optimizer": optimizer})
        return made

    def refuse_noise(self, noise: float) -> None:
        """Raises if noise is asked for and the estimator takes none."""
        if noise and not takes_noise(self.task, self.estimator):
            raise Mistake(
                f"{self.estimator} takes no noise of the run; see `pullback estimators` for one that has noise of its "
                "own."
            )

    def noise_at(self, step: int) -> float:
        """The scale of noise in the step after `step` steps."""
        return self.noise * max(0.0, 1 - step / (self.noise_until * self.steps)) if self.noise_until else self.noise

    def every_option(self) -> dict[str, Any]:
        """The options of the estimator, also those that nobody has set."""
        return {**self._standard_options(), **dict(self.options)}

    def _standard_options(self) -> dict[str, Any]:
        return standard_options(self.estimator) if self.task.from_catalog(self.estimator) else {}

    def settings(self) -> dict[str, Value]:
        """Every setting but the estimator's options by its flat name, as on the command line."""
        found = self.to_dict()
        nested = {**found.pop("task"), **found.pop("optimizer")}
        del nested["name"], found["options"]
        return {**found, **nested}

    def with_setting(self, name: str, value: Value) -> "Run[AnyTask]":
        """The same run with another value of a setting, by its flat name."""
        if name not in self.settings():
            raise unknown("setting", name, self.settings())
        changed: dict[str, Any] = {name: _like(name, value, self.settings()[name])}
        if name in vars(self.optimizer):
            return replace(self, optimizer=replace(self.optimizer, **changed))
        if name in vars(self.task):
            return replace(self, task=replace(self.task, **changed))  # type: ignore[type-var]
        return replace(self, **changed)

    def with_option(self, name: str, value: Value) -> "Run[AnyTask]":
        """The same run with another value of an option of its estimator."""
        return replace(self, options=(*self.options, (name, value)))

    def command(self, name: str, standard: "Run[Any]") -> str:
        """The command that repeats this run; `name` is a set-up, and `standard` its run."""
        standard = replace(standard, estimator=self.estimator, options=())  # one that takes no noise needs no --noise 0
        settings, before = self.settings(), standard.settings()
        changed = [flag(setting, value) for setting, value in settings.items() if value != before[setting]]
        # --set takes a name that is both an option and a setting for the setting.
        own = ", ".join(f"{option}={value}" for option, value in self.options if option in settings)
        estimator = flag("estimator", f"{self.estimator}({own})" if own else self.estimator)
        options = [
            f"--set {option}={shlex.quote(str(value))}" for option, value in self.options if option not in settings
        ]
        return " ".join(["pullback run", name, estimator, *changed, *options])


def _plain(value: Value) -> Value:
    """A whole number without its point: 10.0 and 10 make one run."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _is_same(value: Value, standard: Any) -> bool:
    """Whether two values of an option are equal; 0 is not false, though Python says so."""
    return isinstance(value, bool) == isinstance(standard, bool) and bool(value == standard)


def _settings_of(task: Task) -> dict[str, Value]:
    """The settings of a task; where its data are does not matter, but whether they are files or the built-in sample."""
    settings: dict[str, Value] = asdict(task)  # type: ignore[call-overload]
    return {**settings, "data_folder": "FOLDER"} if settings.get("data_folder") else settings


def _like(name: str, value: Value, present: Value) -> Value:
    """`value` as the kind of thing that the setting has been so far."""
    if isinstance(present, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(present):
        raise Mistake(f"{name} is {value!r}; expected something like {present!r}.")
    return value


def flag(name: str, value: Value) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {shlex.quote(str(value))}"


def _made(kind: type[Any], given: dict[str, Any]) -> Any:
    names = [one.name for one in fields(kind)]
    for name in given:
        if name not in names:
            raise unknown(f"{kind.__name__}: setting", name, names)
    return kind(**given)


def _check_choices(given: Any) -> None:
    """Raises where a setting that is one of several words is another."""
    for name, kind in get_type_hints(type(given)).items():
        if get_origin(kind) is Literal and getattr(given, name) not in get_args(kind):
            expected = ", ".join(map(str, get_args(kind)))
            raise Mistake(f"{name} is {getattr(given, name)!r}; expected one of {expected}.")


def _check(name: str, value: float, above: float | None = None) -> None:
    if not math.isfinite(value) or value < 0 or (above is not None and value <= above):
        raise Mistake(f"{name} is {value}; expected a finite number {'> 0' if above is not None else '≥ 0'}.")
