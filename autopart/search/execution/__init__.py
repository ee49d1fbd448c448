"""Where jobs run: in this process, in processes, on Ray; and how a wave is handed to workers."""
