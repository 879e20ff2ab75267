"""The keys of what is counted and not priced: params, ops, kv."""

from inferometer.report.field import Field

LAYERS = (
    Field("first", "integer", "", "layer, from 0"),
    Field("last", "integer", "", "layer, included"),
    Field("kind", "string", "", "mixer and feed-forward"),
    Field("mixer_params", "integer", "", "one layer"),
    Field("ffn_params", "integer", "", "one layer"),
    Field("other_params", "integer", "", "one layer: what it makes of what a token brings to it"),
    Field("stored_bytes", "integer", "B", "one layer"),
)

FILES = (
    Field("files", "integer", "", "safetensors files; 0 where there is an index alone"),
    Field("tensors", "integer", "", "in their headers"),
    Field("stored_bytes", "integer", "B", "all tensors; of an index its total"),
    Field("mtp_bytes", "integer", "B", "of them the token predictor's"),
    Field("derived_bytes", "integer", "B", "what the config says they should hold, MTP not counted"),
    Field("bytes_by_kind", "integer{}", "B", "by kind of tensor, judged by names; empty of an index"),
    Field("difference_by_kind", "integer{}", "B", "files less config, where they differ; empty of an index"),
)

PARAMS = (
    Field("model", "string", "", "preset id, or name of the config"),
    Field("total_params", "integer", "", "language model and its towers, without MTP and drafters"),
    Field("active_params", "integer", "", "total - routed (1 - k/E)"),
    Field("active_params_one_table", "integer", "", "less the input embedding, of which a token reads one row"),
    Field("mtp_params", "integer", "", "layers that draft tokens (MTP, DSPARK), not in the total"),
    Field("by_kind", "integer{}", "", "total by kind of tensor"),
    Field("by_dtype", "integer{}", "", "total by stored format"),
    Field("checkpoint_bytes", "integer", "B", "as stored, MTP not counted; of the files where they are at hand"),
    Field("bytes_by_kind", "integer{}", "B", "as the config says, by kind of tensor"),
    Field("layers", "layers[]", "", "in order, consecutive ones of a kind together"),
    Field("files", "files?", "", "safetensors files beside the config; null without any"),
    Field("unknown_keys", "string[]", "", "config keys that were not understood"),
    Field("assumed", "string[]", "", "what the config left open"),
)

COUNTED_OP = (
    Field("name", "string", "", "operation, or message(role)"),
    Field("kind", "string", "", "gemm, attention, ..., or the kind of a collective"),
    Field("segment", "string", "", "kind of layer, embedding, head or hand-over"),
    Field(
        "part",
        "string",
        "",
        "attention (whatever mixes tokens), ffn, layer-inputs, tower, embedding, head or hand-over",
    ),
    Field("layers", "integer", "", "times it runs over the whole model"),
    Field("share", "number", "", "share of the passes with these counts"),
    Field("shapes", "string", "", "operands and result of a chip"),
    Field("dtype", "string", "", "arithmetic type"),
    Field("flops", "number", "flop", "one layer, unsharded"),
    Field("bytes", "number{}", "B", "same, by what they are: weights, kv, state, activations"),
    Field("flops_per_chip", "number", "flop", "one layer, the busiest chip"),
    Field("bytes_per_chip", "number{}", "B", "same, by what they are; of a message, message"),
    Field("plan", "string", "", "Choice it was taken under"),
)

PART = (
    Field("part", "string", "", "attention (whatever mixes tokens), ffn, layer-inputs, tower, embedding or head"),
    Field("flops", "number", "flop", "unsharded"),
    Field("flops_share", "number", "", "of the whole pass"),
    Field("bytes", "number", "B", "to and from memory, unsharded"),
    Field("bytes_share", "number", "", "of the whole pass"),
)

OPS = (
    Field("version", "string", "", "of inferometer"),
    Field("model", "string", "", "preset, or name of the config"),
    Field("chip", "string?", "", "whose arithmetic types are taken; null takes those that formats are stored for"),
    Field("n_chips", "integer", "", "chips of the sharding"),
    Field("sizes", "sizes", "", "role sizes"),
    Field("phase", "string", "", "prefill, extend, decode or verify"),
    Field("batch", "integer", "sequences", "over all chips"),
    Field("new_tokens", "integer", "tok", "of each sequence in the pass"),
    Field("kv_length", "number", "tok", "at the end of the pass, their mean"),
    Field("all_token_logits", "boolean", "", "logits of every prompt token"),
    Field("kv_cache_dtype", "string", "", "format of the KV cache"),
    Field("choices", "string{}", "", "Choice -> plan counted, where a rule or --choice says"),
    Field("total_flops", "number", "flop", "of the whole pass, unsharded"),
    Field("gemm_attention_flops", "number", "flop", "of them GEMMs (router and head included) and attention cores"),
    Field("total_bytes", "number", "B", "to and from memory, unsharded: every weight read once"),
    Field("bytes", "number{}", "B", "the same by what they are: weights, kv, state, activations"),
    Field("parts", "part[]", "", "attention against feed-forward against the ends"),
    Field("flops_per_chip", "number", "flop", "of the busiest chip, copies included"),
    Field("bytes_per_chip", "number{}", "B", "same, by what they are; message is between chips"),
    Field("active_params", "integer", "", "one token touches"),
    Field("ops", "counted_op[]", "", "every operation of a pass"),
    Field("assumed", "string[]", "", "what nobody chose, and what is left out"),
)

CACHE = (
    Field("name", "string", "", "kv, latent, index, window, compressed, image-kv, state, conv, pending"),
    Field("kind", "string", "", "grows, window, images or state"),
    Field("layers", "integer", "", "that have it"),
    Field("heads", "integer", "", "of a layer"),
    Field("width", "integer", "", "elements of a head"),
    Field("dtype", "string", "", "stored format"),
    Field("tokens_per_entry", "integer", "tok", "that one entry stands for"),
    Field("most_entries", "integer?", "", "of a window or chunk"),
    Field("bytes_per_token", "number", "B", "all these layers, unsharded, of a token of text; 0 of a state"),
    Field("bytes_per_sequence", "number", "B", "all these layers, unsharded, at the context asked for"),
)

KV = (
    Field("version", "string", "", "of inferometer"),
    Field("model", "string", "", "preset, or name of the config"),
    Field("context", "integer", "tok", "length of a sequence"),
    Field("image_tokens", "integer", "tok", "of images that cross-attention sees, beside the context"),
    Field("kv_cache_dtype", "string", "", "format of the KV cache"),
    Field("kv_bytes_per_token", "number", "B", "all layers, unsharded, windows not applied"),
    Field("kv_bytes_per_sequence", "number", "B", "all layers, unsharded, windows applied"),
    Field("window_bytes_per_sequence", "number", "B", "of them in layers with a window or chunk"),
    Field("state_bytes_per_sequence", "number", "B", "recurrent state, beside the KV"),
    Field("n_chips", "integer", "", "chips of the sharding"),
    Field("sizes", "sizes", "", "role sizes"),
    Field("kv_bytes_per_token_per_chip", "number", "B", "a chip of the fullest stage"),
    Field("kv_bytes_per_sequence_per_chip", "number", "B", "same"),
    Field("state_bytes_per_sequence_per_chip", "number", "B", "same"),
    Field("caches", "cache[]", "", "what the layers keep"),
    Field("assumed", "string[]", "", "what nobody chose"),
    Field("diagnostics", "diagnostic[]", "", "what to know, by name"),
)
