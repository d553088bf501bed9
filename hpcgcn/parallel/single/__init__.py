"""All rows on one rank: the control for all other strategies."""
