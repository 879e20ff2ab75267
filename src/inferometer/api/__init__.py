"""The Python face: names in, answers out. `inferometer` re-exports it."""

from inferometer.api.load import load_machine, load_model
from inferometer.api.pins import check_pins
from inferometer.api.questions import estimate, search
from inferometer.api.settings import Settings

__all__ = ["Settings", "check_pins", "estimate", "load_machine", "load_model", "search"]
