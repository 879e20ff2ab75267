"""The keys of chips, links, prices and models as catalogued."""

from inferometer.report.field import Field

CHIP = (
    Field("chip", "string", "", "catalogue id"),
    Field("name", "string", "", "product"),
    Field("vendor", "string", "", "maker"),
    Field("memory_bytes", "number", "B", "that a process can see"),
    Field("memory_bytes_per_s", "number", "B/s", "datasheet bandwidth"),
    Field("peak_flops_per_s", "number{}", "flop/s", "dense, by arithmetic type"),
    Field("tdp_w", "number?", "W", "power limit"),
    Field("default_machine", "string", "", "what AxB builds on"),
    Field("usd_per_chip_hour", "number?", "$/h", "default price"),
    Field("price_source", "string", "", "provider, instance, tier, region, date"),
    Field("assumed", "string[]", "", "fields no source gives"),
    Field(
        "least_chips", "integer?", "", "chips that hold the model's weights beside the reserve; null without --model"
    ),
)

LINK = (
    Field("level", "string", "", "innermost first"),
    Field("geometry", "string", "", "switch, mesh, pcie, ring or line"),
    Field("max_size", "integer", "", "positions"),
    Field("bytes_per_s", "number", "B/s", "per direction: a chip's port, or one link of a mesh, ring or line"),
    Field("latency_s", "number", "s", "one step"),
    Field("multicast", "boolean", "", "in the switch"),
    Field("reduces", "boolean", "", "the switch adds in flight"),
    Field("assumed", "string[]", "", "fields no source gives"),
    Field("sources", "string{}", "", "field -> source, date"),
)

PRICE = (
    Field("usd_per_chip_hour", "number", "$/h", "one chip"),
    Field("provider", "string", "", "who lets it"),
    Field("tier", "string", "", "on-demand, spot, ..."),
    Field("region", "string", "", "empty where nobody says"),
    Field("instance", "string", "", "same"),
    Field("date", "string", "", "when it was read"),
    Field("source", "string", "", "where"),
)

CHIP_IN_FULL = (
    *CHIP,
    Field("aliases", "string[]", "", "other names"),
    Field("sources", "string{}", "", "field -> source, date"),
    Field("links", "link[]", "", "levels of the default machine"),
    Field("prices", "price[]", "", "every price known, cheapest first"),
)

MODEL = (
    Field("model", "string", "", "preset id"),
    Field("architecture", "string", "", "model_type of the config"),
    Field("total_params", "integer", "", "without MTP"),
    Field("active_params", "integer", "", "one token touches"),
    Field("layers", "integer", "", ""),
    Field("attention", "string", "", "kinds of attention"),
    Field("ffn", "string", "", "kinds of feed-forward"),
    Field("checkpoint_bytes", "integer", "B", "as stored"),
    Field("kv_bytes_per_token", "number", "B", "all layers, unsharded"),
    Field("max_context", "integer", "tok", "that the config states"),
    Field("source", "string", "", "where the config comes from"),
)
