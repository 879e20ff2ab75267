"""How a backend is found: our own by name, others through entry points of group `inferometer.backends`."""

from functools import cache
from typing import TYPE_CHECKING

from inferometer.cost import calibrated, roofline
from inferometer.cost.backend import BackendFactory, CostBackend, Told
from inferometer.errors import InferometerError, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def _measured(calibration: object | None = None) -> CostBackend:
    from inferometer.cost import measured  # noqa: PLC0415 (only its users load it)

    return measured.create(calibration)


_OWN: dict[str, BackendFactory] = {
    "roofline": roofline.create,
    "calibrated": calibrated.create,
    "measured": _measured,
}

_FITTED = ("calibrated", "measured")
"""Backends whose times are of kernels that ran one after another."""


def usual_scheduler(backend: str) -> str:
    """Return the scheduler that a backend's times are meant for.

    >>> usual_scheduler("roofline"), usual_scheduler("calibrated")
    ('overlap', 'streams')
    """
    return "streams" if backend in _FITTED else "overlap"


GROUP = "inferometer.backends"


def installed() -> "EntryPoints":
    """Return the backends that installed distributions register; only asked for by name, as the scan takes 30 ms."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (it loads email, sockets and archives)

    return entry_points(group=GROUP)


@cache
def backend_names() -> tuple[str, ...]:
    """Return the backends that are installed, in order of name."""
    return tuple(sorted({*_OWN, *(p.name for p in installed())}))


def told_without(name: str) -> Told:
    """Return what is said of a backend that cannot be made: of our own, what it would be."""
    if name != "measured":
        return Told((), (), (), ())
    from inferometer.cost.measured_told import told  # noqa: PLC0415 (only the list of backends needs it)

    return told(calibrated.shipped(), None)


def create_backend(name: str, calibration: object | None = None) -> CostBackend:
    """Return the backend called `name`.

    Raises UnknownNameError for a name that no installed distribution registers, and InferometerError for an
    entry point that cannot be loaded.
    """
    if name in _OWN:
        return _OWN[name](calibration)
    for point in installed():
        if point.name == name:
            try:
                factory: BackendFactory = point.load()
            except Exception as error:
                raise InferometerError(f"backend {name!r} ({point.value}) cannot be loaded: {error}") from error
            return factory(calibration)
    raise unknown_name("backend", name, backend_names())
