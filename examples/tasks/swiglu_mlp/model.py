# SPDX-License-Identifier: MIT
"""RMS norm and a SwiGLU feed-forward layer with residual: what examples/tasks/swiglu_mlp/task.json describes, in PyTorch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, C, F_ = 8, 512, 2048, 5632


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(C, eps=1e-6)
        self.gate = nn.Linear(C, F_, bias=False)
        self.up = nn.Linear(C, F_, bias=False)
        self.down = nn.Linear(F_, C, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def get_inputs():
    return [torch.randn(B, T, C)]


def get_init_inputs():
    return []
