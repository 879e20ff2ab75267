"""The verbs about memory: memory, max-batch, max-context."""

import typer

from inferometer.api import memory as asked
from inferometer.api.load import load_model
from inferometer.api.memory_ask import MemorySettings
from inferometer.cli.options import Options
from inferometer.cli.verbs import NOT_FEASIBLE, check_output, machines, out, role_sizes, say
from inferometer.errors import InferometerError
from inferometer.report.fit import fit_row, print_fits
from inferometer.report.memory import MemoryAnswer, Most, memory_row, most_row, print_memory
from inferometer.report.row import dumps
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec


def memory(options: Options) -> None:
    """Print a chip's memory; exit 1 where what is asked for does not fit."""
    check_output(options)
    model, machine, sizes = _subject(options)
    answer = asked.memory(model, machine, sizes, **settings(options))
    if options.json:
        out(dumps(memory_row(answer)))
    else:
        _print(answer)
    if not answer.fits and options.json:
        say("does not fit: " + "; ".join(answer.reasons))
        for near in answer.nearest:
            say(f"would fit: {near}")
    if not answer.fits:
        raise typer.Exit(NOT_FEASIBLE)


def fit(options: Options) -> None:
    """Answer for each device of this machine; exit 1 where nothing is found or it fits in none."""
    from inferometer.api.fit import fit as answers

    check_output(options)
    found = answers(options.model, **settings(options))
    if not found.fits:
        say(f"no accelerator found; looked for {found.looked}; memory MODEL CHIP answers for one that is not here")
        raise typer.Exit(NOT_FEASIBLE)
    if options.json:
        for one in found.fits:
            out(dumps(fit_row(one)))
    else:
        from inferometer.report.tables import Page

        print_fits(Page(), found.fits)
    if not any(one.memory.fits for one in found.fits):
        raise typer.Exit(NOT_FEASIBLE)


def max_batch(options: Options) -> None:
    """Print the most sequences that fit; exit 1 where none does."""
    check_output(options)
    model, machine, sizes = _subject(options)
    _most(options, asked.max_batch(model, machine, sizes, **settings(options)), "sequences in flight")


def max_context(options: Options) -> None:
    """Print the longest sequences that fit; exit 1 where not one token does."""
    check_output(options)
    model, machine, sizes = _subject(options)
    _most(options, asked.max_context(model, machine, sizes, **settings(options)), "tokens a sequence")


def _most(options: Options, most: Most, what: str) -> None:
    if options.json:
        out(dumps(most_row(most)))
    else:
        out(f"{most.value:,} {what}{_limit(most, what)}")
        out("")
        _print(most.memory)
    if not most.value:
        say("nothing fits: " + "; ".join(most.memory.reasons))
        raise typer.Exit(NOT_FEASIBLE)


def _limit(most: Most, what: str) -> str:
    """Return what stops it where that is not memory."""
    longest = most.memory.plan.asked.model.max_context
    return ", the most that the model states" if "tokens" in what and most.value == longest else ""


def _print(answer: MemoryAnswer) -> None:
    from inferometer.report.tables import Page

    print_memory(Page(), answer)


def _subject(options: Options) -> tuple[ModelSpec, Machine, dict[str, int]]:
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    (machine, *more) = machines(options, sizes).values()
    if more:
        raise InferometerError("memory takes one CHIP; search takes several")
    return model, machine, sizes


def settings(options: Options) -> MemorySettings:
    """Return the settings that were typed."""
    return MemorySettings(
        quant=options.quant,
        kv_cache_dtype=options.kv_cache_dtype,
        state_dtype=options.state_dtype,
        conv_state=not options.no_conv_state,
        cut_latents=options.cut_latents,
        state_slots=options.state_slots,
        engine=options.engine,
        context=options.context,
        batch=options.batch_size,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        gpu_memory_utilization=options.gpu_memory_utilization,
        reserve_bytes=options.reserve_bytes,
        enforce_eager=options.enforce_eager,
        enable_prefix_caching=options.enable_prefix_caching,
        n_gpu_layers=options.n_gpu_layers,
        cpu_offload_gb=options.cpu_offload_gb,
        kv_cpu_gb=options.kv_cpu_gb,
        kv_disk_gb=options.kv_disk_gb,
        lora_adapters=options.lora_adapters,
        lora_rank=options.lora_rank,
        what_if=options.what_if,
    )
