"""From what a user writes (`h100 8x2`, `tpu-v5p 4x4x8`, `p5.48xlarge`) to the machine in use."""

import math
import re
from itertools import permutations

from inferometer.catalog.chips import chip_from_table, chip_index, find_chip, load_chips
from inferometer.catalog.machines import (
    find_machine,
    host_chips,
    load_instances,
    machine_from_table,
    machine_index,
    plain_name,
)
from inferometer.catalog.names import close_names, resolve
from inferometer.catalog.twists import split_twist, twist_of
from inferometer.catalog.userfile import is_file_name, read_user_file
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.hardware import Axis, ChipSpec, Fabric, Level, Machine, MachineSpec

MAX_CHIPS = 1_000_000
"""More chips than any one machine will have; a larger size is a slip."""

CHIPS_AND_NODES = 2
"""Levels of the usual machine: what `AxB` says."""

_NUMBERS = re.compile(r"[-+]?[\d.]*(?:[x×][-+]?[\d.]*)*")


def build_machine(chip_name: str, machine_text: str | None = None, n_chips: int | None = None) -> Machine:
    """Return the chip and the fabric in use.

    `chip_name`: a chip, a machine, a cloud instance, or a file of either. `machine_text`: `8x2` is chips x nodes
    on a switched machine (`8` is `8x1`; a machine of three levels takes three sizes, or one number) and a slice on a
    torus, where one size more is slices joined by the network; or a machine's or an instance's name, which stands
    for all of it unless `n_chips` says how many chips. Without `machine_text` the fabric has `n_chips` (else an
    instance's or a machine's own, else 1) on as few equal nodes as hold them, or the most cubic slice. A torus wraps
    as its product says; `4x4x8_twisted` and `4x4x8_untwisted` say how, where the product has both (else its default).
    Raises InferometerError for an unknown or ambiguous name, for a machine of another chip, and for a size that
    is not a whole number of 1 or more or that the machine does not hold.

    >>> [(a.name, a.size) for a in build_machine("h100", "8x2").fabric.axes]
    [('nvlink', 8), ('network', 2)]
    >>> [a.geometry for a in build_machine("tpu-v5p", "4x4x2").fabric.axes]
    ['ring', 'ring', 'line']
    """
    if n_chips is not None:
        _check_size(str(n_chips), n_chips, n_chips)
    chip, spec, named = subject(chip_name)
    text = (machine_text or "").strip()
    sizes, word = None, ""
    if machine_text is not None:
        sizes, word = _asked(text)
        if sizes is None:
            spec = find_machine(text)
            _check_chip(chip, spec)
            named = text
    spec = spec or find_machine(chip.default_machine)
    if sizes is None:
        sizes = _spread(spec, n_chips or (_own_chips(spec, named) if named else 1))
        text = text if named and n_chips is None and text else "x".join(str(s) for s in sizes)
    elif len(sizes) == 1 and (spec.torus or len(spec.levels) > CHIPS_AND_NODES):
        sizes = _spread(spec, sizes[0])
    full = _fit(spec, sizes, text)
    twist = twist_of(spec, full, word, text)
    if twist and not word and not named:
        text = f"{text}_twisted"
    instance = None if named is None else load_instances().get(plain_name(named))
    return Machine(
        chip=chip,
        fabric=Fabric(axes=_axes(spec, full), twist=twist),
        label=text,
        product=spec.id if instance is None else instance.name,
    )


def _asked(text: str) -> tuple[tuple[int, ...] | None, str]:
    """Return the sizes, and `twisted`, `untwisted` or nothing; no sizes where `text` is a name."""
    numbers = text.partition("_")[0]
    sizes = parse_sizes(numbers)
    return sizes, "" if sizes is None else split_twist(text, numbers)


def parse_sizes(text: str) -> tuple[int, ...] | None:
    """Return the sizes of `8x2` or `4x4x8`; None where `text` is a name.

    Raises InferometerError for sizes that are not whole numbers from 1 to MAX_CHIPS.

    >>> parse_sizes("4x4x8"), parse_sizes("p5.48xlarge")
    ((4, 4, 8), None)
    """
    compact = text.lower().replace(" ", "")
    if not _NUMBERS.fullmatch(compact):
        return None
    sizes = []
    for part in re.split("[x×]", compact):
        if not (part.isascii() and part.isdecimal()) or len(part) > len(str(MAX_CHIPS)) or int(part) < 1:
            raise InferometerError(
                f"machine {text[:40]!r}: each size is a whole number from 1 to {MAX_CHIPS}, as in 8x2 or 4x4x8"
            )
        sizes.append(int(part))
    _check_size(text, math.prod(sizes), min(sizes))
    return tuple(sizes)


def _check_size(text: str, total: int, least: int) -> None:
    if least < 1 or total > MAX_CHIPS:
        raise InferometerError(f"machine {text[:40]!r}: chips must be from 1 to {MAX_CHIPS}, not {total}")


def subject(name: str) -> tuple[ChipSpec, MachineSpec | None, str | None]:
    """Return the chip that `name` says, and where it names a machine that machine and the name.

    >>> chip, machine, _ = subject("p5.48xlarge"); chip.id, machine.id
    ('h100-sxm', 'aws-p5')
    """
    if is_file_name(name):
        table = read_user_file(name)
        if "levels" not in table:
            return chip_from_table(name, table), None, None
        spec = machine_from_table(name, table)
        return find_chip(spec.chip), spec, name
    if resolve("chip", name, chip_index()) is not None:
        return find_chip(name), None, None
    if resolve("machine", plain_name(name), machine_index()) is None:
        near = [*close_names(name, chip_index()), *close_names(name, machine_index())]
        raise unknown_name("chip", name, [*load_chips(), *near])
    spec = find_machine(name)
    if spec.chip not in load_chips():
        raise InferometerError(f"machine {spec.id} carries any chip; name a chip first")
    return load_chips()[spec.chip], spec, name


def _check_chip(chip: ChipSpec, spec: MachineSpec) -> None:
    """Refuse a catalogue chip on a machine of another one; a user's own chip may go anywhere."""
    known = load_chips()
    if chip.id in known and spec.chip in known and spec.chip != chip.id:
        raise InferometerError(f"machine {spec.id} carries {spec.chip}, not {chip.id}")


def _own_chips(spec: MachineSpec, name: str) -> int:
    """Return the chips `name` stands for: an instance's, a torus host's, or all below the outermost level."""
    instance = load_instances().get(plain_name(name))
    if instance is not None:
        return instance.chips
    if spec.torus:
        return host_chips().get(spec.id, 1)
    return math.prod(level.max_size for level in spec.levels[:-1] or spec.levels)


def _spread(spec: MachineSpec, n: int) -> tuple[int, ...]:
    """Return sizes whose product is `n`: the most cubic slice, or equal nodes, as few as hold them."""
    inner = spec.levels[: spec.dimensions]
    whole = math.prod(level.max_size for level in inner)
    if spec.torus and (n <= whole or len(inner) == len(spec.levels)):
        return _slice(inner, n)
    sizes = _nested(spec, len(spec.levels), n)
    return sizes or (n,) + (1,) * (len(spec.levels) - 1)  # more than the machine holds: `_fit` says so


def _nested(spec: MachineSpec, levels: int, n: int) -> tuple[int, ...] | None:
    """Return sizes of the innermost `levels` with product `n`, the outer ones as small as can be; None: no way."""
    inner = spec.levels[:levels]
    most = math.prod(level.max_size for level in inner)
    if n > most:
        return None
    if levels == spec.dimensions:
        return _way(inner, n)
    below = most // inner[-1].max_size
    for nodes in range(-(-n // below), min(n, inner[-1].max_size) + 1):
        if n % nodes == 0 and (sizes := _nested(spec, levels - 1, n // nodes)):
            return (*sizes, nodes)
    return None


def _uniform(levels: tuple[Level, ...]) -> bool:
    return len({level.bytes_per_s for level in levels}) == 1


def _slice(levels: tuple[Level, ...], n: int) -> tuple[int, ...]:
    """As `_way`; raises InferometerError where there is none."""
    sides = _way(levels, n)
    if sides is None:
        raise _no_slice(n, tuple(level.max_size for level in levels))
    return sides


def _way(levels: tuple[Level, ...], n: int) -> tuple[int, ...] | None:
    """Return the sides of a slice of `n` chips: the most cubic; where links differ, as little as can be of the thin."""
    limits = tuple(level.max_size for level in levels)
    if _uniform(levels):
        return _cubic(n, limits)
    ways = {way for sides in _factorings(n, len(levels)) for way in permutations(sides)}
    fits = [way for way in ways if all(a <= b for a, b in zip(way, limits, strict=True))]
    thinnest = min(range(len(levels)), key=lambda i: levels[i].bytes_per_s)
    return min(fits, key=lambda way: (way[thinnest], sum(way), way), default=None)


def _no_slice(n: int, limits: tuple[int, ...]) -> InferometerError:
    return InferometerError(f"no slice of {'x'.join(map(str, limits))} has exactly {n} chips; give its sides")


def cubic_slice(n: int, limits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sides, ascending, with product `n` and the least sum that fit a torus of `limits`.

    Raises InferometerError where no slice has exactly `n` chips.

    >>> cubic_slice(16, (16, 20, 28)), cubic_slice(64, (16, 20, 28))
    ((2, 2, 4), (4, 4, 4))
    """
    sides = _cubic(n, limits)
    if sides is None:
        raise _no_slice(n, limits)
    return sides


def _cubic(n: int, limits: tuple[int, ...]) -> tuple[int, ...] | None:
    ordered = sorted(limits)
    fits = [s for s in _factorings(n, len(limits)) if all(a <= b for a, b in zip(s, ordered, strict=True))]
    return min(fits, key=sum, default=None)


def _factorings(n: int, parts: int, least: int = 1) -> list[tuple[int, ...]]:
    """Return every ascending tuple of `parts` factors, each at least `least`, with product `n`."""
    if parts == 1:
        return [(n,)] if n >= least else []
    out = []
    for a in range(least, round(n ** (1 / parts)) + 1):
        if n % a == 0:
            out += [(a, *rest) for rest in _factorings(n // a, parts - 1, a)]
    return out


def _fit(spec: MachineSpec, sizes: tuple[int, ...], text: str) -> tuple[int, ...]:
    """Return one size a level, 1 where none was given; refuse what the machine does not hold."""
    levels = spec.levels
    while not spec.torus and len(sizes) > len(levels) and sizes[-1] == 1:
        sizes = sizes[:-1]  # one node of a machine that is no part of a cluster
    full = sizes + (1,) * (len(levels) - len(sizes))
    if len(full) != len(levels) or not _within(spec, full):
        raise InferometerError(f"machine {text!r}: {spec.id} takes {_form(spec)}")
    return full


def _within(spec: MachineSpec, sizes: tuple[int, ...]) -> bool:
    """Whether the machine holds so many; a slice of a torus with equal links may lie any way round."""
    limits = [level.max_size for level in spec.levels]
    turn = spec.dimensions if spec.torus and _uniform(spec.levels[: spec.dimensions]) else 0
    pairs = zip([*sorted(sizes[:turn]), *sizes[turn:]], [*sorted(limits[:turn]), *limits[turn:]], strict=True)
    return all(size <= limit for size, limit in pairs)


def _form(spec: MachineSpec) -> str:
    """Say which sizes the machine takes."""
    limits = "x".join(str(level.max_size) for level in spec.levels)
    if spec.torus:
        inner = "x".join(str(level.max_size) for level in spec.levels[: spec.dimensions])
        beyond = f", then slices: {limits}" if spec.dimensions < len(spec.levels) else ""
        return f"a slice of up to {inner}{beyond}"
    if len(spec.levels) > CHIPS_AND_NODES:
        return f"{' x '.join(level.name for level in spec.levels)} up to {limits}"
    return f"{'chips x nodes up to' if len(spec.levels) > 1 else 'no more chips than'} {limits}"


def _axes(spec: MachineSpec, sizes: tuple[int, ...]) -> tuple[Axis, ...]:
    """Return the axes in use; the network beyond a torus is one only where slices are joined."""
    return tuple(
        _axis(level, size)
        for i, (level, size) in enumerate(zip(spec.levels, sizes, strict=True))
        if not (spec.torus and i >= spec.dimensions and size == 1)
    )


def _axis(level: Level, size: int) -> Axis:
    """Return `size` chips of a level; a ring that does not close is a line.

    Beyond one leaf of an oversubscribed network every chip has its share of the uplinks, whatever its group; a
    network whose leaves matter is two levels, the leaf and what joins leaves.
    """
    closes = level.wrap_multiple > 0 and size % level.wrap_multiple == 0
    return Axis(
        name=level.name,
        geometry="line" if level.geometry == "ring" and not closes else level.geometry,
        size=size,
        bytes_per_s=level.bytes_per_s / (level.oversubscription_ratio if size > level.oversubscribed_beyond else 1.0),
        latency_s=level.latency_s,
        multicast=level.multicast,
        reduces=level.reduces,
    )
