"""Random numbers to add to the scores of parts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import check_batch
from pullback.regularizers._options import Number, by_name, check_count, check_number, now
from pullback.structures._structure import Structure

Random = torch.Generator | None
"""Where random numbers come from; PyTorch's own generator, if None."""

_TERMS = 10  # of the sum that stands for a Gumbel number, as in I-MLE


class Noise(ABC, nn.Module):
    """Independent random numbers, one for each part of a structure.

    scale: a number, a tensor with one for each example, or a function of no arguments that returns either and is asked
    at every call; a tensor may require grad, and a `Parameter` is trained, saved and moved with the model.
    """

    def __init__(self, scale: Number = 1.0) -> None:
        super().__init__()
        check_number(f"{type(self).__name__}: scale", scale)
        self.scale = scale

    @abstractmethod
    def numbers(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, generator: Random) -> Tensor:
        """Draws of scale 1.  They begin in double precision, so that they are the same for any `dtype`."""

    def draw(
        self,
        structure: Structure,
        scores: Tensor,
        sample_shape: Sequence[int] = (),
        *,
        generator: Random = None,
    ) -> Tensor:
        """scale · ε (*sample_shape, *scores.shape): one number for each part, 0 where it is forbidden or padding."""
        epsilon = self.standard(structure, scores, sample_shape, generator=generator)
        scale = self.scale_of(structure, scores)
        return epsilon if isinstance(scale, float) and scale == 1 else epsilon * scale

    def standard(
        self,
        structure: Structure,
        scores: Tensor,
        sample_shape: Sequence[int] = (),
        *,
        generator: Random = None,
    ) -> Tensor:
        """ε alone, as `draw` has it before it is scaled."""
        device = torch.device("cpu") if generator is None else generator.device
        numbers = self.numbers((*sample_shape, *scores.shape), scores.dtype, device, generator).to(scores.device)
        return _one_per_part(structure, numbers) * (structure.forbid(scores) > -torch.inf)

    def scale_of(self, structure: Structure, scores: Tensor) -> float | Tensor:
        """The present scale, ready to multiply points."""
        scale = now(f"{type(self).__name__}: scale", self.scale)
        if not isinstance(scale, Tensor):
            return float(scale)
        check_batch(f"{type(self).__name__}: scale", scale, structure, scores)
        scale = scale.to(scores.device, scores.dtype)
        return structure.widen(scale) if scale.dim() > 0 else scale

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class SmoothNoise(Noise):
    """A noise of which the density exp(−ν(ε)) is known: what it smooths has a derivative, by chance alone."""

    mean: float
    """The mean of ε."""

    @abstractmethod
    def slope(self, numbers: Tensor) -> Tensor:
        """ν′(ε), the derivative of minus the logarithm of the density; 0 at 0."""


class Gumbel(SmoothNoise):
    """Gumbel noise: ε = −log(−log u), u uniform.

    On a `Categorical` the argmax of s + ε is a draw from the softmax of s.
    """

    mean = 0.5772156649015329  # Euler's constant

    def numbers(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, generator: Random) -> Tensor:
        uniform = torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=device)
        exponential = uniform.clamp_min_(torch.finfo(torch.float64).tiny).log_().neg_()
        return exponential.to(dtype).log_().neg_()  # whose digits count, and fewer are needed

    def slope(self, numbers: Tensor) -> Tensor:
        return -torch.expm1(-numbers)


class Normal(SmoothNoise):
    """Gaussian noise of mean 0 and variance 1."""

    mean = 0.0

    def numbers(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, generator: Random) -> Tensor:
        return torch.randn(tuple(shape), generator=generator, dtype=torch.float64, device=device).to(dtype)

    def slope(self, numbers: Tensor) -> Tensor:
        return numbers


class SumOfGamma(Noise):
    """Noise that makes the sum over `k` parts nearly a Gumbel number: ε = (Σᵢ Gamma(1/k, k/i) − log 10) / k, i ≤ 10.

    k: about how many parts a structure uses.  Reference: Niepert, Minervini and Franceschi (2021).
    """

    def __init__(self, k: int = 10, scale: Number = 1.0) -> None:
        super().__init__(scale)
        check_count("SumOfGamma: k", k)
        self.k = k

    def numbers(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, generator: Random) -> Tensor:
        concentration = torch.full((*shape, _TERMS), 1 / self.k, dtype=torch.float64, device=device)
        # What torch.distributions.Gamma calls, which takes no generator.
        drawn = torch._standard_gamma(concentration, generator=generator)
        weights = self.k / torch.arange(1, _TERMS + 1, dtype=torch.float64, device=device)
        return ((drawn @ weights - math.log(_TERMS)) / self.k).to(dtype)

    def extra_repr(self) -> str:
        return f"k={self.k}, {super().extra_repr()}"


class NoNoise(Noise):
    """No noise: every number is 0."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def numbers(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, generator: Random) -> Tensor:
        return torch.zeros(tuple(shape), dtype=dtype, device=device)

    def extra_repr(self) -> str:
        return ""


NOISES: dict[str, type[Noise]] = {"gumbel": Gumbel, "normal": Normal, "sum_of_gamma": SumOfGamma, "none": NoNoise}
"""The kinds of noise by their names."""


def noise_of(who: str, given: Noise | str) -> Noise:
    """A noise as users give it: an object, or its name."""
    noise = by_name(f"{who}: noise", given, NOISES) if isinstance(given, str) else given
    if not isinstance(noise, Noise):
        raise TypeError(f"{who}: noise is {given!r}; expected a name such as 'gumbel', or a Noise such as Gumbel(0.5).")
    return noise


def _one_per_part(structure: Structure, numbers: Tensor) -> Tensor:
    """`numbers` in which every entry that holds the same part has the number of the first.

    `gradient_of_parts` adds up the entries of a part.  Applied to the places of the entries it tells where the other
    entry of a part is, and applied to numbers that are zero but at the first it copies them to both.
    """
    event = numbers.shape[numbers.dim() - structure.event_dims :]
    place = torch.arange(1, event.numel() + 1, dtype=torch.float64, device=numbers.device).reshape(event)
    both = structure.gradient_of_parts(place)
    if both is place:
        return numbers
    other = both - place  # 0 where a part has one entry
    return structure.gradient_of_parts(numbers.masked_fill((other > 0) & (other < place), 0))
