"""Models and steps of released packages, a file for each family; a row needs its package only when it is built."""
