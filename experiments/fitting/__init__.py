"""A 7 B language model that does not fit: what a search over programs finds, beside what people write."""
