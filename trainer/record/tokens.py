"""Tokens: the right to write for a training, ordered, so that of two processes it is known which one came later."""

from dataclasses import dataclass


class Superseded(Exception):
    """Another process has claimed a newer token, or is about to; this one must stop."""


@dataclass(frozen=True, order=True)
class Token:
    """(incarnation, generation), compared in that order."""

    incarnation: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.incarnation:06d}.{self.generation:04d}"

    @property
    def words(self) -> str:
        """For a person; the generation is named where ranks were started anew inside the incarnation."""
        return f"incarnation {self.incarnation}" + (f", generation {self.generation}" if self.generation else "")

    @staticmethod
    def parse(text: str) -> "Token":
        incarnation, generation = text.split(".")
        return Token(int(incarnation), int(generation))
