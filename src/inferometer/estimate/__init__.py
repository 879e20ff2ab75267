"""One pass over a block of candidates: resolve precision and engine, lower, choose, price, schedule, fit in memory."""
