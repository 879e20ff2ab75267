"""The header of a GGUF file: metadata and tensor infos, never the tensors. The file is hostile until read.

Layout (ggml-org/ggml docs/gguf.md): magic, version, counts, key-value pairs, tensor infos; little-endian.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from inferometer.errors import InferometerError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_TENSORS = 200_000
MOST_PAIRS = 10_000
MOST_ITEMS = 4_000_000
"""Entries of all arrays together: vocabularies have a few hundred thousand."""
MOST_TEXT = 1 << 20
"""Bytes of one string: chat templates are the longest."""
MOST_DIMENSIONS = 4
MOST_SIZE = 1 << 40
DEEPEST = 2
KEPT_ITEMS = 4096
"""Longer arrays (vocabularies) are passed over."""

TYPES = {
    0: "fp32",
    1: "fp16",
    2: "q4_0",
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    8: "q8_0",
    10: "q2_k",
    11: "q3_k",
    12: "q4_k",
    13: "q5_k",
    14: "q6_k",
    16: "iq2_xxs",
    17: "iq2_xs",
    18: "iq3_xxs",
    19: "iq1_s",
    20: "iq4_nl",
    21: "iq3_s",
    22: "iq2_s",
    23: "iq4_xs",
    29: "iq1_m",
    30: "bf16",
    34: "tq1_0",
    35: "tq2_0",
    39: "mxfp4",
}
"""ggml_type -> our format (ggml-org/llama.cpp ggml/include/ggml.h)."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


class TensorInfo(NamedTuple):
    """One tensor: its sizes as the file has them (columns first), and its format."""

    shape: tuple[int, ...]
    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a file says before its tensors."""

    metadata: dict[str, Any]
    """Long arrays are left out."""
    tensors: dict[str, TensorInfo]


class _Reader:
    """Bounded reads of a file."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self.stream, self.where = stream, where
        self.items = 0

    def error(self, said: str) -> InferometerError:
        return InferometerError(f"{self.where}: {said}")

    def take(self, n: int) -> bytes:
        raw = self.stream.read(n)
        if len(raw) != n:
            raise self.error("ends inside its header: no GGUF file, or only a part of one")
        return raw

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def count(self, what: str, most: int) -> int:
        n = int(self.number("Q"))
        if n > most:
            raise self.error(f"says it has {n} {what}; allowed: {most}")
        return n

    def text(self) -> str:
        return self.take(self.count("bytes in a string", MOST_TEXT)).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind != _ARRAY or depth >= DEEPEST:
            raise self.error(f"has a value of the unknown type {kind}")
        return self._array(depth)

    def _array(self, depth: int) -> list[Any] | None:
        inner = int(self.number("I"))
        n = self.count("items in an array", MOST_ITEMS)
        self.items += n
        if self.items > MOST_ITEMS:
            raise self.error(f"has more than {MOST_ITEMS} items in its arrays")
        read: Callable[[], Any] = lambda: self.value(inner, depth + 1)  # noqa: E731 (one call or many)
        if inner in _SCALARS and n > KEPT_ITEMS:
            self.take(n * struct.calcsize(f"<{_SCALARS[inner]}"))
            return None
        found = []
        for _ in range(n):
            item = read()
            if n <= KEPT_ITEMS:
                found.append(item)
        return found if n <= KEPT_ITEMS else None


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file; raises InferometerError, one line, for a file that is none."""
    try:
        with path.open("rb") as stream:
            return _header(_Reader(stream, str(path)))
    except OSError as error:
        raise InferometerError(f"{path}: {error.strerror or error}") from None


def _header(reader: _Reader) -> GgufHeader:
    if reader.stream.read(len(MAGIC)) != MAGIC:
        raise reader.error("is no GGUF file: it does not begin with GGUF")
    version = int(reader.number("I"))
    if version not in VERSIONS:
        raise reader.error(f"is GGUF version {version}; allowed: {', '.join(map(str, VERSIONS))}")
    tensors, pairs = reader.count("tensors", MOST_TENSORS), reader.count("keys", MOST_PAIRS)
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = reader.text()
        value = reader.value(int(reader.number("I")))
        if value is not None:
            metadata[key] = value
    return GgufHeader(metadata=metadata, tensors=dict(_tensor(reader) for _ in range(tensors)))


def _tensor(reader: _Reader) -> tuple[str, TensorInfo]:
    name, dimensions = reader.text(), int(reader.number("I"))
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise reader.error(f"has a tensor of {dimensions} dimensions; allowed: 1 to {MOST_DIMENSIONS}")
    shape = tuple(int(reader.number("Q")) for _ in range(dimensions))
    if not all(1 <= size <= MOST_SIZE for size in shape):
        raise reader.error(f"has a tensor with the shape {shape}")
    kind = int(reader.number("I"))
    reader.number("Q")  # where its data is
    if kind not in TYPES:
        raise reader.error(f"stores {name[:80]} in the unknown type {kind}")
    return name, TensorInfo(shape, TYPES[kind])
