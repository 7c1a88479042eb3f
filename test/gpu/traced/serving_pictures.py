"""Pictures, served, whose answer is a picture: painted, enlarged, flow, depth."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog
from serving_common import _load


@prog
def latents_cfg_tiles():
    """A text-to-picture pipeline: guidance, several formats; the decoder works in blended tiles where the picture is large."""
    class Res(nn.Module):
        def __init__(self, i, o, t=None):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1)
            self.n2, self.c2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
            self.t = nn.Linear(t, o) if t else None
            self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, t=None):
            y = self.c1(F.silu(self.n1(x)))
            if self.t is not None:
                y = y + self.t(F.silu(t))[:, :, None, None]
            return self.s(x) + self.c2(F.silu(self.n2(y)))

    class Tr(nn.Module):
        def __init__(self, c, ctx=1024):
            super().__init__()
            self.h = c // 64
            self.g, self.i, self.o = nn.GroupNorm(32, c), nn.Linear(c, c), nn.Linear(c, c)
            self.n1, self.n2, self.n3 = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
            self.q1, self.k1, self.v1, self.o1 = (nn.Linear(c, c) for _ in range(4))
            self.q2, self.k2, self.v2, self.o2 = nn.Linear(c, c), nn.Linear(ctx, c), nn.Linear(ctx, c), nn.Linear(c, c)
            self.f1, self.f2 = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

        def att(self, q, k, v):
            b, n, c = q.shape
            q, k, v = (z.view(b, -1, self.h, 64).transpose(1, 2) for z in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)

        def forward(self, x, ctx):
            b, c, h, w = x.shape
            y = self.i(self.g(x).permute(0, 2, 3, 1).reshape(b, h * w, c))
            z = self.n1(y)
            y = y + self.o1(self.att(self.q1(z), self.k1(z), self.v1(z)))
            z = self.n2(y)
            y = y + self.o2(self.att(self.q2(z), self.k2(ctx), self.v2(ctx)))
            a, g = self.f1(self.n3(y)).chunk(2, -1)
            y = y + self.f2(a * F.gelu(g))
            return x + self.o(y).reshape(b, h, w, c).permute(0, 3, 1, 2)

    class UNet(nn.Module):
        def __init__(self, ch=(256, 512, 1024), t=1024):
            super().__init__()
            self.t = nn.Sequential(nn.Linear(256, t), nn.SiLU(), nn.Linear(t, t))
            self.i = nn.Conv2d(4, ch[0], 3, padding=1)
            self.d, self.da, self.down = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            self.u, self.ua, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            for k, c in enumerate(ch):
                self.d.append(Res(ch[max(0, k - 1)], c, t))
                self.da.append(Tr(c) if k else nn.Identity())
                self.down.append(nn.Conv2d(c, c, 3, 2, 1) if k < 2 else nn.Identity())
            self.m = Res(ch[-1], ch[-1], t)
            for k in (2, 1, 0):
                self.u.append(Res(ch[k] * 2, ch[k], t))
                self.ua.append(Tr(ch[k]) if k else nn.Identity())
                self.up.append(nn.Conv2d(ch[k], ch[k - 1], 3, padding=1) if k else nn.Identity())
            self.n, self.o = nn.GroupNorm(32, ch[0]), nn.Conv2d(ch[0], 4, 3, padding=1)

        def forward(self, x, ts, ctx):
            fr = torch.exp(-math.log(1e4) * torch.arange(128, device=x.device).float() / 128)
            a = ts[:, None].float() * fr[None]
            t = self.t(torch.cat([a.cos(), a.sin()], 1).to(x.dtype))
            x, sk = self.i(x), []
            for k in range(3):
                x = self.d[k](x, t)
                x = self.da[k](x, ctx) if k else x
                sk.append(x)
                x = self.down[k](x)
            x = self.m(x, t)
            for j, k in enumerate((2, 1, 0)):
                x = self.u[j](torch.cat([x, sk.pop()], 1), t)
                x = self.ua[j](x, ctx) if k else x
                if k:
                    x = self.up[j](F.interpolate(x, size=sk[-1].shape[2:], mode="nearest"))
            return self.o(F.silu(self.n(x)))

    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.i, self.m = nn.Conv2d(4, 512, 3, padding=1), Res(512, 512)
            c, bs = 512, []
            for k, o in enumerate((512, 512, 256, 128)):
                bs += [Res(c, o), Res(o, o)]
                if k < 3:
                    bs += [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(o, o, 3, padding=1)]
                c = o
            self.b = nn.Sequential(*bs)
            self.n, self.o = nn.GroupNorm(32, 128), nn.Conv2d(128, 3, 3, padding=1)

        def forward(self, z):
            return self.o(F.silu(self.n(self.b(self.m(self.i(z))))))

    net, vae = _load(UNet, torch.float16), _load(Vae, torch.float16)

    def blend(a, c, n, dim):
        n = min(n, a.shape[dim], c.shape[dim])
        w = torch.arange(n, device=dev, dtype=c.dtype) / n
        w = w.view(-1, 1) if dim == 2 else w
        c.narrow(dim, 0, n).copy_(a.narrow(dim, a.shape[dim] - n, n) * (1 - w) + c.narrow(dim, 0, n) * w)
        return c

    def tiled(z, t=64):
        st, ov, lim = int(t * 0.75), t * 2, t * 6
        rows = [[vae(z[:, :, y:y + t, x:x + t]) for x in range(0, z.shape[3], st)] for y in range(0, z.shape[2], st)]
        out = []
        for i, row in enumerate(rows):
            line = []
            for j, tile in enumerate(row):
                if i:
                    tile = blend(rows[i - 1][j], tile, ov, 2)
                if j:
                    tile = blend(row[j - 1], tile, ov, 3)
                line.append(tile[:, :, :lim, :lim])
            out.append(torch.cat(line, 3))
        return torch.cat(out, 2)[:, :, :z.shape[2] * 8, :z.shape[3] * 8]

    with torch.inference_mode():
        for _ in loop(10):
            h, w = R.choice([(64, 64), (64, 96), (96, 96), (104, 152), (128, 128), (152, 104), (144, 112), (192, 108)])
            b = R.choice([1, 1, 2, 4])
            ctx = torch.randn(2 * b, 77 * R.choice([1, 1, 2]), 1024, device=dev, dtype=torch.float16)
            x = torch.randn(b, 4, h, w, device=dev, dtype=torch.float16)
            n = R.choice([8, 12, 20])
            sig = torch.linspace(14.0, 0.03, n + 1).tolist()
            for i in loop(n):
                inp = torch.cat([x, x]) / (sig[i] ** 2 + 1) ** 0.5
                e = net(inp, torch.full((2 * b,), int(999 * (1 - i / n)), device=dev), ctx)
                u, c = e.chunk(2)
                x = x + (u + 6.0 * (c - u)) * (sig[i + 1] - sig[i])
            x = x.clamp(-8, 8)
            if h * w > 96 * 96:
                img = torch.cat([tiled(z) for z in x.split(1)])
            else:
                img = vae(x)
            ((img / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).float() * 255).round().to(torch.uint8).cpu()


@prog
def swin_upscale():
    """Super-resolution of whole pictures by attention in shifted windows."""
    C, H, W = 180, 6, 8

    class Layer(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift = shift
            self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.qkv, self.o = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.f1, self.f2 = nn.Linear(C, 2 * C), nn.Linear(2 * C, C)
            self.rel = nn.Parameter(torch.zeros((2 * W - 1) ** 2, H))
            at = torch.stack(torch.meshgrid(torch.arange(W), torch.arange(W), indexing="ij")).flatten(1)
            d = at[:, :, None] - at[:, None] + W - 1
            self.register_buffer("idx", d[0] * (2 * W - 1) + d[1])

        def win(self, x):
            b, h, w, c = x.shape
            return x.view(b, h // W, W, w // W, W, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, W * W, c)

        def mask(self, h, w, dtype):
            g = torch.zeros(1, h, w, 1, device=dev)
            k = 0
            for a in (slice(0, -W), slice(-W, -self.shift), slice(-self.shift, None)):
                for c in (slice(0, -W), slice(-W, -self.shift), slice(-self.shift, None)):
                    g[:, a, c] = k
                    k += 1
            g = self.win(g)[..., 0]
            g = g[:, None] - g[:, :, None]
            return g.masked_fill(g != 0, -100.0).to(dtype)

        def forward(self, x):
            b, h, w, c = x.shape
            y = self.n1(x)
            if self.shift:
                y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
            y = self.win(y)
            q, k, v = self.qkv(y).view(-1, W * W, 3, H, C // H).permute(2, 0, 3, 1, 4)
            a = (q * (C // H) ** -0.5) @ k.transpose(-2, -1)
            a = a + self.rel[self.idx.view(-1)].view(W * W, W * W, H).permute(2, 0, 1)[None]
            if self.shift:
                g = self.mask(h, w, a.dtype)
                a = (a.view(b, -1, H, W * W, W * W) + g[None, :, None]).view(-1, H, W * W, W * W)
            y = self.o((torch.softmax(a, -1) @ v).transpose(1, 2).reshape(-1, W * W, C))
            y = y.view(b, h // W, w // W, W, W, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            if self.shift:
                y = torch.roll(y, (self.shift, self.shift), (1, 2))
            x = x + y
            return x + self.f2(F.gelu(self.f1(self.n2(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Conv2d(3, C, 3, padding=1)
            self.g = nn.ModuleList([nn.ModuleList([Layer(0 if k % 2 == 0 else W // 2) for k in range(4)]) for _ in range(3)])
            self.c = nn.ModuleList([nn.Conv2d(C, C, 3, padding=1) for _ in range(3)])
            self.a = nn.Conv2d(C, 64, 3, padding=1)
            self.u = nn.ModuleList([nn.Conv2d(64, 256, 3, padding=1) for _ in range(2)])
            self.o = nn.Conv2d(64, 3, 3, padding=1)

        def forward(self, x):
            h, w = x.shape[2:]
            x = F.pad(x, (0, -w % W, 0, -h % W), mode="reflect")
            x = self.i(x)
            first = x
            for g, c in zip(self.g, self.c):
                y = x.permute(0, 2, 3, 1).contiguous()
                for f in g:
                    y = f(y)
                x = x + c(y.permute(0, 3, 1, 2).contiguous())
            x = F.leaky_relu(self.a(x + first))
            for u in self.u:
                x = F.pixel_shuffle(u(x), 2)
            return self.o(x)[:, :, :h * 4, :w * 4]

    m = _load(Net, torch.float16)
    with torch.inference_mode():
        for _ in loop(12):
            h, w = R.randint(120, 560), R.randint(120, 760)
            x = torch.randint(0, 256, (1, 3, h, w), dtype=torch.uint8).to(dev).half() / 255
            (m(x).clamp(0, 1)[0].permute(1, 2, 0) * 255).round().to(torch.uint8).cpu()


@prog
def raft_hd():
    """Optical flow between the frames of videos up to full HD: all pairs' correlations."""
    from torchvision.models.optical_flow import raft_large
    m = _load(lambda: raft_large(weights=None))
    with torch.inference_mode():
        for _ in loop(6):
            h, w = R.choice([(360, 640), (436, 1024), (480, 854), (540, 960), (720, 1280), (1080, 1920)])
            old = None
            for _t in loop(R.randint(3, 10)):
                x = torch.randint(0, 256, (1, 3, h, w), dtype=torch.uint8).to(dev).float() / 127.5 - 1
                x = F.pad(x, (0, -w % 8, 0, -h % 8), mode="replicate")
                if old is not None:
                    f = m(old, x, num_flow_updates=R.choice([12, 12, 20]))[-1][:, :, :h, :w]
                    g = torch.stack(torch.meshgrid(torch.arange(h, device=dev), torch.arange(w, device=dev), indexing="ij")[::-1])
                    at = (g[None] + f).permute(0, 2, 3, 1)
                    at = 2 * at / torch.tensor([w - 1, h - 1], device=dev) - 1
                    warped = F.grid_sample(x[:, :, :h, :w], at, align_corners=True)
                    (warped - old[:, :, :h, :w]).abs().mean().item()
                    f.half().cpu()
                old = x


@prog
def depth_dpt():
    """Depth from one picture: a ViT at any aspect ratio and a convolutional head that fuses its stages."""
    d, L = 768, 12

    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.p, self.cls = nn.Conv2d(3, d, 14, 14), nn.Parameter(torch.zeros(1, 1, d))
            self.pos = nn.Parameter(torch.zeros(1, d, 37, 37))
            self.b = nn.ModuleList([nn.ModuleDict({
                "n1": nn.LayerNorm(d), "n2": nn.LayerNorm(d), "qkv": nn.Linear(d, 3 * d), "o": nn.Linear(d, d),
                "u": nn.Linear(d, 4 * d), "w": nn.Linear(4 * d, d)}) for _ in range(L)])

        def forward(self, x):
            x = self.p(x)
            b, _, h, w = x.shape
            x = x + F.interpolate(self.pos, size=(h, w), mode="bicubic")
            x = torch.cat([self.cls.expand(b, -1, -1), x.flatten(2).transpose(1, 2)], 1)
            out = []
            for i, f in enumerate(self.b):
                q, k, v = f["qkv"](f["n1"](x)).view(b, -1, 3, 12, 64).permute(2, 0, 3, 1, 4)
                x = x + f["o"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, -1, d))
                x = x + f["w"](F.gelu(f["u"](f["n2"](x))))
                if i % 3 == 2:
                    out.append(x[:, 1:].transpose(1, 2).reshape(b, d, h, w))
            return out

    class Fuse(nn.Module):
        def __init__(self, c=256):
            super().__init__()
            self.a, self.b = (nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU(),
                                            nn.Conv2d(c, c, 3, padding=1)) for _ in range(2))
            self.o = nn.Conv2d(c, c, 1)

        def forward(self, x, s, size):
            if s is not None:
                x = x + (s + self.a(s))
            x = x + self.b(x)
            return self.o(F.interpolate(x, size=size, mode="bilinear", align_corners=True))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.v = Vit()
            ch = (96, 192, 384, 768)
            self.pr = nn.ModuleList([nn.Conv2d(d, c, 1) for c in ch])
            self.rs = nn.ModuleList([nn.ConvTranspose2d(96, 96, 4, 4), nn.ConvTranspose2d(192, 192, 2, 2), nn.Identity(),
                                     nn.Conv2d(768, 768, 3, 2, 1)])
            self.sc = nn.ModuleList([nn.Conv2d(c, 256, 3, padding=1, bias=False) for c in ch])
            self.f = nn.ModuleList([Fuse() for _ in range(4)])
            self.o1, self.o2, self.o3 = nn.Conv2d(256, 128, 3, padding=1), nn.Conv2d(128, 32, 3, padding=1), nn.Conv2d(32, 1, 1)

        def forward(self, x):
            h, w = x.shape[2:]
            fs = [s(r(p(f))) for f, p, r, s in zip(self.v(x), self.pr, self.rs, self.sc)]
            y = self.f[3](fs[3], None, fs[2].shape[2:])
            y = self.f[2](y, fs[2], fs[1].shape[2:])
            y = self.f[1](y, fs[1], fs[0].shape[2:])
            y = self.f[0](y, fs[0], (fs[0].shape[2] * 2, fs[0].shape[3] * 2))
            y = F.interpolate(self.o1(y), size=(h, w), mode="bilinear", align_corners=True)
            return F.relu(self.o3(F.relu(self.o2(y))))

    m = _load(Net)
    with torch.inference_mode():
        for _ in loop(30):
            h, w, b = R.randint(400, 2200), R.randint(400, 2200), R.choice([1, 1, 1, 2, 4])
            s = R.choice([392, 518, 518, 742]) / min(h, w)
            hh, ww = max(14, round(h * s / 14) * 14), max(14, round(w * s / 14) * 14)
            x = torch.randint(0, 256, (b, 3, h, w), dtype=torch.uint8).to(dev).float() / 255
            x = (F.interpolate(x, size=(hh, ww), mode="bicubic", align_corners=False) - 0.45) / 0.225
            y = F.interpolate(m(x), size=(h, w), mode="bilinear", align_corners=True)[:, 0]
            lo, hi = y.amin((1, 2), keepdim=True), y.amax((1, 2), keepdim=True)
            ((y - lo) / (hi - lo + 1e-6) * 65535).to(torch.int32).cpu()
