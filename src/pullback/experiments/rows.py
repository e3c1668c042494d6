"""From the name of a row to an estimator: what is in the catalog, and the yardsticks beside it."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

import pullback as pb
from pullback.experiments.mistakes import Mistake, unknown
from pullback.experiments.task import DecodesLabel, Labelled, Task

Value = bool | int | float | str


class LearnsLabel(Labelled):
    """Learns its label by the Fenchel–Young loss of a regularizer, while the decoder sees the argmax.

    The loss that is recorded is the sum of both, where that of `pb.Supervised` is the decoder's alone.
    """

    def __init__(self, label_of: Callable[[Any], Tensor], regularizer: pb.Regularizer) -> None:
        super().__init__(label_of)
        self.intermediate = pb.FenchelYoungLoss(regularizer, "none")

    def loss(self, structure: pb.Structure, scores: Tensor, downstream: Callable[[Tensor], Tensor]) -> Tensor:
        point = structure.argmax(scores.detach())
        learned: Tensor = self.intermediate(structure, scores, self.label.to(scores.dtype))
        return downstream(point) + learned


def standard_options(name: str) -> dict[str, Any]:
    """The options that an estimator of the catalog has, each with the value it has if nothing is said."""
    if name not in pb.CATALOG:
        return {}
    entry = pb.CATALOG[name]
    given = {"generator", *entry.given}
    every = inspect.signature(entry.make).parameters
    return {option: parameter.default for option, parameter in every.items() if option not in given}


def options_of(name: str) -> list[str]:
    """The options that an estimator of the catalog has, by their names."""
    return list(standard_options(name))


def takes_noise(task: Task, name: str) -> bool:
    """Whether noise of a run moves the vertex that an estimator pulls its label back from.

    Others draw their own, sum over many vertices, or are in the catalog with noise under names of their own, as
    `structured_attention` is as `stochastic_softmax`.
    """
    return task.from_catalog(name) and pb.CATALOG[name].kind == "pulled back"


def make_estimator(
    task: Task, name: str, options: dict[str, Value], noise: float | Callable[[], float] = 0.0
) -> pb.Estimator:
    """The estimator of a row of `task`; whatever is wrong with its name or options is a `Mistake`.

    noise: its scale, or a function that is asked for it in every step.
    """
    if name not in task.estimators():
        raise unknown(f"{task.name}: estimator", name, task.estimators())
    has = options_of(name) if task.from_catalog(name) else []
    for option in options:
        if option not in has:
            raise unknown(f"{name}: option", option, has)
    for option, standard in standard_options(name).items():
        if isinstance(standard, bool) and not isinstance(options.get(option, standard), bool):
            raise Mistake(f"{name}: {option} is {options[option]!r}; expected true or false.")
    if not task.from_catalog(name):
        return _made_by(task, name)
    estimator = _from_catalog(name, options)
    return estimator if noise == 0 else pb.Perturbed(estimator, pb.Gumbel(noise))


def _made_by(task: Task, name: str) -> pb.Estimator:
    if name in task.losses():
        return LearnsLabel(task.known()["gold"], task.losses()[name])
    return pb.frozen() if name == "frozen" else DecodesLabel(task.known()[name])


def _from_catalog(name: str, options: dict[str, Any]) -> pb.Estimator:
    try:
        return pb.get_estimator(name, **options)
    except (TypeError, ValueError) as error:
        said = str(error)
        raise Mistake(said if said.startswith(f"{name}: ") else f"{name}: {said}") from error
