"""A chip's memory as an engine divides it, and whether what is asked for fits.

pool = share x (visible - parts before) - parts charged; what lies outside must fit in what is left. The lines of the
fullest stage sum to its visible bytes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from inferometer.memory.asked import Asked
from inferometer.memory.lines import Line, lines_of
from inferometer.memory.stage import Stage

GIB = 2.0**30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer to one question."""

    asked: Asked
    stages: tuple[Stage, ...]
    """Of the pipeline; those that hold the same stand once."""

    @cached_property
    def tightest(self) -> Stage:
        """The stage that holds the fewest sequences at full length; with equals, that with least room."""
        length = self.asked.max_model_len
        return min(self.stages, key=lambda s: (s.pools.sequences(s.room_bytes, length), s.room_bytes))

    @property
    def concurrency(self) -> float:
        """Sequences of full length that a rank holds, as a fraction."""
        stage = self.tightest
        return stage.pools.sequences(stage.room_bytes, self.asked.max_model_len)

    @property
    def resident(self) -> float:
        """Sequences of the context asked for that run at once over the deployment, whatever is in flight."""
        return self.asked.ranks * self.holds

    @property
    def holds(self) -> float:
        """The same, of a rank."""
        return min(s.pools.hold(s.room_bytes, self.asked.context) for s in self.stages)

    @property
    def blocks(self) -> int:
        """Blocks of the tightest stage; 0 where the engine has none."""
        pools = self.tightest.pools
        return round(pools.whole(self.tightest.room_bytes) / pools.unit_bytes) if pools.unit_bytes else 0

    @property
    def kv_tokens(self) -> float:
        """Tokens of a rank's cache as the engine counts them."""
        asked, pools = self.asked, self.tightest.pools
        if asked.rules.tokens_by == "blocks" and pools.unit_bytes:
            return float(self.blocks // pools.groups * pools.block_size * asked.sizes.dcp)
        tokens = self.concurrency * asked.max_model_len
        return math.floor(tokens + 1e-6) if math.isfinite(tokens) else tokens

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not fit; empty where it does."""
        return tuple(dict.fromkeys(reason for stage in self.stages for reason in _reasons(self.asked, stage)))

    @property
    def fits(self) -> bool:
        """Whether the engine starts, and holds what is asked for."""
        return not self.reasons

    @property
    def deficit_bytes(self) -> float:
        """Bytes that a chip lacks; 0 where it fits."""
        return max(_deficit(self.asked, stage) for stage in self.stages)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of one more token of a long sequence on a chip of the tightest stage, windows full."""
        return self.tightest.pools.bytes_per_token

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the tightest stage; they sum to the visible bytes."""
        return tuple(lines_of(self.asked, self.tightest))


def _reasons(asked: Asked, stage: Stage) -> Iterator[str]:
    pools, room, one_length = stage.pools, stage.room_bytes, asked.context == asked.max_model_len
    longest = asked.model.max_context
    if asked.rules.refuses_beyond_context and asked.max_model_len > longest:
        yield f"beyond-context: {asked.max_model_len} tokens, {asked.model.name} states {longest}"
    if asked.context > asked.max_model_len:
        yield f"beyond-max-model-len: sequences of {asked.context} tokens, the engine takes {asked.max_model_len}"
    if asked.rules.tokens_cover_sequences and (asked.max_num_seqs or 0) > asked.pass_tokens:
        yield f"max-num-batched-tokens: {asked.pass_tokens} tokens a pass, fewer than {asked.max_num_seqs} sequences"
    if asked.sequences > asked.seqs:
        yield f"max-num-seqs: {asked.sequences} sequences a rank, the engine takes {asked.seqs} at once"
    if stage.left_bytes < 0:
        yield f"reserve-too-small: {-stage.left_bytes / GIB:.2f} GiB a chip too little is left outside the share"
    if room < 0:
        yield f"weights-do-not-fit: {-room / GIB:.2f} GiB a chip too many, weights and reserves alone"
    elif (whole := pools.hold(room, asked.max_model_len)) < 1:
        lacks = pools.room_for(1, asked.max_model_len) - room
        yield f"no-room-for-kv: one sequence of {asked.max_model_len} tokens lacks {lacks / GIB:.2f} GiB a chip"
    elif (most := whole if one_length else pools.hold(room, asked.context)) < asked.sequences:
        yield f"batch-does-not-fit: {asked.sequences} sequences of {asked.context} tokens a rank, room for {most:.0f}"


def _deficit(asked: Asked, stage: Stage) -> float:
    pools = stage.pools
    wanted = max(pools.room_for(1, asked.max_model_len), pools.room_for(asked.sequences, asked.context))
    unit = pools.unit_bytes
    short = max(wanted - pools.whole(stage.room_bytes), 0.0) if stage.room_bytes >= 0 else wanted - stage.room_bytes
    holds = min(pools.hold(stage.room_bytes, asked.max_model_len), 1) >= 1
    enough = pools.hold(stage.room_bytes, asked.context) >= asked.sequences
    fits = stage.room_bytes >= 0 and holds and enough
    return (0.0 if fits else max(short, unit, 1.0)) + max(-stage.left_bytes, 0.0)
