"""The command line: parses, asks the Python face, prints. `main.run` is the console script."""
