"""Exceptions: all are :class:`Error`, and what an argument caused is a ``ValueError`` or ``TypeError``, too."""

from __future__ import annotations


class Error(Exception):
    """What went wrong, in one sentence.

    ``kind`` says what it was for programs: "notation", "mismatch", "out-of-range", "too-large", "unsupported", "memory", "failed",
    "external" or "partner". ``position`` is the index of the character at fault, for errors about a text, else None.
    """

    kind: str
    position: int | None

    def __init__(self, message: str, kind: str = "failed", position: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.position = position

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), (str(self), self.kind, self.position)


class ArgumentError(Error, ValueError):
    """An argument does not fit what it is for."""


class ElementError(Error, TypeError):
    """An argument, or the elements of an array, have another type than is wanted."""


class OutOfMemoryError(Error, MemoryError):
    """More memory would be needed than there is."""
