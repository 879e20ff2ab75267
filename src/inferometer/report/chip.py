"""One chip in full: its datasheet, the links of its usual machine, its prices, and the source of each."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from inferometer.report.tables import Page, table
from inferometer.report.text import count
from inferometer.units import format_flops, format_gib, format_rate, format_seconds, format_usd


class Sources:
    """Sources by the number they are printed under; each is listed once."""

    def __init__(self) -> None:
        """Start with none."""
        self.listed: list[str] = []

    def mark(self, *sources: str | None) -> str:
        """Return the numbers of sources as printed, in brackets; a dash where there are none."""
        found = [source for source in dict.fromkeys(sources) if source]
        self.listed += [source for source in found if source not in self.listed]
        return " ".join(f"[{self.listed.index(source) + 1}]" for source in found) or "-"


def print_chip(page: Page, row: Mapping[str, Any]) -> None:
    """Print a row of CHIP_IN_FULL."""
    sources = Sources()
    page.show(f"{row['chip']}: {row['name'] or 'no name'}, {row['vendor'] or 'vendor not stated'}")
    if row["aliases"]:
        page.show(f"also called {', '.join(row['aliases'])}")
    prices = _prices(row, sources) if row["prices"] else "no price known: search and explain take --usd-per-chip-hour"
    for part in (_facts(row, sources), _links(row, sources), prices):
        page.show()
        page.show(part)
    if row["least_chips"] is not None:
        page.show()
        page.show(f"least chips that hold the model's weights: {row['least_chips']:,}")
    page.show()
    for number, source in enumerate(sources.listed, 1):
        page.show(f"[{number}] {source}")


def _facts(row: Mapping[str, Any], sources: Sources) -> Table:
    grid = table(["|chip", "value", "|basis", "|source"])
    for field, name, shown in _shown(row):
        basis = "assumed" if field in row["assumed"] else "sourced"
        whole = field.partition(".")[0]
        grid.add_row(name, shown, basis, sources.mark(row["sources"].get(field, row["sources"].get(whole))))
    return grid


def _shown(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (field, its name on the page, its value)."""
    yield "memory_bytes", "memory, visible", format_gib(row["memory_bytes"])
    yield "memory_bytes_per_s", "memory bandwidth", format_rate(row["memory_bytes_per_s"])
    for dtype, peak in row["peak_flops_per_s"].items():
        yield f"peak_flops_per_s.{dtype}", f"peak {dtype}, dense", format_flops(peak)
    if row["tdp_w"] is not None:
        yield "tdp_w", "power limit", f"{row['tdp_w']:,.0f} W"


def _links(row: Mapping[str, Any], sources: Sources) -> Table:
    heads = ["|level", "|geometry", "up to", "GB/s", "latency", "|source", "|assumed", "|in the switch"]
    grid = table(heads, title=f"links of {row['default_machine']}, a direction")
    for link in row["links"]:
        adds = [word for word in ("multicast", "reduces") if link[word]]
        grid.add_row(
            link["level"],
            link["geometry"],
            f"{link['max_size']:,}",
            count(link["bytes_per_s"] / 1e9),
            format_seconds(link["latency_s"]),
            sources.mark(*link["sources"].values()),
            ", ".join({"bytes_per_s": "GB/s", "latency_s": "latency"}[field] for field in link["assumed"]) or "-",
            ", ".join(adds) or "-",
        )
    return grid


def _prices(row: Mapping[str, Any], sources: Sources) -> Table:
    usd = row["usd_per_chip_hour"]
    taken = "none known" if usd is None else f"{format_usd(usd)} unless told ({row['price_source']})"
    heads = ["$/h", "|provider", "|tier", "|date", "|source", "<region", "<instance"]
    grid = table(heads, title=f"prices of a chip: {taken}")
    for one in row["prices"]:
        grid.add_row(
            f"{one['usd_per_chip_hour']:.2f}",
            *(one[key] or "-" for key in ("provider", "tier", "date")),
            sources.mark(one["source"]),
            *(one[key] or "-" for key in ("region", "instance")),
        )
    return grid
