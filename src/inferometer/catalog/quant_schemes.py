"""Named quantisation schemes, each with its source; a plain format is the scheme that takes every linear weight."""

import tomllib
from functools import lru_cache
from types import MappingProxyType

from inferometer.catalog.tables import read_data
from inferometer.catalog.userfile import convert
from inferometer.errors import InferometerError, unknown_name
from inferometer.specs.formats import DTYPE_ALIASES, FORMATS
from inferometer.specs.quant import QuantScheme

FILE = "quant_schemes.toml"


@lru_cache(maxsize=1)
def load_schemes() -> MappingProxyType[str, QuantScheme]:
    """Return name -> scheme; read once. Raises InferometerError for one without a source or with an unknown format."""
    found = {}
    for table in tomllib.loads(read_data(FILE))["scheme"]:
        scheme = convert(f"{FILE}: {table.get('name')}", table, QuantScheme)
        used = (scheme.format, scheme.router, scheme.embedding, scheme.head, *(rule.format for rule in scheme.rules))
        if missing := [name for name in used if name is not None and name not in FORMATS]:
            raise InferometerError(f"{FILE}: {scheme.name}: unknown format {missing[0]!r}")
        if not scheme.source:
            raise InferometerError(f"{FILE}: {scheme.name} has no source")
        found[scheme.name] = scheme
    return MappingProxyType(found)


def find_scheme(name: str) -> QuantScheme:
    """Return the scheme called `name`: one of the catalogue, or a format for every linear weight.

    Raises UnknownNameError for a name that is neither.

    >>> find_scheme("int4").format, find_scheme("fp8").format, find_scheme("Q4_K_M").head
    ('int4-g128', 'fp8', 'q6_k')
    """
    schemes = load_schemes()
    key = name.strip().lower()
    if key in schemes:
        return schemes[key]
    formats = {known: form for known, form in FORMATS.items() if form.compute}
    form = formats.get(DTYPE_ALIASES.get(key, key))
    if form is None:
        raise unknown_name("quantisation scheme", name[:60], {*schemes, *formats})
    return QuantScheme(name=form.name, format=form.name, source=form.source)
