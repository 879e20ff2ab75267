"""Every float and every float array says its unit in its name."""

import dataclasses
import re
import typing

import msgspec
import numpy as np
import pytest
from repo.tree import package_types

QUANTITIES = "s|bytes|flops|usd|w|j|tok|tokens|requests|sequences|steps|messages"
PER = "s|hour|month|chip|chip_hour|step|pass|layer|token|tok|sequence|request|user|flop|element"
MONEY_PER = "mtok|mtok_output|mtok_input|mtok_blended"
UNIT = re.compile(rf"(?:^|_)(?:{QUANTITIES})(?:_per_(?:{PER}|{MONEY_PER}))*$")

PLAIN_NUMBERS = re.compile(r"^(?:n|num)_|(?:^|_)(?:ratio|fraction|share|efficiency|utilization|count)$")
"""Counts and ratios that say so."""

ALLOWED = {
    "mfu": "ratio: model flops utilisation",
    "mbu": "ratio: memory bandwidth utilisation",
    "low": "lower end of the band, in the unit of the value it stands beside",
    "high": "upper end of the band, same",
    "batch": "count: sequences in flight",
    "times": "ratio: how many times as long",
    "common": "ratio: how many times as long on a generation without its own",
    "folds": "ratios: how many times as long, by fold",
    "speedup": "ratio: speculative over plain decoding",
    "replication": "ratio: issued over useful work",
    "launches": "count: kernels that an engine launches for an op",
    "padding": "ratio: tokens of full lock-step ranks over tokens there are",
    "shards": "count: ways a tensor is split",
    "sizes": "counts: sizes of roles, by role",
    "group_sizes": "counts: ranks of a role, by role",
    "multiplicities": "counts: blocks of a segment in a stage",
    "stage_counts": "counts: stages of a kind",
    "best": "objective of a search, in the unit of what it ranks by",
    "score": "same",
    "bound": "same",
    "ceiling": "count: sequences of a rank",
    "cpu_offload_gb": "GiB, as vLLM spells its flag",
    "kv_cpu_gb": "GiB, as the flag of offloaded weights",
    "kv_disk_gb": "same",
    "prefixes": "count: prefixes that a tier holds",
    "rows": "count: rows of a matrix product",
    "features": "count: columns of a matrix product",
    "items": "count: independent pieces of an op",
    "kernels": "count: kernels of an op",
    "summed": "count: ranks whose sums an op takes in",
    "units": "count: arithmetic units of a chip",
    "ramp_rows": "count: queries at which attention reaches half its rate",
    "fill": "ratio: waste of waves that is real",
    "piece": "count: depth of a product",
    "depth": "count: depth of a product",
    **dict.fromkeys(("fixed", "grouped", "memory", "experts", "links"), "ratio: factor on what kernels were timed at"),
    **dict.fromkeys(("wide_low", "wide_high"), "ratio: ends of a band, true over predicted time"),
    **dict.fromkeys(("apart", "alike"), "ratio: two steps that differ by less cannot be told apart"),
    **dict.fromkeys(("error_shipped", "error_left_out"), "ratio: median |predicted / measured - 1|"),
    **dict.fromkeys(("measured", "shipped", "fitted", "left_out"), "in the unit of the run's metric, beside it"),
    "factors": "ratios: factors on what kernels were timed at, by name",
    "expert_skew": "exponent of a power law",
    "axes": "knots of coordinates, each of a unit of its own",
    "sure": "how near a timing is, 0 to 1",
    **dict.fromkeys(("coverage", "without", "any_sharding", "one_sharding"), "figures of errors: counts and ratios"),
    "held_out": "figures of errors: counts and ratios",
    "figures": "same",
    **dict.fromkeys(("price", "start"), "coefficients of a form, each in the unit its fit says"),
    "acceptance": "chance that a drafted token is taken",
    "accepted": "mean of drafted tokens taken a pass",
    "break_even": "dollars of a million tokens, as its flag is spelled",
    "capex": "dollars, same",
    "years": "years, same",
    "lifetime_years": "years",
    "kwh": "dollars of a kWh, same",
    "usd_per_kwh": "dollars of a kWh",
    "pue": "ratio, same",
    "contexts": "tokens in the KV cache, with the share of passes that see them",
    **dict.fromkeys(("r", "pp", "dpa", "tp", "ep", "etp", "dcp"), "count: size of a role"),
}
"""Field name -> why it needs no unit."""


def holds_floats(hint: object) -> bool:
    """Whether values of a type hold floats: float, float arrays, and containers of them."""
    if hint is float or hint is np.ndarray:
        return True
    if isinstance(hint, type) and issubclass(hint, np.floating):
        return True
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is np.ndarray:
        inner = inner[1:]  # the first argument is the shape
    return any(holds_floats(argument) for argument in inner)


def fields_without_unit(cls: type) -> list[str]:
    """Names of the public float fields of a struct or dataclass that state no unit."""
    own = msgspec.structs.fields(cls) if issubclass(cls, msgspec.Struct) else dataclasses.fields(cls)
    hints = typing.get_type_hints(cls)
    public = [field.name for field in own if not field.name.startswith("_")]
    names = [name for name in public if holds_floats(hints[name])]
    stated = (UNIT.search, PLAIN_NUMBERS.search, ALLOWED.get)
    return [name for name in names if not any(says(name) for says in stated)]


def test_every_float_field_states_its_unit():
    missing = [
        f"{cls.__module__}.{cls.__name__}.{name}" for cls in package_types() for name in fields_without_unit(cls)
    ]
    assert not missing, "float fields without a unit suffix (SI, see ALLOWED for counts and ratios):\n" + "\n".join(
        missing
    )


def test_the_package_has_types_to_check():
    assert any(cls.__name__ == "ChipSpec" for cls in package_types())


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("step_s", True),
        ("memory_bytes_per_s", True),
        ("kv_bytes_per_sequence_per_chip", True),
        ("usd_per_mtok_output", True),
        ("tok_per_s_per_user", True),
        ("usd_per_chip_hour", True),
        ("n_chips", True),
        ("hit_ratio", True),
        ("latency_ms", False),
        ("memory_gb", False),
        ("nic_speed_gbps", False),
        ("bandwidth", False),
    ],
)
def test_which_names_state_a_unit(name, ok):
    cls = dataclasses.make_dataclass("Probe", [(name, float)])
    assert (fields_without_unit(cls) == []) is ok


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (float, True),
        (float | None, True),
        (dict[str, float], True),
        (np.typing.NDArray[np.float64], True),
        (tuple[np.typing.NDArray[np.float64], ...], True),
        (np.typing.NDArray[np.bool_], False),
        (int, False),
        (dict[str, str], False),
    ],
)
def test_which_types_hold_floats(hint, expected):
    assert holds_floats(hint) is expected
