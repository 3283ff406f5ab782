"""The parts that several entry points share; this folder itself holds what its subfolders share.

For other programs: `from gan import Generator`, see `gan.play.api`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gan.play.api import Generator as Generator


def __getattr__(name: str) -> object:
    """Import the generator on first use, since most modules here must work without torch."""
    if name == "Generator":
        from gan.play.api import Generator

        return Generator
    raise AttributeError(f"module 'gan' has no attribute {name!r}")
