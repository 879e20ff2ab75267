"""Parameters of a model on a page: by kind of tensor or by layer, by stored format, and against files at hand."""

from typing import Any

from rich.table import Table

from inferometer.report.tables import GIB, table


def params_table(row: dict[str, Any]) -> Table:
    """Return the parameters of one model by kind of tensor."""
    grid = table(["<tensors", "parameters", "share", "GiB"], title=row["model"])
    total, held = row["total_params"], row["bytes_by_kind"]
    for kind, number in sorted(row["by_kind"].items(), key=lambda item: -item[1]):
        grid.add_row(kind, f"{number:,}", f"{number / total:.2%}", f"{held[kind] / GIB:,.2f}")
    return _with_totals(grid, row)


def layers_table(row: dict[str, Any]) -> Table:
    """Return the parameters of one model by layer, consecutive ones of a kind together; the ends below."""
    heads = ["<layers", "<kind", "mixer\neach", "feed-forward\neach", "all", "share", "GiB"]
    grid = table(heads, title=row["model"])
    total, counted, held = row["total_params"], 0, 0
    for run in row["layers"]:
        layers = run["last"] - run["first"] + 1
        number = layers * (run["mixer_params"] + run["ffn_params"] + run["other_params"])
        counted, held = counted + number, held + layers * run["stored_bytes"]
        grid.add_row(
            f"{run['first']}" if layers == 1 else f"{run['first']}-{run['last']}",
            run["kind"],
            f"{run['mixer_params']:,}",
            f"{run['ffn_params']:,}",
            f"{number:,}",
            f"{number / total:.2%}",
            f"{layers * run['stored_bytes'] / GIB:,.2f}",
        )
    rest, rest_bytes = total - counted, sum(row["bytes_by_kind"].values()) - held
    grid.add_row("", "embedding, head, others", "", "", f"{rest:,}", f"{rest / total:.2%}", f"{rest_bytes / GIB:,.2f}")
    grid.add_section()
    grid.add_row("", "total", "", "", f"{total:,}", "100%", f"{sum(row['bytes_by_kind'].values()) / GIB:,.2f}")
    return grid


def _with_totals(grid: Table, row: dict[str, Any]) -> Table:
    total = row["total_params"]
    grid.add_section()
    grid.add_row("total", f"{total:,}", "100%", f"{sum(row['bytes_by_kind'].values()) / GIB:,.2f}")
    grid.add_row("active per token", f"{row['active_params']:,}", f"{row['active_params'] / total:.2%}", "")
    one_table = row["active_params_one_table"]
    grid.add_row("active, without the input table", f"{one_table:,}", f"{one_table / total:.2%}", "")
    if row["mtp_params"]:
        grid.add_row("drafters (MTP, DSPARK), not in the total", f"{row['mtp_params']:,}", "", "")
    return grid


def dtypes_table(row: dict[str, Any]) -> Table:
    """Return the parameters by the format they are stored in."""
    grid = table(["<stored as", "parameters", "share"])
    for name, number in sorted(row["by_dtype"].items(), key=lambda item: -item[1]):
        grid.add_row(name, f"{number:,}", f"{number / row['total_params']:.2%}")
    return grid


def checkpoint_text(row: dict[str, Any]) -> list[str]:
    """Return the bytes of the checkpoint, and how files at hand differ from what the config says."""
    files = row["files"]
    if files is None:
        return [f"checkpoint {row['checkpoint_bytes'] / GIB:,.2f} GiB"]
    where = f"{files['tensors']:,} tensors in {files['files']} files" if files["files"] else "the index alone"
    mtp = f", of them {files['mtp_bytes'] / GIB:,.2f} GiB MTP" if files["mtp_bytes"] else ""
    more = row["checkpoint_bytes"] - files["derived_bytes"]
    lines = [f"checkpoint {files['stored_bytes'] / GIB:,.2f} GiB: {where}{mtp}"]
    if not more and not files["difference_by_kind"]:
        return [*lines, "the config says the same, to the byte"]
    kinds = ", ".join(f"{kind} {size:+,}" for kind, size in files["difference_by_kind"].items())
    share = f" ({more / files['derived_bytes']:+.3%})" if files["derived_bytes"] else ""
    told = f": {kinds}" if kinds else ""
    return [*lines, f"differs by {more:+,} bytes{share} from the {files['derived_bytes']:,} of the config{told}"]
