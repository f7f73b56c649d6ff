"""Tuning: candidates of tiles for the chunkwise kernels, compared with the float64 form before they are timed."""
