# SPDX-License-Identifier: MIT
"""One GPT-2 style transformer block: what examples/tasks/gpt_block/task.json describes, in PyTorch."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, C, H = 128, 512, 768, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(C, 3 * C)
        self.c_proj = nn.Linear(C, C)
        self.register_buffer("mask", torch.tril(torch.ones(T, T, dtype=torch.bool)), persistent=False)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = (t.view(batch, steps, H, width // H).transpose(1, 2) for t in self.c_attn(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // H)
        scores = scores.masked_fill(~self.mask[:steps, :steps], float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, steps, width))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(C, 4 * C)
        self.c_proj = nn.Linear(4 * C, C)

    def forward(self, x):
        h = self.c_fc(x)
        gelu = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h * h * h)))
        return self.c_proj(gelu)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(C)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(C)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


def get_inputs():
    return [torch.randn(B, T, C)]


def get_init_inputs():
    return []
