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

    def _check_open(self) -> None:  # noqa: B027 -- what lives in one `with` block only has nothing to check
        """Refuse what was closed.

        Raises:
            ValueError: It was.
        """

    def __enter__(self) -> Self:
        """Give the object itself; one that was closed is refused here, not at the first call in the block."""
        self._check_open()
        return self

    def __exit__(self, *args: object) -> None:
        """Close it; an error of the block goes on."""
        self.close()
