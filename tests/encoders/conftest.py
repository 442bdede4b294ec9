"""One thread: these models are tiny, and threads that wait for each other take most of the time."""

import torch

torch.set_num_threads(1)
