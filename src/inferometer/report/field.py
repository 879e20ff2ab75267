"""One key of a JSON object."""

from typing import NamedTuple


class Field(NamedTuple):
    """One key."""

    name: str
    type: str
    unit: str
    text: str
