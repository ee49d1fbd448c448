"""What a state costs: decisions carried out, lowered, priced and taken back."""
