"""Deterministic training of a small GPT; prints every loss as a hexadecimal float.
usage: torch_train.py STEPS [POINT_AT_STEP]"""

import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
from point import say, torch_on_gpu, torch_point  # noqa: E402

torch = torch_on_gpu()
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

LAYERS, WIDTH, HEADS, WORDS, ROWS, LONGEST = 4, 256, 4, 4096, 8, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        shape = (rows, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = self.project(self.before(x)).view(shape).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, device="cuda", dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5).masked_fill(mask, -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.after(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(1)
    stop = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    for step in range(int(sys.argv[1])):
        length = int(torch.randint(LONGEST // 4, LONGEST, (1,), generator=generator))
        tokens = torch.randint(0, WORDS, (ROWS, length), generator=generator).cuda()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        say(step=step, length=length, loss=loss.item().hex())
        if step == stop:
            torch_point(torch, "stop")
    total = sum(p.detach().double().sum() for p in model.parameters())
    say(parameters=float(total).hex(), count=sum(p.numel() for p in model.parameters()))


main()
