"""The keys of backends and of calibrations."""

from inferometer.report.field import Field

FIGURE = (
    Field("what", "string", "", "which kernels or runs"),
    Field("n", "integer", "", "numbers held out"),
    Field("median", "number", "", "of |predicted / measured - 1|, not seen by the fit"),
    Field("p90", "number", "", "same"),
    Field("bias", "number?", "", "median of predicted / measured - 1"),
)

COVERED = (
    Field("generation", "string", "", "of chips; empty where a backend does not tell them apart"),
    Field("chips", "string[]", "", "of the catalogue"),
    Field("dtypes", "string[]", "", "formats of weights with timings of their own; others take the nearest's"),
    Field("basis", "string", "", "measured, calibrated, analytic or assumed"),
    Field("n", "integer", "", "published numbers, or own runs, that its factors are fitted to"),
    Field("low", "number", "", "ends of the band: true over predicted step"),
    Field("high", "number", "", "same"),
    Field("source", "string", "", "where its coefficients come from"),
    Field("figures", "figure[]", "", "how far held-out kernels are off"),
)

BACKEND = (
    Field("backend", "string", "", "as --backend takes it"),
    Field("origin", "string", "", "inferometer, or the distribution that registers it"),
    Field("basis", "string?", "", "where nothing is known of a chip; null where it cannot be loaded"),
    Field("scheduler", "string", "", "its usual one"),
    Field("low", "number?", "", "ends of the band where nothing is known of a chip"),
    Field("high", "number?", "", "same"),
    Field("apart", "number?", "", "two shardings on one chip that differ by less cannot be told apart"),
    Field("data", "string[]", "", "what it is fitted to"),
    Field("commands", "string[]", "", "what fits it again, with the date of the last time"),
    Field("figures", "figure[]", "", "how far held-out runs are off"),
    Field("covered", "covered[]", "", "by generation of chips"),
    Field("error", "string", "", "why it cannot be loaded"),
)

RUN = (
    Field("data", "string", "", "file, and the row or line"),
    Field("sizes", "string", "", "role sizes above 1"),
    Field("isl", "integer", "tok", "mean prompt"),
    Field("osl", "integer", "tok", "mean answer"),
    Field("batch", "integer", "", "requests in flight"),
    Field("metric", "string", "", "tpot, output_tok_per_s, ..."),
    Field("measured", "number", "s, tok/s", "as the file says"),
    Field("shipped", "number", "s, tok/s", "predicted by the factors that are shipped"),
    Field("fitted", "number", "s, tok/s", "by the factors found"),
    Field("left_out", "number", "s, tok/s", "by factors found from the other runs"),
)

CALIBRATION = (
    Field("output", "string?", "", "file it was written to"),
    Field("model", "string", "", "of the runs"),
    Field("chip", "string", "", "same"),
    Field("generation", "string", "", "of chips whose factors these are"),
    Field("engine", "string", "", "of the runs"),
    Field("error_shipped", "number", "", "median |predicted / measured - 1| of the runs, by the factors shipped"),
    Field("error_left_out", "number", "", "the same, each run by factors of the others"),
    Field("low", "number", "", "ends of the band for this model on this chip"),
    Field("high", "number", "", "same"),
    Field("factors", "number{}", "", "on what kernels were timed at"),
    Field("runs", "run[]", "", "each number that was fitted"),
)
