"""How fast a model runs on a machine, sharded this way; whether it fits, what it costs, how sure we are.

>>> from inferometer import load_machine
>>> load_machine("h100", "8x2").fabric.n_chips
16
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from inferometer.version import __version__

if TYPE_CHECKING:
    # ruff wants these at run time since __all__ names them; the properties below provide them lazily.
    from inferometer.api import estimate, load_machine, load_model, search  # noqa: TC004
    from inferometer.errors import InferometerError  # noqa: TC004

__all__ = ["InferometerError", "__version__", "estimate", "load_machine", "load_model", "search"]


def _public(name: str) -> Any:
    if name == "InferometerError":
        from inferometer.errors import InferometerError

        return InferometerError
    from inferometer import api

    return getattr(api, name)


class _Package(ModuleType):
    """Names are imported when first asked for: `import inferometer` loads nothing heavy.

    `inferometer.estimate` and `inferometer.search` are functions, and rooms of the same name lie below; importing a
    room sets it here, and these properties let that pass. `from inferometer.estimate.result import ...` finds rooms.
    """

    def _ignore(self, room: object) -> None:
        del room

    estimate = property(lambda _: _public("estimate"), _ignore)
    search = property(lambda _: _public("search"), _ignore)
    load_machine = property(lambda _: _public("load_machine"))
    load_model = property(lambda _: _public("load_model"))
    InferometerError = property(lambda _: _public("InferometerError"))


sys.modules[__name__].__class__ = _Package
