"""When buffers are made, read last and in whose memory; what lives at each moment."""
