"""Which units of a context each method puts first: published evidence data sets, one protocol."""
