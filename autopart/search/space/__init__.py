"""The decision space: what may be decided, which values decide together, and what each decision has at stake."""
