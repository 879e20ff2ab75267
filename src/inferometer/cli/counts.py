"""The verbs that count and price nothing: ops, kv."""

from inferometer.api.counts import count, size_cache
from inferometer.api.load import load_machine, load_model
from inferometer.api.sizes import chips_of
from inferometer.cli.options import Options
from inferometer.cli.verbs import check_output, out, role_sizes, say, say_unused, settings
from inferometer.errors import InferometerError
from inferometer.report.row import dumps


def ops(options: Options) -> None:
    """List the operations of one pass."""
    check_output(options)
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    if options.machine is not None and options.for_chip is None:
        raise InferometerError(f"MACHINE {options.machine[:40]} needs a CHIP before it")
    machine = None
    if options.for_chip is not None:
        chips = None if options.machine else chips_of(sizes)
        machine = load_machine(options.for_chip, options.machine, chips)
    counts = count(model, machine, sizes, batch=options.batch_size, **settings(options))
    say_unused(options, model)
    if options.json:
        from inferometer.report.ops import ops_row

        out(dumps(ops_row(counts)))
        return
    from inferometer.report.ops_page import print_ops
    from inferometer.report.tables import Page

    print_ops(Page(), counts)
    _assumed(counts.assumed)


def kv(options: Options) -> None:
    """Size the cache of a sequence."""
    check_output(options)
    model = load_model(options.model)
    held = size_cache(
        model,
        role_sizes(options, model),
        context=options.context,
        kv_cache_dtype=options.kv_cache_dtype,
        state_dtype=options.state_dtype,
        conv_state=not options.no_conv_state,
        images=options.images,
        image_size=options.image_size,
    )
    say_unused(options, model)
    from inferometer.report.kv import kv_row, kv_tables

    row = kv_row(held)
    if options.json:
        out(dumps(row))
        return
    from inferometer.report.tables import Page

    page = Page()
    for grid in kv_tables(held, row):
        page.show(grid)
        page.show()
    for note in held.diagnostics:
        page.show(f"{note.name}: {note.text}")
    _assumed(held.assumed)


def _assumed(sentences: tuple[str, ...]) -> None:
    for sentence in sentences:
        say(f"assumed: {sentence}")
