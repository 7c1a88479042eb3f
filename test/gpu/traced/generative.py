"""Generative models."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


def _unet(cin, cout, base, temb=0, attn=False):
    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
            self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
            self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
            self.t = nn.Linear(temb, o) if temb else None

        def forward(self, x, t):
            y = self.c1(F.silu(self.n1(x)))
            if self.t is not None:
                y = y + self.t(F.silu(t))[:, :, None, None]
            return self.s(x) + self.c2(F.silu(self.n2(y)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            ch = [base, base * 2, base * 4, base * 8]
            self.i = nn.Conv2d(cin, base, 3, padding=1)
            self.d = nn.ModuleList([Res(ch[max(0, k - 1)], ch[k]) for k in range(4)])
            self.m = Res(ch[3], ch[3])
            self.att = nn.MultiheadAttention(ch[3], 8, batch_first=True) if attn else None
            self.u = nn.ModuleList([Res(ch[min(3, k + 1)] + ch[k], ch[k]) for k in (3, 2, 1, 0)])
            self.o = nn.Conv2d(base, cout, 1)

        def forward(self, x, t=None):
            if t is not None:
                fr = torch.exp(-math.log(1e4) * torch.arange(temb // 2, device=x.device) / (temb // 2))
                a = t[:, None].float() * fr[None]
                t = torch.cat([a.sin(), a.cos()], 1).to(x.dtype)
            x = self.i(x)
            sk = []
            for k, f in enumerate(self.d):
                x = f(x if k == 0 else F.avg_pool2d(x, 2), t)
                sk.append(x)
            x = self.m(F.avg_pool2d(x, 2), t)
            if self.att is not None:
                b, c, h, w = x.shape
                q = x.flatten(2).transpose(1, 2)
                x = x + self.att(q, q, q, need_weights=False)[0].transpose(1, 2).reshape(b, c, h, w)
            for f, s in zip(self.u, reversed(sk)):
                x = f(torch.cat([F.interpolate(x, size=s.shape[2:], mode="nearest"), s], 1), t)
            return self.o(x)

    return Net()


@prog
def unet_mixed():
    m = _unet(3, 8, 32).to(dev)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    for _ in loop(24):
        b, h, w = R.choice([1, 2, 4]), 16 * R.randint(6, 36), 16 * R.randint(6, 36)
        x = torch.randn(b, 3, h, w, device=dev)
        step(opt, F.cross_entropy(m(x), torch.randint(0, 8, (b, h, w), device=dev)))


@prog
def diffusion_sample():
    m = _unet(4, 4, 96, temb=256, attn=True).to(dev).half().eval()
    dec = nn.Sequential(nn.Conv2d(4, 128, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=4),
                        nn.Conv2d(128, 64, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=2),
                        nn.Conv2d(64, 3, 3, padding=1)).to(dev).half().eval()
    ab = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    with torch.no_grad():
        for _ in loop(6):
            b, h, w, n = R.choice([1, 2, 4, 8]), 16 * R.randint(2, 6), 16 * R.randint(2, 6), R.choice([12, 20, 30])
            x = torch.randn(b, 4, h, w, device=dev, dtype=torch.float16)
            ts = torch.linspace(980, 0, n).long().tolist()
            for i in loop(n):
                t = torch.full((2 * b,), ts[i], device=dev)
                e1, e2 = m(torch.cat([x, x]), t).chunk(2)
                e = e2 + 3.0 * (e1 - e2)
                a = float(ab[ts[i]])
                a2 = float(ab[ts[i + 1]]) if i + 1 < n else 1.0
                x0 = ((x - (1 - a) ** 0.5 * e) / a ** 0.5).clamp(-4, 4)
                x = a2 ** 0.5 * x0 + (1 - a2) ** 0.5 * e
            dec(x).float().clamp(-1, 1).cpu()


@prog
def dcgan():
    def up(i, o, first=False):
        return [nn.ConvTranspose2d(i, o, 4, 1 if first else 2, 0 if first else 1, bias=False),
                nn.BatchNorm2d(o), nn.ReLU(True)]

    g = nn.Sequential(*up(100, 512, True), *up(512, 256), *up(256, 128), *up(128, 64),
                      nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).to(dev)
    ls, c = [], 3
    for o in (64, 128, 256, 512):
        ls += [nn.Conv2d(c, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]
        c = o
    d = nn.Sequential(*ls, nn.Conv2d(512, 1, 4), nn.Flatten(0)).to(dev)
    og = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    od = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    bce = F.binary_cross_entropy_with_logits
    for i in loop(50):
        b = 128 if i % 9 != 8 else 51
        real = torch.rand(b, 3, 64, 64).to(dev) * 2 - 1
        fake = g(torch.randn(b, 100, 1, 1, device=dev))
        dr, df = d(real), d(fake.detach())
        step(od, bce(dr, torch.ones_like(dr)) + bce(df, torch.zeros_like(df)))
        df = d(fake)
        step(og, bce(df, torch.ones_like(df)))


@prog
def vae_train():
    enc = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.GELU(), nn.Conv2d(64, 128, 4, 2, 1), nn.GELU(),
                        nn.Conv2d(128, 256, 4, 2, 1), nn.GELU(), nn.Conv2d(256, 16, 3, 1, 1)).to(dev)
    dec = nn.Sequential(nn.Conv2d(8, 256, 3, 1, 1), nn.GELU(), nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.GELU(),
                        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)).to(dev)
    opt = torch.optim.Adam(list(enc.parameters()) + list(dec.parameters()), lr=1e-3)
    for i in loop(70):
        b, s = R.randint(8, 48), R.choice([64, 96, 128])
        x = torch.rand(b, 3, s, s, device=dev)
        mu, lv = enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        kl = -0.5 * (1 + lv - mu.pow(2) - lv.exp()).mean()
        step(opt, F.mse_loss(dec(z), x) + 1e-3 * kl)
        if i % 15 == 14:
            with torch.no_grad():
                dec(torch.randn(64, 8, 16, 16, device=dev)).cpu()


@prog
def wgan_gp():
    g = nn.Sequential(nn.Linear(128, 256 * 16), nn.Unflatten(1, (256, 4, 4)), nn.Upsample(scale_factor=2),
                      nn.Conv2d(256, 128, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
                      nn.Conv2d(128, 64, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
                      nn.Conv2d(64, 3, 3, padding=1), nn.Tanh()).to(dev)
    d = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1),
                      nn.LeakyReLU(0.2), nn.Conv2d(128, 256, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(),
                      nn.Linear(256 * 64, 1)).to(dev)
    og = torch.optim.Adam(g.parameters(), lr=1e-4, betas=(0.0, 0.9))
    od = torch.optim.Adam(d.parameters(), lr=1e-4, betas=(0.0, 0.9))
    for _ in loop(16):
        b = R.choice([64, 96, 128])
        for _k in loop(3):
            real = torch.rand(b, 3, 32, 32, device=dev) * 2 - 1
            with torch.no_grad():
                fake = g(torch.randn(b, 128, device=dev))
            a = torch.rand(b, 1, 1, 1, device=dev)
            mix = (a * real + (1 - a) * fake).requires_grad_(True)
            gr, = torch.autograd.grad(d(mix).sum(), mix, create_graph=True)
            gp = ((gr.flatten(1).norm(dim=1) - 1) ** 2).mean()
            step(od, d(fake).mean() - d(real).mean() + 10 * gp)
        step(og, -d(g(torch.randn(b, 128, device=dev))).mean())
