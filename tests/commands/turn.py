"""Turn: a command of a page, as somebody types it who has a home of their own."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """One command: what a page prints, and what is typed for it."""

    printed: str
    """As the page has it; empty for a command of no page, which the next ones need."""
    typed: str = ""
    """What is typed; by default what the page prints. `{name}` stands for what the home has."""
    says: str = ""
    """A regular expression of which what it prints has a match."""
    code: int = 0
    until: str = ""
    """The command ends when somebody ends it: it is interrupted once it has printed this."""
    eventually: bool = False
    """It is typed again until it says that."""
    in_code: bool = False
    """It writes into the code: it is called in a copy."""

    def of(self, names: Mapping[str, str]) -> "Turn":
        """The same with the names of a home."""
        return Turn(
            self.printed,
            _named(self.typed or self.printed, names) if self.typed else self.printed,
            _named(self.says, names),
            self.code,
            _named(self.until, names),
            self.eventually,
            self.in_code,
        )


def own(typed: str, says: str = "", eventually: bool = False) -> Turn:
    """A command that no page prints."""
    return Turn("", typed, says, eventually=eventually)


def _named(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
