"""Every backend that is installed, with what it says of itself."""

from importlib.metadata import EntryPoint
from typing import NamedTuple

from inferometer.cost.backend import Band, CostBackend, Tells, Told
from inferometer.cost.registry import backend_names, create_backend, installed, told_without, usual_scheduler
from inferometer.errors import InferometerError


class Backend(NamedTuple):
    """One backend."""

    name: str
    origin: str
    """inferometer, or the distribution that registers it."""
    scheduler: str
    """Its usual one."""
    backend: CostBackend | None
    """None where it cannot be loaded."""
    error: str
    told: Told

    @property
    def band(self) -> Band | None:
        """Its band where nothing is known of a chip."""
        return None if self.backend is None else self.backend.band()


SILENT = Told((), (), (), ())


def known_backends() -> list[Backend]:
    """Return every backend, in order of name; one that cannot be loaded says why."""
    points = {point.name: point for point in installed()}
    return [_known(name, points.get(name)) for name in backend_names()]


def _known(name: str, point: EntryPoint | None) -> Backend:
    origin = "inferometer" if point is None else _origin(point)
    try:
        backend = create_backend(name)
    except InferometerError as error:
        return Backend(name, origin, usual_scheduler(name), None, str(error), told_without(name))
    told = backend.told() if isinstance(backend, Tells) else SILENT
    return Backend(name, origin, usual_scheduler(name), backend, "", told)


def _origin(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} {point.dist.version} ({point.value})"
