"""One hypothesis profile: no deadline, because machines differ, and reproducible in CI."""

from hypothesis import settings

settings.register_profile("tacit", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tacit")
