"""Questions about memory: does it fit, how many sequences, how long; by the rules of the engine named."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from inferometer.api.memory_ask import MemorySettings, Question, ask, broken
from inferometer.api.memory_near import nearest
from inferometer.api.memory_tiers import tier_notes, tiers
from inferometer.api.notes import beyond_context, of_engine
from inferometer.api.questions import estimate
from inferometer.api.settings import Settings, of_deployment
from inferometer.errors import InferometerError
from inferometer.memory.asked import Asked
from inferometer.memory.plan import plan
from inferometer.memory.solve import max_batch as most_sequences
from inferometer.memory.solve import max_context as most_tokens
from inferometer.memory.solve import with_context
from inferometer.report.answer import Answer
from inferometer.report.memory import MemoryAnswer, Most
from inferometer.specs.hardware import Machine
from inferometer.specs.model import ModelSpec


def memory(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Mapping[str, int] | None = None,
    **settings: Unpack[MemorySettings],
) -> MemoryAnswer:
    """Return a chip's memory line by line as an engine divides it, whether it fits, and the nearest change that would.

    Parameters are those of `estimate`; settings are `MemorySettings`. Raises InferometerError for input that makes no
    sense; what does not fit has `.reasons`.

    >>> memory("llama-3.1-8b", "h100", engine="vllm@0.24", context=16000).plan.tightest.pools.block_size
    16
    """
    question = ask(model, machine, sizes or {}, settings)
    found = answer(question)
    if not found.fits:
        return replace(found, nearest=tuple(nearest(question)))
    return replace(found, recompute_s=_recompute_s(question, found)) if found.tiers else found


def _recompute_s(question: Question, found: MemoryAnswer) -> dict[int, float]:
    """Return tokens of a prefix -> its prefill, a prompt on each rank, by the default backend; nothing where unknown.

    A pipeline is not asked: of one prompt it would be a single stage's.
    """
    asked, priced = question.asked, {}
    for tokens in {tier.prefix_tokens for tier in found.tiers if tier.prefix_tokens and asked.sizes.pp == 1}:
        try:
            one = estimate(
                asked.model,
                question.machine,
                question.asked.sizes,
                batch=asked.ranks,
                isl=tokens,
                phase="prefill",
                engine=question.spec.id,
            )
        except InferometerError:
            continue
        priced[tokens] = one.estimate.step_s
    return priced


def max_batch(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Mapping[str, int] | None = None,
    **settings: Unpack[MemorySettings],
) -> Most:
    """Return the most sequences in flight that fit, over the whole deployment; 0 where none does.

    >>> max_batch("qwen2.5-7b", "rtx4090", context=4096).value
    31
    """
    return _most(ask(model, machine, sizes or {}, settings), "batch")


def max_context(
    model: ModelSpec | str,
    machine: Machine | str,
    sizes: Mapping[str, int] | None = None,
    **settings: Unpack[MemorySettings],
) -> Most:
    """Return the longest sequences that fit with the batch asked for, up to what the model states; 0: not one token."""
    return _most(ask(model, machine, sizes or {}, settings), "context")


def _most(question: Question, what: str) -> Most:
    asked = question.asked
    if broken(question):
        value = 0
    else:
        value = most_sequences(asked) if what == "batch" else most_tokens(asked, serve=question.serves)
    left = {name: shown for name, shown in question.assumed.items() if name != what}
    found = answer(replace(question, asked=_with(question, what, max(value, 1)), assumed=left))
    return Most(value=value, memory=found)


def _with(question: Question, what: str, value: int) -> Asked:
    if what == "batch":
        return replace(question.asked, batch=value)
    return with_context(question.asked, value, serve=question.serves)


def would_fit(model: ModelSpec | str, answer: Answer, sizes: Mapping[str, int], settings: Settings) -> tuple[str, ...]:
    """Return single changes under which a deployment that an engine's memory has no room for would fit.

    `sizes` and `settings` are those it was asked with. Empty where memory is not what refuses it.
    """
    problem, priced = answer.problem, answer.estimate
    if problem.asked is None or not priced.memory.deficit_bytes:
        return ()
    held = of_deployment(settings, context=problem.max_length, batch=priced.batch)
    return tuple(nearest(ask(model, problem.machine, sizes, held)))


def answer(question: Question) -> MemoryAnswer:
    """Return the answer to a question, without what would fit instead."""
    asked = question.asked
    longest = max(asked.context, asked.max_model_len)
    divided = plan(asked)
    beside = tiers(divided)
    return MemoryAnswer(
        plan=divided,
        tiers=beside,
        machine=question.machine,
        engine=question.engine,
        illegal=broken(question),
        assumed=question.assumed,
        diagnostics=(
            *of_engine(asked.rules, question.machine.chip, eager=asked.eager),
            *(() if asked.rules.refuses_beyond_context else beyond_context(asked.model, longest, "--context")),
            *tier_notes(divided, beside),
        ),
    )
