"""What every room stands on: checks of arrays, files, names and texts."""
