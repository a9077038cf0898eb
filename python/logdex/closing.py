"""The end of a `with` block: `Closing`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing(ABC):
    """A context manager that gives itself and closes itself, whatever the block raised."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open."""

    def __enter__(self) -> Self:
        """Give the object itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """Close it; an error of the block goes on."""
        self.close()
