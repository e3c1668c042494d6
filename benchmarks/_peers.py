"""Libraries that compute what we compute: what they call it, whatever the structure.

A peer lays the inputs out as its library wants them once, before any timing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from ._harness import optional

AnyPeer = TypeVar("AnyPeer", bound="Peer")


class Peer(ABC):
    """Inputs that a library has a distribution for."""

    name: ClassVar[str]
    module: ClassVar[str]

    @classmethod
    def of(cls: type[AnyPeer], *inputs: Any, **options: Any) -> AnyPeer | None:
        """The peer with these inputs, None where its library is not installed."""
        return cls(*inputs, **options) if optional(cls.module) else None

    @property
    def library(self) -> Any:
        return optional(self.module)

    @property
    @abstractmethod
    def distribution(self) -> Any:
        """A new one for each call, since it keeps what it has computed."""

    @abstractmethod
    def log_partition(self) -> Tensor: ...

    def marginals(self) -> Tensor:
        return self.distribution.marginals

    def argmax(self) -> Any:
        return self.distribution.argmax

    def best(self) -> Tensor:
        """The score of the argmax."""
        return self.distribution.max


class TorchStruct(Peer):
    name, module = "torch-struct", "torch_struct"

    def log_partition(self) -> Tensor:
        return self.distribution.partition


class Supar(Peer):
    name, module = "supar", "supar.structs"

    def log_partition(self) -> Tensor:
        return self.distribution.log_partition
