"""Which buffers lie on the chip, and when: XLA's memory space assignment."""
