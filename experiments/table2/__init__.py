"""Collectives of our four models under the schedules of the PartIR paper's Table 2."""
