"""When few layers say what all of them take."""
