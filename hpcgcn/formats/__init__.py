"""Graph files of others: one module per format, each with `recognises`, `read` and `write`;
`formats.table` lists them."""
