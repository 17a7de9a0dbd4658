"""The grammar of the command line: which commands and options exist, what their help says."""
