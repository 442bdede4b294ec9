"""One file per algorithm family."""
