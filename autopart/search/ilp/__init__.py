"""Where an optimizer by integer linear programming belongs; it implements the same `Optimizer` interface."""
