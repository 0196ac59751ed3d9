"""Published data sets: files, records and conversions."""
