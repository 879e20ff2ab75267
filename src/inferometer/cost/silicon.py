"""The one module that knows aiconfigurator-core: its tables of timed kernels, as columns of ours in SI units.

Only the layout of its parquet files is relied on (`systems/data/<system>/<family>/<engine>/<version>/<op>.parquet`),
none of its code: a table is found and read where the package lies, without importing it.

Which rows are taken is in FORMS, by what they time. Left out, as they time something else: TensorRT-LLM's products in
fp8 by tensor and in nvfp4 (a quantise pass beside), vLLM's in blocked fp8 (outside CUDA graphs), experts on one rank of
several (other tokens in every engine), fp8 products a head (they quantise inside). Experts are SGLang's, which runs
what most engines do: Triton's on Hopper, those that TensorRT-LLM generates on Blackwell (not MXFP4: unpacked first).
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from inferometer.errors import InferometerError
from inferometer.graph.ops import Column

PACKAGE, PINNED = "aiconfigurator-core", "0.12.0"
INSTALL = "pip install 'inferometer[measured]'"
MISSING = f"backend 'measured' needs {PACKAGE} {PINNED}: {INSTALL}"

SYSTEMS = {
    "a100-80-sxm": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
    "l40s": "l40s",
    "rtxpro6000-server": "rtx_pro_6000_server",
}
"""Chip -> its folder."""

ENGINES = ("trtllm", "vllm", "sglang")
RUN = ("sglang", "vllm", "trtllm")
"""Whose expert blocks are taken: the first that timed any."""


class Timed(NamedTuple):
    """Timed kernels of one form: columns by the letters of the form."""

    columns: Mapping[str, Column]
    seconds: Column


class Tables(Protocol):
    """Where timings come from."""

    def read(self, chip: str, form: str) -> Timed | None:
        """Return the timings of a form on a chip; None where there are none."""
        ...


class Rows(NamedTuple):
    """Where rows of a form lie, and how they are told."""

    family: str
    file: str
    letters: Mapping[str, str]
    """Ours -> column of the table."""
    where: Mapping[str, str]
    """Column -> value that rows must have."""
    engines: tuple[str, ...]
    first_only: bool = False
    """Whether the first engine that has rows is taken, or all of them."""


_GEMM = {"m": "m", "n": "n", "k": "k"}
_HEADS = {"heads": "num_heads", "kv_heads": "num_key_value_heads", "dim": "head_dim"}
_DECODE = {"batch": "batch_size", "isl": "isl", "step": "step", **_HEADS}
_PREFILL = {"batch": "batch_size", "isl": "isl", **_HEADS}
_MLA = {"batch": "batch_size", "isl": "isl", "step": "step", "heads": "num_heads"}
MOE = {
    "tokens": "num_tokens",
    "hidden": "hidden_size",
    "width": "inter_size",
    "top_k": "topk",
    "experts": "num_experts",
    "tp": "moe_tp_size",
    "ep": "moe_ep_size",
}
"""Ours -> columns of the tables of expert blocks."""


def _gemm(dtype: str, *engines: str) -> Rows:
    return Rows("gemm", "gemm_perf", _GEMM, {"gemm_dtype": dtype}, engines)


def _core(file: str, letters: Mapping[str, str], kv: str, *engines: str) -> Rows:
    where = {"attn_dtype": "bfloat16", "kv_cache_dtype": kv, "window_size": "0"}
    return Rows("attention", file, letters, where, engines)


def _mla(file: str, kv: str) -> Rows:
    return Rows("mla", file, _MLA, {"mla_dtype": "bfloat16", "kv_cache_dtype": kv}, ("trtllm", "sglang"), True)


def _bmm(part: str) -> Rows:
    where = {"op_name": f"mla_gen_{part}", "bmm_dtype": "bfloat16"}
    return Rows("mla_bmm", "mla_bmm_perf", {"m": "num_tokens", "heads": "num_heads"}, where, ENGINES)


def _moe(dtype: str, *engines: str) -> Rows:
    where = {"moe_dtype": dtype, "distribution": "balanced", "moe_ep_size": "1"}
    return Rows("moe", "moe_perf", MOE, where, engines, True)


FORMS = {
    "gemm.bf16": _gemm("bfloat16", *ENGINES),
    "gemm.fp8": _gemm("fp8", "sglang", "vllm"),
    "gemm.fp8-block": _gemm("fp8_block", "sglang", "trtllm"),
    "gemm.fp4": _gemm("nvfp4", "sglang", "vllm"),
    "bmm-in.bf16": _bmm("pre"),
    "bmm-out.bf16": _bmm("post"),
    "moe.bf16": _moe("bfloat16", *RUN),
    "moe.fp8": _moe("fp8", "trtllm", "vllm"),
    "moe.fp8-block": _moe("fp8_block", *RUN),
    "moe.fp4": _moe("nvfp4", *RUN),
    "moe.mxfp4-bf16": _moe("w4a16_mxfp4", "vllm", "trtllm"),
    "decode.kv16": _core("generation_attention_perf", _DECODE, "bfloat16", "vllm"),
    "decode.kv8": _core("generation_attention_perf", _DECODE, "fp8", "vllm"),
    "prefill.kv16": _core("context_attention_perf", _PREFILL, "bfloat16", "vllm", "trtllm"),
    "prefill.kv8": _core("context_attention_perf", _PREFILL, "fp8", "vllm", "trtllm"),
    "mla-decode.kv16": _mla("generation_mla_perf", "bfloat16"),
    "mla-decode.kv8": _mla("generation_mla_perf", "fp8"),
    "mla-prefill": _mla("context_mla_perf", "bfloat16"),
}
"""What can be timed -> where."""

OPTIONAL = ("window_size",)
"""Columns that older tables lack, all of whose rows are as FORMS wants them."""

LEAST_ROWS = 100
"""An engine with fewer rows of a form than this has not timed it."""


class Silicon:
    """The tables of the installed package, read when first asked for and kept."""

    def __init__(self) -> None:
        """Find the package; raises InferometerError, one line, where it is not installed."""
        self.version = installed_version()
        spec = find_spec(PACKAGE.replace("-", "_"))
        if self.version is None or spec is None or not spec.submodule_search_locations:
            raise InferometerError(MISSING)
        self._data = Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"
        self._read: dict[tuple[str, str], Timed | None] = {}
        self._files: dict[tuple[Path, tuple[str, ...]], Any] = {}

    def read(self, chip: str, form: str) -> Timed | None:
        """Return the timings of a form on a chip; None where there are none.

        Raises InferometerError for a file that does not look as in the version that is pinned.
        """
        key = (chip, form)
        if key not in self._read:
            self._read[key] = self._timed(FORMS[form], SYSTEMS[chip]) if chip in SYSTEMS else None
        return self._read[key]

    def tables_of(self, system: str, family: str, file: str) -> Iterator[tuple[str, str, Path]]:
        """Yield (engine, version, path) of every table of an operation on a system."""
        for engine in ENGINES:
            for path in sorted((self._data / system / family / engine).glob(f"*/{file}.parquet")):
                yield engine, path.parent.name, path

    def _timed(self, rows: Rows, system: str) -> Timed | None:
        parts = []
        for engine in rows.engines:
            found = self._fullest(rows, self._data / system / rows.family / engine)
            if found is not None and len(found.seconds) >= LEAST_ROWS:
                parts.append(found)
                if rows.first_only:
                    break
        if not parts:
            return None
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in rows.letters}
        return Timed(columns, np.concatenate([part.seconds for part in parts]))

    def _fullest(self, rows: Rows, folder: Path) -> Timed | None:
        """Return the timings of the version of an engine that has most of them."""
        found = [self._file(rows, file) for file in sorted(folder.glob(f"*/{rows.file}.parquet"))]
        return max(found, key=lambda one: len(one.seconds), default=None)

    def _file(self, rows: Rows, file: Path) -> Timed:
        names = (*rows.letters.values(), *rows.where, "kernel_source", "latency")
        if (file, names) not in self._files:
            self._files[file, names] = _columns(file, names)
        raw = self._files[file, names]
        keep = np.ones(len(raw["latency"]), dtype=np.bool_)
        for name, value in rows.where.items():
            if name in raw:
                keep &= raw[name].astype(str) == value
        keep &= np.char.find(raw["kernel_source"].astype(str), "nongated") < 0
        columns = {name: raw[own][keep].astype(np.float64) for name, own in rows.letters.items()}
        return Timed(columns, raw["latency"][keep].astype(np.float64) * 1e-3)


def _columns(file: Path, names: tuple[str, ...]) -> Mapping[str, Any]:
    parquet = import_module("pyarrow.parquet")
    try:
        opened = parquet.ParquetFile(file)
        wanted = [name for name in names if name in opened.schema_arrow.names or name not in OPTIONAL]
        table = opened.read(columns=wanted)
        return {name: np.asarray(table[name]) for name in wanted}
    except (OSError, KeyError, ValueError) as error:
        raise InferometerError(f"{file.name} is not as in {PACKAGE} {PINNED}: {error}; {INSTALL}") from None


def installed_version() -> str | None:
    """Return the version of the package that is installed, None without one."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def forms_of(tables: Tables, chip: str) -> Iterator[str]:
    """Yield the forms that are timed on a chip."""
    yield from (form for form in FORMS if tables.read(chip, form) is not None)
