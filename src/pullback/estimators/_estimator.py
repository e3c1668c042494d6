"""The interface of an estimator, and the downstream loss as estimators call it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pullback.estimators._inspection import Inspection, Label, inspect_scores
from pullback.operators._register import is_plain_eager
from pullback.regularizers._options import Number, now
from pullback.structures._checks import broadcasts
from pullback.structures._structure import Structure

Loss = Callable[[Tensor], Tensor]
"""The downstream loss: takes a point (*batch, *event), returns one loss per example (*batch)."""

NO_GRADIENT = (
    "downstream returned losses that do not depend on the latent point in a differentiable way, and this method "
    "follows their gradient; reinforce, best_vertex and expectations such as minimum_risk accept a black box."
)


class Estimator(ABC):
    """A way to train the scores that choose a structure.

    One that can hold parameters or remembers something is a `torch.nn.Module` as well: these are saved, moved and
    trained with the model that holds it.
    """

    @abstractmethod
    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        """One loss per example: backward on any reduction of them trains the encoder behind `scores` and the decoder.

        `downstream(point)` decodes from a point of the polytope, shaped like `scores`, and returns one loss per
        example.  What an example contributes does not depend on the rest of the batch, and is linear in the weight of
        its loss.
        """

    @property
    @abstractmethod
    def evaluations(self) -> int | None:
        """How often a training step evaluates the downstream loss; None if that depends on structure and scores."""

    def __call__(self, structure: Structure, scores: Tensor) -> Tensor:
        """A point for the decoder, where the method needs nothing but the gradient that comes back to it.

        The point works with whatever gradient arrives, so a step size then refers to the loss as it was reduced:
        under a mean over the batch, steps shrink with the batch.  `loss` has no such dependence.
        """
        raise TypeError(
            f"{type(self).__name__} evaluates the downstream loss itself: call `estimator.loss(structure, scores, "
            "downstream)` instead of `estimator(structure, scores)`."
        )

    def inspect(self, structure: Structure, scores: Tensor, downstream: Loss) -> Inspection:
        """What a training step with these scores does: losses, gradients, labels, support, entropy and cost.

        Runs `loss` and its backward pass once, and evaluates the downstream loss a few times more for the record.
        Parameters get no gradient; random numbers, and what an estimator remembers, are put back.
        """
        scores = scores.detach()
        memory = Memory(self)
        given, calls = scores.clone().requires_grad_(), 0

        def counted(point: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return downstream(point)

        replay = Replay(scores)
        with torch.random.fork_rng(replay.devices), torch.enable_grad():
            losses = self.loss(structure, given, counted)
            gradient = None
            if losses.requires_grad:
                (gradient,) = torch.autograd.grad(losses.sum(), given, allow_unused=True)
        memory.restore()
        with torch.random.fork_rng(replay.devices), torch.no_grad():
            label = self._inspect_label(structure, scores, downstream, replay)
        memory.restore()
        with torch.no_grad():
            entropy, support, gap = inspect_scores(structure, scores)
            return Inspection(
                losses=losses.detach(),
                gradient=torch.zeros_like(scores) if gradient is None else gradient,
                evaluations=calls,
                entropy=entropy,
                support=support,
                gap=gap,
                label=label,
            )

    def _inspect_label(self, structure: Structure, scores: Tensor, downstream: Loss, replay: "Replay") -> Label | None:
        """What is known about the labels of this call, where the method pulls labels back."""
        return None


def parts_of(part: object, path: str = "") -> Iterator[tuple[str, object]]:
    """A part of an estimator and the parts it is made of, each with its path: ("descent_step_size", …)."""
    yield path, part
    held = dict(part.named_children()) if isinstance(part, nn.Module) else {}
    fields = {name: value for name, value in vars(part).items() if not name.startswith("_")}
    for name, value in {**fields, **held}.items():
        if isinstance(value, nn.Module) or (is_dataclass(value) and not isinstance(value, type | Structure)):
            yield from parts_of(value, f"{path}_{name}" if path else name)


class Memory:
    """What an estimator remembers: buffers of its modules, and the states of its own generators."""

    def __init__(self, estimator: Estimator) -> None:
        every = [part for _, part in parts_of(estimator)]
        modules = {id(part): part for part in every if isinstance(part, nn.Module)}.values()
        self.buffers = [
            (module, name, buffer.clone()) for module in modules for name, buffer in module.named_buffers(recurse=False)
        ]
        drawn = [getattr(part, "generator", None) for part in every]
        self.generators = [(one, one.get_state()) for one in drawn if isinstance(one, torch.Generator)]

    def restore(self) -> None:
        for module, name, buffer in self.buffers:
            with torch.no_grad():
                getattr(module, name).copy_(buffer)
        for generator, state in self.generators:
            generator.set_state(state)


def evaluate(structure: Structure, downstream: Loss, point: Tensor) -> Tensor:
    """downstream(point), which has to be one loss per example.

    The decoder may write into what it gets: whoever still needs the point hands over a copy.
    """
    batch = structure.batch_shape(point)
    losses = downstream(point)
    if not isinstance(losses, Tensor):
        raise TypeError(f"downstream returned a {type(losses).__name__}; expected a tensor with one loss per example.")
    if losses.shape != batch:
        raise ValueError(
            f"downstream returned losses of shape {tuple(losses.shape)} for a batch of shape {tuple(batch)}; expected "
            "one loss per example (in PyTorch's losses: reduction='none')."
        )
    return losses if losses.is_floating_point() else losses.to(point.dtype)


def follow(structure: Structure, downstream: Loss, point: Tensor) -> Tensor:
    """`evaluate` for a method that differentiates the losses in the point, which they therefore have to depend on."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and point.requires_grad):
        return evaluate(structure, downstream, point.clone())
    latent, ticket = _Weighed.apply(point, structure.batch_shape(point), True)  # type: ignore[no-untyped-call]
    losses = evaluate(structure, downstream, latent)
    if not losses.requires_grad:
        raise ValueError(NO_GRADIENT)
    return redeem(ticket, losses)


def weigh(structure: Structure, scores: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scores, which get no gradient from an example whose loss has weight 0, and a ticket to be redeemed for that."""
    if not (is_plain_eager() and torch.is_grad_enabled() and scores.requires_grad):
        return scores, None
    weighed: tuple[Tensor, Tensor] = _Weighed.apply(scores, structure.batch_shape(scores), False)  # type: ignore[no-untyped-call]
    return weighed


def redeem(ticket: Tensor | None, losses: Tensor) -> Tensor:
    """`losses` plus the zeros of a ticket, which brings their weights to the function that gave it out.

    That function hands a point to the decoder and a ticket to us.  Its backward runs when both have come back, so there
    it is known whether a gradient has reached the point, and what weight the user gave to each loss.
    """
    if ticket is None:
        return losses
    return losses + (ticket if ticket.dtype == losses.dtype else ticket.to(losses.dtype))


class _Weighed(torch.autograd.Function):
    """A copy of a tensor and a ticket; backward, 0 where the weight of an example is 0: its loss may be NaN.

    With `needed` it is a mistake if no gradient comes back.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, batch: torch.Size, needed: bool) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.needed = needed
        return tensor.clone(), tensor.new_zeros(batch)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, weight: Tensor | None) -> tuple[Tensor | None, None, None]:
        if weight is None:
            return gradient, None, None
        if gradient is None:
            if ctx.needed:
                raise ValueError(NO_GRADIENT)
            return None, None, None
        unweighted = (weight == 0).reshape(weight.shape + (1,) * (gradient.dim() - weight.dim()))
        return gradient.masked_fill(unweighted, 0), None, None


def check_batch(what: str, numbers: Tensor, structure: Structure, scores: Tensor) -> None:
    """Raises unless `numbers` are one, or one for each example."""
    batch = structure.batch_shape(scores)
    if not broadcasts(numbers.shape, batch):
        raise ValueError(
            f"{what} has shape {tuple(numbers.shape)}; expected one number, or the batch shape {tuple(batch)}."
        )


def cooled(structure: Structure, scores: Tensor, temperature: Number) -> Tensor:
    """scores / temperature; a part that is forbidden or padding stays so and sends nothing to the temperature.

    Scores of a structure's own are not divided.
    """
    temperature = now("temperature", temperature, above=True)
    if not isinstance(temperature, Tensor):
        return scores if temperature == 1 else scores / temperature
    scores = structure.restrict(scores)
    forbidden = scores == -torch.inf
    check_batch("temperature", temperature, structure, scores)
    temperature = temperature.to(scores.device)
    wide = structure.widen(temperature) if temperature.dim() else temperature
    return (scores.masked_fill(forbidden, 0) / wide).masked_fill(forbidden, -torch.inf)


class Replay:
    """Evaluations beside the main pass, with its random numbers and its autocast setting.

    Made right before the main pass; `losses` then starts from the random state of that moment and puts the present one
    back afterwards.  Generators of the decoder's own are not replayed, and modules that keep statistics of what they
    see, such as BatchNorm, see these evaluations too.
    """

    def __init__(self, scores: Tensor) -> None:
        self.devices = [scores.device] if scores.device.type == "cuda" else []
        self._states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self.devices)]
        kind = scores.device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    def losses(self, structure: Structure, downstream: Loss, point: Tensor) -> Tensor:
        """The losses at `point`, as the main pass would have computed them; the decoder gets a copy of the point."""
        kind, dtype, enabled = self._autocast
        with torch.random.fork_rng(self.devices), torch.autocast(kind, dtype, enabled):
            torch.set_rng_state(self._states[0])
            for device, state in zip(self.devices, self._states[1:]):
                torch.cuda.set_rng_state(state, device)
            return evaluate(structure, downstream, point.clone())
