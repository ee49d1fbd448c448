"""How near to optimal the integer program comes: small programs by enumeration, training steps by its bound."""
