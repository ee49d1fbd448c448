"""The command line: a file for each subcommand, thin, since what they do belongs to the packages below."""
