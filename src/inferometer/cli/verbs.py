"""The verbs about deployments: search, top, explain."""

import sys
from collections.abc import Mapping
from dataclasses import replace

import typer

from inferometer import api
from inferometer.api.load import load_machine, load_model
from inferometer.api.sizes import EngineFlags, chips_of, engine_sizes, parse_sizes
from inferometer.api.whatif import changed, parse_what_if
from inferometer.blocks.kinds import is_moe, keeps_state
from inferometer.cli.options import Options, spelled
from inferometer.cli.progress import Reporter
from inferometer.errors import InferometerError
from inferometer.report.answer import Answer, Ranking
from inferometer.report.row import deployment_row, dumps, explain_row, placement_rows, resident_sequences
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec
from inferometer.units import format_gib

NOT_FEASIBLE = 1
DEFAULT_ORDER = "tok_per_s_per_chip"
MAX_MACHINES = 50
"""More chips in one question are a slip of the comma key."""


def search(options: Options, *, top: int) -> None:
    """Rank deployments; exit 1 where none is feasible."""
    check_output(options)
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    reporter = Reporter(always=options.progress)
    named = machines(options, sizes)
    ranking = api.search(
        model,
        list(named.values()),
        sizes=sizes,
        batch=options.batch_size,
        slo=options.slo,
        by=options.by or DEFAULT_ORDER,
        per_dollar=options.per_dollar,
        top=top if options.top is None else options.top,
        progress=reporter.update if reporter.wanted else None,
        **settings(options),
    )
    reporter.done()
    say_unused(options, model)
    if options.json:
        _print_rows(ranking)
    else:
        _print_table(ranking, options, named)
    if not ranking.answers:
        _say_nearest(ranking)
        raise typer.Exit(NOT_FEASIBLE)


def explain(options: Options) -> None:
    """Explain one deployment, or hold another against it; exit 1 where one is not feasible."""
    check_output(options)
    if options.against is not None and options.placements:
        raise InferometerError("--placements lists one deployment's; leave --against out")
    if options.placements and options.placement is not None:
        raise InferometerError("--placements lists them all; leave --placement out")
    answer = one(options)
    answers, asked = [answer], [options]
    if options.against is not None:
        from inferometer.cli.against import against

        asked.append(against(options, options.against))
        answers.append(one(asked[1]))
        _compare(options, *answers)
    elif options.placements:
        _list_placements(options, answer)
    elif options.json:
        out(dumps(explain_row(answer)))
    else:
        from inferometer.report.explain import print_explanation
        from inferometer.report.tables import Page

        print_explanation(Page(), answer)
    if not all(each.estimate.feasible for each in answers):
        for name, each, words in zip(("A: ", "B: ") if len(answers) > 1 else ("",), answers, asked, strict=True):
            if not each.estimate.feasible:
                say_refused(each, words, name)
        raise typer.Exit(NOT_FEASIBLE)


def say_refused(answer: Answer, options: Options, name: str = "") -> None:
    """Say why a deployment is not feasible, what a chip lacks, and what would fit."""
    say(f"{name}not feasible: " + "; ".join((*answer.estimate.reasons, *room_text(answer))))
    if lacks := lack_text(answer):
        from inferometer.api.memory import would_fit

        say(f"{name}{lacks}")
        model = load_model(options.model)
        for near in would_fit(model, answer, role_sizes(options, model), settings(options)):
            say(f"{name}would fit: {near}")


def lack_text(answer: Answer) -> str:
    """Return what a chip lacks by the engine's own allocator; empty where nothing."""
    lacks = answer.estimate.memory.deficit_bytes
    return f"a chip lacks {format_gib(lacks)}" if lacks else ""


def one(options: Options) -> Answer:
    """Return the one deployment that is asked for."""
    model = load_model(options.model)
    sizes = role_sizes(options, model)
    (machine, *more) = machines(options, sizes).values()
    if more:
        raise InferometerError("explain takes one CHIP; search takes several")
    answer = api.estimate(
        model,
        machine,
        sizes,
        batch=options.batch_size,
        placement=options.placement,
        slo=options.slo,
        **settings(options),
    )
    say_unused(options, model)
    return answer


def _compare(options: Options, a: Answer, b: Answer) -> None:
    if options.json:
        from inferometer.report.compare_row import comparison_row

        out(dumps(comparison_row(a, b)))
        return
    from inferometer.report.compare import print_comparison
    from inferometer.report.tables import Page

    print_comparison(Page(), a, b)


def _list_placements(options: Options, answer: Answer) -> None:
    rows = placement_rows(answer)
    if options.json:
        for row in rows:
            out(dumps(row))
        return
    from inferometer.report.placements import print_placements
    from inferometer.report.tables import Page

    print_placements(Page(), answer, rows)


def check_output(options: Options) -> None:
    """Refuse two forms of output at once."""
    if options.json and options.table:
        raise InferometerError("give --json or --table, not both")


def settings(options: Options) -> api.Settings:
    """Return the settings that were typed."""
    return api.Settings(
        quant=options.quant,
        kv_cache_dtype=options.kv_cache_dtype,
        state_dtype=options.state_dtype,
        conv_state=not options.no_conv_state,
        cut_latents=options.cut_latents,
        state_slots=options.state_slots,
        isl=options.isl,
        osl=options.osl,
        context=options.context,
        images=options.images,
        image_size=options.image_size,
        expert_skew=options.expert_skew,
        distinct_prompts=options.distinct_prompts,
        redundant_experts=options.redundant_experts,
        phase=options.phase,
        draft_tokens=options.draft_tokens,
        all_token_logits=options.all_token_logits,
        engine=options.engine,
        backend=options.backend,
        calibration=options.calibration,
        choice=options.choice,
        scheduler=options.scheduler,
        overlap=options.overlap,
        reserve_bytes=options.reserve_bytes,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        enforce_eager=options.enforce_eager,
        enable_prefix_caching=options.enable_prefix_caching,
        cpu_offload_gb=options.cpu_offload_gb,
        lora_adapters=options.lora_adapters,
        lora_rank=options.lora_rank,
        usd_per_chip_hour=options.usd_per_chip_hour,
        provider=options.provider,
        region=options.region,
        tier=options.tier,
        what_if=options.what_if,
    )


def role_sizes(options: Options, model: ModelSpec) -> dict[str, int]:
    """Return the role sizes typed, in either spelling; raises InferometerError where both are used."""
    flags = EngineFlags(
        tensor=options.tensor_parallel_size,
        pipeline=options.pipeline_parallel_size,
        data=options.data_parallel_size,
        enable_expert=options.enable_expert_parallel,
        expert=options.expert_parallel_size,
        decode_context=options.decode_context_parallel_size,
    )
    if options.sizes is None:
        return engine_sizes(flags, moe=is_moe(model))
    if flags != EngineFlags():
        raise InferometerError("two spellings of one sharding: give --sizes, or vLLM's flags (-tp, -dp, ...), not both")
    return parse_sizes(options.sizes)


def machines(options: Options, sizes: dict[str, int]) -> dict[str, Machine]:
    """Return the machine of each CHIP as typed; without MACHINE it has as many chips as the sizes span."""
    names = chip_names(options.chip)
    return {name: load_machine(name, options.machine, None if options.machine else chips_of(sizes)) for name in names}


def chip_names(text: str) -> list[str]:
    """Return the names of CHIP as typed; raises InferometerError for an empty, a repeated or one too many."""
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(names) > MAX_MACHINES:
        raise InferometerError(f"CHIP {text[:80]!r}: one name, or up to {MAX_MACHINES} with commas between")
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InferometerError(f"CHIP {text[:80]!r} names {repeated} twice")
    return names


def say_unused(options: Options, model: ModelSpec) -> None:
    """Say which options change nothing beside the others, or with this model."""
    states = [
        name
        for name, value in (("--state-dtype", options.state_dtype), ("--state-slots", options.state_slots))
        if value
    ]
    if states and not keeps_state(model):
        say(f"{' and '.join(states)} not used: {model.name} keeps no recurrent state")
    routing = [
        name
        for name, value in (
            ("--expert-skew", options.expert_skew),
            ("--distinct-prompts", options.distinct_prompts),
            ("--redundant-experts", options.redundant_experts),
        )
        if value
    ]
    if routing and not is_moe(model):
        say(f"{' and '.join(routing)} not used: {model.name} has no experts to choose")
    lengths = [name for name, value in (("--isl", options.isl), ("--osl", options.osl)) if value is not None]
    if options.phase == "extend":
        lengths = []
    if options.context is not None and lengths:
        say(f"{' and '.join(lengths)} not used: --context {options.context} replaces the lengths of a request")
    elif options.osl is not None and (
        options.phase in ("prefill", "extend") or (options.phase is None and options.by == "ttft")
    ):
        say("--osl not used: a prefill writes no answer")


def room_text(answer: Answer) -> list[str]:
    """Return the batch that does fit, where only the batch does not."""
    room = resident_sequences(answer)
    too_many = any(reason.startswith("batch-does-not-fit") for reason in answer.estimate.reasons)
    return [f"the most that fits is --batch-size {room}"] if too_many and room else []


def out(line: str) -> None:
    """Print a line of the answer."""
    sys.stdout.write(line + "\n")


def say(line: str) -> None:
    """Print a line beside the answer."""
    sys.stderr.write(line + "\n")


def _print_rows(ranking: Ranking) -> None:
    for answer in ranking.answers or ranking.nearest:
        out(dumps(deployment_row(answer)))


def _print_table(ranking: Ranking, options: Options, named: Mapping[str, Machine]) -> None:
    from inferometer.report.tables import Page, diagnosed, lost_text, question_lines, ranking_table, tied_lines
    from inferometer.report.text import assumed_text

    page = Page()
    answers = ranking.answers or ranking.nearest
    if answers:
        page.show(*question_lines(ranking))
        page.show()
    if ranking.answers:
        page.show(ranking_table(ranking))
        page.show(*tied_lines(ranking))
        page.show()
    page.show(lost_text(ranking))
    if answers:
        order = {} if options.by is not None or options.per_dollar else {"order": ranking.by}
        page.show(f"assumed: {assumed_text(answers[0], **order)}")
    if ranking.answers:
        page.show(*diagnosed(ranking))
        page.show("row 1 in full:")
        page.copyable(f"  {_explain_command(ranking.answers[0], options, named)}")
    say(f"{ranking.seconds:.2f} s")


def _explain_command(best: Answer, options: Options, named: Mapping[str, Machine]) -> str:
    """Return the command that explains a row: what was typed, with the row's own machine, sizes and batch."""
    from inferometer.report.text import sizes_flag

    changes = parse_what_if(options.what_if)
    asked = replace(
        options,
        chip=next(name for name, machine in named.items() if changed(machine, changes)[0] == best.problem.machine),
        batch_size=best.estimate.batch,
        sizes=sizes_flag(best.estimate.sizes),
        phase=options.phase if best.problem.workload.generates else best.problem.workload.phase,
        slo=None,
        tensor_parallel_size=None,
        pipeline_parallel_size=None,
        data_parallel_size=None,
        enable_expert_parallel=False,
        expert_parallel_size=None,
        decode_context_parallel_size=None,
    )
    return spelled("explain", asked)


def _say_nearest(ranking: Ranking) -> None:
    from inferometer.report.text import machine_text, sizes_flag

    if not ranking.nearest:
        lost = ", ".join(f"{n} to {rule}" for rule, n in ranking.lost.items())
        say(f"nothing is feasible: all {ranking.shardings} shardings are lost ({lost})")
    for near in ranking.nearest:
        priced = near.estimate
        why = "; ".join(priced.reasons) or "which is feasible"
        at = f"{machine_text(near.problem)}: {sizes_flag(priced.sizes)}, batch {priced.batch}"
        lacks = lack_text(near)
        say(f"nothing is feasible{' as asked' * priced.feasible}; nearest on {at}: {why}{lacks and f'; {lacks}'}")
    for hint in ranking.hints:
        say(hint)
