"""Tables and texts for people, made from what the registries and programs know."""
