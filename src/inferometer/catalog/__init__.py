"""Our sourced data (chips, machines, prices, engines, model presets) and its loader; see `loader`."""
