"""PartIR:Core as a table: actions fill it in, propagation goes on from there."""
