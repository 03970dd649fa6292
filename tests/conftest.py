"""Settings that all tests share: reproducible property tests, and one thread for each worker."""

import os
import tempfile

import torch
from hypothesis import settings

settings.register_profile("attnlab", deadline=None, derandomize=True, database=None, print_blob=False)
settings.load_profile("attnlab")
torch.set_num_threads(1)
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="attnlab-tests-")  # nobody's own cache is touched
