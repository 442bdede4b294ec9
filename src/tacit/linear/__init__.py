"""Linear models: losses, and many small problems at once."""
