"""Placements as people write them: `DPA=nvlink:8+network:2,EP=nvlink:8+network:2`."""

from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.deployment import Placement, RolePlacement
from inferometer.specs.hardware import Fabric

PLACED = ("tp", "dpa", "dcp", "pp", "ep", "etp")


def parse_placement(text: str, fabric: Fabric) -> Placement:
    """Return the placement that `text` says; roles not named are free, axes not named have factor 1.

    Raises InferometerError for text of another form, an unknown role or axis, and a factor that does not divide
    its axis.
    """
    roles: dict[str, RolePlacement] = {}
    for part in text.split(","):
        role, equals, spans = part.strip().partition("=")
        if not equals or not spans:
            raise InferometerError(f"--placement {text[:80]!r}: write ROLE=AXIS:N+AXIS:N, as in EP=nvlink:8+network:2")
        if role.lower() not in PLACED:
            raise unknown_name("role in --placement", role, (r.upper() for r in PLACED))
        if role.lower() in roles:
            raise InferometerError(f"--placement {text[:80]!r} places {role.upper()} twice")
        factors = _factors(role, spans, fabric)
        roles[role.lower()] = RolePlacement(factors=factors, strides=tuple(1 for _ in factors))
    return Placement(roles=roles)


def _factors(role: str, spans: str, fabric: Fabric) -> tuple[int, ...]:
    sizes = {axis.name: axis.size for axis in fabric.axes}
    given: dict[str, int] = {}
    for span in spans.split("+"):
        name, _, factor = span.strip().partition(":")
        if name not in sizes:
            raise unknown_name("axis in --placement", name, sizes)
        good = factor.isascii() and factor.isdecimal() and len(factor) <= len(str(sizes[name]))
        if not good or int(factor) < 1 or sizes[name] % int(factor):
            raise InferometerError(
                f"--placement {role.upper()}={name}:{factor[:20]}: the factor must divide the {sizes[name]} of {name}"
            )
        given[name] = int(factor)
    return tuple(given.get(axis.name, 1) for axis in fabric.axes)
