"""From what requests ask for to one pass of one stage, as lowering takes it."""

from collections.abc import Mapping

import msgspec
import numpy as np

from inferometer.blocks.causal import simpson
from inferometer.blocks.images import ImageCount, images_of
from inferometer.blocks.kinds import sees_images
from inferometer.blocks.lowering import Pass
from inferometer.blocks.popularity import USUAL, Routing
from inferometer.estimate.precision import Precision
from inferometer.graph.ops import Column
from inferometer.specs.deployment import Workload
from inferometer.specs.feedforward import Moe
from inferometer.specs.formats import bytes_per_element, find_format
from inferometer.specs.model import ModelSpec


def of_model(work: Workload, model: ModelSpec) -> tuple[Workload, ImageCount | None]:
    """Return the workload with the tokens that its images are to the model, and what one of them is; None without any.

    They are a part of the prompt, or where cross-attention sees them beside it. Raises InferometerError where the model
    takes no images.
    """
    image = images_of(model, work)
    if image is None:
        return work, None
    where = "cross_tokens" if sees_images(model) else "image_tokens"
    return msgspec.structs.replace(work, **{where: work.images * image.tokens}), image


def with_copies(model: ModelSpec, redundant: int) -> ModelSpec:
    """Return the model with so many copies of experts in every layer that has experts."""
    if not redundant:
        return model
    ffns = (msgspec.structs.replace(f, redundant=redundant) if isinstance(f, Moe) else f for f in model.ffns)
    return msgspec.structs.replace(model, ffns=tuple(ffns))


def routing_of(work: Workload) -> Routing:
    """Return how the tokens of a workload choose experts."""
    if not work.expert_skew and work.distinct_prompts is None:
        return USUAL
    return Routing(work.expert_skew, float("inf") if work.distinct_prompts is None else float(work.distinct_prompts))


def make_pass(
    model: ModelSpec,
    work: Workload,
    precision: Precision,
    sizes: Mapping[str, Column],
    *,
    sequences: Column,
    replica_sequences: Column,
    image: ImageCount | None = None,
) -> Pass:
    """Return one pass of `sequences` a DPA rank; where it generates, the fullest rank has a whole number of them.

    `image` is what an image of the workload is to the model's tower, which runs with the prompt.
    """
    low, high = work.ends
    return Pass(
        phase=work.phase,
        sequences=np.ceil(sequences) if work.generates else sequences,
        replica_sequences=replica_sequences,
        new_tokens=work.new_tokens,
        contexts=simpson(float(low), float(high)),
        all_token_logits=work.all_token_logits,
        tp=sizes["tp"],
        dpa=sizes["dpa"],
        ep=sizes["ep"],
        etp=sizes["etp"],
        dcp=sizes["dcp"],
        dtypes=precision.dtypes,
        unpacked=precision.unpacked,
        core_dtype=precision.core_dtype,
        kv_bytes_per_element=bytes_per_element(find_format(model.kv_format)),
        kv_format=model.kv_format,
        state_bytes_per_element=bytes_per_element(find_format(model.state_format)),
        images=0 if work.generates else work.images,
        image=None if work.generates else image,
        routing=routing_of(work),
        cross_tokens=work.cross_tokens,
    )
