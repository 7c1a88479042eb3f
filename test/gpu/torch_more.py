"""More real work: a decoder whose KV cache grows, a diffusion U-Net, an LSTM.

usage: torch_more.py decode|unet-train|unet-sample|lstm [STEPS]

Prints the median step time and PyTorch's own peaks, as torch_work.py does. PYTORCH_NO_CUDA_MEMORY_CACHING=1 makes PyTorch
call cudaMalloc and cudaFree for every tensor: that is what runs in front of us.
"""

import math
import os
import sys
import time

from point import torch_on_gpu

torch = torch_on_gpu()
nn, F = torch.nn, torch.nn.functional
DEVICE = os.environ.get("CACHALOT_DEVICE", "cuda")
MIB = 2 ** 20


class DecoderLayer(nn.Module):
    """Attends to everything that came before; keys and values are kept, and grow by a `cat`."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)


class Decoder(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, words=32000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, caches):
        x = self.embed(tokens)
        for number, layer in enumerate(self.layers):
            x, caches[number] = layer(x, caches[number])
        return self.head(x[:, -1]), caches


def decode():
    """One step: a prompt of another length, and 48 tokens behind it."""
    model = Decoder().to(DEVICE).to(torch.bfloat16).eval()
    random = torch.Generator().manual_seed(1)

    @torch.no_grad()
    def step():
        length = int(torch.randint(64, 1024, (1,), generator=random))
        tokens = torch.randint(0, 32000, (16, length), device=DEVICE)
        caches = [None] * len(model.layers)
        for _ in range(48):
            logits, caches = model(tokens, caches)
            tokens = logits.argmax(-1, keepdim=True)
        return tokens

    return step


class Residual(nn.Module):
    def __init__(self, before, after, time_width):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(time_width, after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, when):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(when)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        seen = F.scaled_dot_product_attention(q.mT, k.mT, v.mT).mT.reshape(b, c, h, w)
        return x + self.out(seen)


class UNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 256), time_width=256):
        super().__init__()
        self.widths, self.time_width = widths, time_width
        self.time = nn.Sequential(nn.Linear(time_width, time_width), nn.SiLU(),
                                  nn.Linear(time_width, time_width))
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up, self.shrink = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = widths[0]
        for width in widths:
            self.down.append(Residual(before, width, time_width))
            self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
            before = width
        self.middle1, self.attend = Residual(before, before, time_width), Attention(before)
        self.middle2 = Residual(before, before, time_width)
        for width in reversed(widths):
            self.up.append(Residual(before + width, width, time_width))
            before = width
        self.last = nn.Sequential(nn.GroupNorm(8, before), nn.SiLU(),
                                  nn.Conv2d(before, 3, 3, padding=1))

    def forward(self, x, t):
        half = self.time_width // 2
        rates = torch.exp(-math.log(10000) / half * torch.arange(half, device=x.device))
        angles = t[:, None] * rates[None]
        when = self.time(torch.cat((angles.sin(), angles.cos()), 1))
        x, kept = self.first(x), []
        for block, shrink in zip(self.down, self.shrink):
            x = block(x, when)
            kept.append(x)
            x = shrink(x)
        x = self.middle2(self.attend(self.middle1(x, when)), when)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat((x, kept.pop()), 1), when)
        return self.last(x)


def unet_train():
    """One step: noise of random strength on a batch of another size, and a step down."""
    model = UNet().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    random = torch.Generator().manual_seed(1)

    def step():
        batch = int(torch.randint(16, 65, (1,), generator=random))
        clean = torch.randn(batch, 3, 64, 64, device=DEVICE)
        noise, t = torch.randn_like(clean), torch.rand(batch, device=DEVICE)
        mixed = (1 - t)[:, None, None, None] * clean + t[:, None, None, None] * noise
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.mse_loss(model(mixed, 1000 * t), noise - clean)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def unet_sample():
    """One step: 20 steps from noise to a batch of pictures."""
    model = UNet().to(DEVICE).eval()
    random = torch.Generator().manual_seed(1)

    @torch.no_grad()
    def step():
        batch = int(torch.randint(4, 33, (1,), generator=random))
        x = torch.randn(batch, 3, 64, 64, device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            for i in range(20):
                t = torch.full((batch,), 1000 * (1 - i / 20), device=DEVICE)
                x = x - model(x, t) / 20
        return x

    return step


def lstm():
    """One step: a language model of three layers over texts of another length."""
    embed, head = nn.Embedding(20000, 512).to(DEVICE), nn.Linear(1024, 20000).to(DEVICE)
    body = nn.LSTM(512, 1024, 3, dropout=0.1, batch_first=True).to(DEVICE)
    parameters = [*embed.parameters(), *body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4)
    random = torch.Generator().manual_seed(1)

    def step():
        length = int(torch.randint(32, 129, (1,), generator=random))
        text = torch.randint(0, 20000, (32, length + 1), device=DEVICE)
        seen = body(embed(text[:, :-1]))[0]
        loss = F.cross_entropy(head(seen).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


WORK = {"decode": decode, "unet-train": unet_train, "unet-sample": unet_sample, "lstm": lstm}


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def main(name, steps):
    torch.manual_seed(0)
    step, times = WORK[name](), []
    for _ in range(2):
        step()
    wait()
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begin)
    times.sort()
    bare = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1" or DEVICE != "cuda"
    stats = {} if bare else torch.cuda.memory_stats()

    def peak(what):
        return stats.get(f"{what}.all.peak", 0) / MIB

    print(f"{name} nocache={int(bare)} median {times[len(times) // 2] * 1e3:.2f} ms total {sum(times):.2f} s "
          f"alloc_peak {peak('allocated_bytes'):.1f} MiB req_peak {peak('requested_bytes'):.1f} "
          f"reserved_peak {peak('reserved_bytes'):.1f} MiB "
          f"num_alloc {stats.get('allocation.all.allocated', 0)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30)
