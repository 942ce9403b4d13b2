# SPDX-License-Identifier: MIT
"""A stack of LSTM layers over a whole sequence: what examples/tasks/lstm_stack/task.json describes, in PyTorch."""
import torch
import torch.nn as nn

B, T, C, L = 16, 512, 256, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(C, C, num_layers=L, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def get_inputs():
    return [torch.randn(B, T, C)]


def get_init_inputs():
    return []
