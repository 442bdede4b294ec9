"""Where PyTorch computes: one installation, held still; arrays of many tasks; their second moments.

Nothing here is imported unless a device is asked for.
"""
