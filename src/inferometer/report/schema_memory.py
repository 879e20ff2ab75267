"""The keys of what the memory verbs print."""

from inferometer.report.field import Field

LINE = (
    Field("name", "string", "", "what takes it; weights by kind of tensor"),
    Field("bytes", "number", "B", "of a chip of the tightest stage; free may be below 0"),
    Field("basis", "string", "", "analytic or assumed"),
    Field("note", "string", "", "of what"),
)

TIER = (
    Field("where", "string", "", "host or disk"),
    Field("through", "string", "", "what keeps it, where not the engine itself"),
    Field("flag", "string", "", "how the engine is told its size"),
    Field("bytes_per_chip", "number", "B", "in what the engine's option counts in"),
    Field("rank_bytes", "number", "B", "of the TP x PP chips that hold the same sequences"),
    Field("block_tokens", "integer", "tok", "of what is kept at once"),
    Field("latent_copies", "integer", "", "kept of what every TP rank has; 1 where it has nothing such"),
    Field("kv_tokens", "number?", "tok", "of the longest prefix that it holds; null where nothing limits it"),
    Field("prefix_tokens", "integer", "tok", "of the context, in whole blocks"),
    Field("prefix_bytes", "number", "B", "that such a prefix takes of it, all chips of the rank"),
    Field("prefixes", "number?", "", "such ones that it holds, of a rank"),
    Field("restore_bytes_per_chip", "number", "B", "that a chip is sent to have one back"),
    Field("recompute_s", "number?", "s", "its prefill instead, by the default backend; null where not priced"),
    Field("break_even_bytes_per_s", "number?", "B/s", "a chip's link to the tier above which having it back is faster"),
)

MEMORY = (
    Field("version", "string", "", "of inferometer"),
    Field("model", "string", "", "preset, or name of the config"),
    Field("chip", "string", "", "catalogue id"),
    Field("machine", "string", "", "as in a deployment"),
    Field("n_chips", "integer", "", "chips of the deployment"),
    Field("engine", "string", "", "name@version whose memory rules were kept"),
    Field("sizes", "sizes", "", "role sizes"),
    Field("context", "integer", "tok", "of each sequence in flight"),
    Field("max_model_len", "integer", "tok", "longest sequence that the engine takes"),
    Field("batch", "integer", "sequences", "in flight over the whole deployment"),
    Field("weights_bytes_per_chip", "number", "B", "a chip of the tightest stage"),
    Field("kv_bytes_per_token_per_chip", "number", "B", "of one more token of a long sequence"),
    Field("kv_pool_bytes", "number", "B", "for caches, a chip"),
    Field("block_size", "integer", "tok", "smallest block of a cache that grows"),
    Field("blocks_per_request", "integer", "", "of a sequence of max_model_len, over all groups"),
    Field("kv_tokens", "number?", "tok", "of a rank's pool, as the engine counts them; null where nothing limits them"),
    Field("max_concurrency", "number?", "sequences", "of max_model_len, over the whole deployment"),
    Field("fits", "boolean", "", "the engine starts, and holds the batch"),
    Field("reasons", "string[]", "", "why not"),
    Field("deficit_bytes", "number", "B", "that a chip lacks; 0 where it fits"),
    Field("nearest", "string[]", "", "one change each that would fit"),
    Field("lines", "line[]", "", "they sum to the visible bytes"),
    Field("tiers", "tier[]", "", "of the prefix cache, beside the chip's pool"),
    Field("log", "string[]", "", "the engine's start-up lines"),
    Field("assumed", "string[]", "", "settings that nobody chose"),
    Field("diagnostics", "diagnostic[]", "", "what to know, by name"),
)

MOST = (
    Field("value", "integer", "", "sequences over the deployment, or tokens a sequence; 0: not even 1 fits"),
    Field("memory", "memory", "", "with that many; with 1 where none fits"),
)

FIT = (
    Field("device", "string", "", "as its driver calls it"),
    Field("vendor", "string", "", "NVIDIA, AMD, Apple or CPU"),
    Field("source", "string", "", "what said that it is there"),
    Field("total_bytes", "integer", "B", "memory"),
    Field("free_bytes", "integer", "B", "not in use now"),
    Field("fits", "boolean", "", "in all of its memory"),
    Field("fits_now", "boolean", "", "in what is free"),
    Field("max_batch", "integer", "sequences", "of the context asked for, in all of its memory"),
    Field("max_context", "integer", "tok", "of the batch asked for, same"),
    Field("memory", "memory", "", "of that device"),
)
