"""What redistributions and collectives take, on the links and beside them."""
