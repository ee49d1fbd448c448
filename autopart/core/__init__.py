"""Programs, meshes, tile mappings, and PartIR:Core: actions and propagation."""
