"""Graph files of others: one module a format, each with `recognises`, `read` and `write`; `formats.table` lists them."""
