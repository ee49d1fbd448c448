"""How the program is written so that XLA compiles it right, and lays it out well."""
