"""How long an evaluation of the search takes, stage by stage, and how that grows with depth."""
