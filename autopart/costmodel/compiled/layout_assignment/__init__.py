"""XLA's layout assignment: which layout each array gets, so that tiles are filled and little is copied."""
