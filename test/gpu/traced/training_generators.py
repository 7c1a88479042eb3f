"""Generators trained: adversaries, codes, diffusion, rays."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step
from training_common import _freeze


@prog
def progressive_gan_gp():
    """Resolutions grow from 8 to 256 with fading, gradient penalty, minibatch deviation, averaged generator."""
    ch = [512, 512, 512, 256, 128, 64]                 # for 8, 16, 32, 64, 128, 256
    bs = [64, 64, 48, 32, 20, 10]

    class G(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Linear(512, 512 * 64)
            self.c = nn.ModuleList([nn.ModuleList([nn.Conv2d(ch[max(0, k - 1)], ch[k], 3, padding=1),
                                                   nn.Conv2d(ch[k], ch[k], 3, padding=1)]) for k in range(6)])
            self.rgb = nn.ModuleList([nn.Conv2d(c, 3, 1) for c in ch])

        def forward(self, z, lev, a):
            z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
            x, prev = self.i(z).view(-1, 512, 8, 8), None
            for k in range(lev + 1):
                if k:
                    x = F.interpolate(x, scale_factor=2, mode="nearest")
                    if k == lev and a < 1:
                        prev = self.rgb[k - 1](x)
                for c in self.c[k]:
                    x = F.leaky_relu(c(x), 0.2)
                    x = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-8)
            y = self.rgb[lev](x)
            return y if prev is None else a * y + (1 - a) * prev

    class D(nn.Module):
        def __init__(self):
            super().__init__()
            self.rgb = nn.ModuleList([nn.Conv2d(3, c, 1) for c in ch])
            self.c = nn.ModuleList([nn.ModuleList([nn.Conv2d(ch[k], ch[k], 3, padding=1),
                                                   nn.Conv2d(ch[k], ch[max(0, k - 1)], 3, padding=1)]) for k in range(6)])
            self.e = nn.Conv2d(513, 512, 3, padding=1)
            self.o = nn.Sequential(nn.Flatten(), nn.Linear(512 * 16, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))

        def forward(self, x, lev, a):
            h = F.leaky_relu(self.rgb[lev](x), 0.2)
            for k in range(lev, -1, -1):
                for c in self.c[k]:
                    h = F.leaky_relu(c(h), 0.2)
                h = F.avg_pool2d(h, 2)
                if k == lev and lev and a < 1:
                    h = a * h + (1 - a) * F.leaky_relu(self.rgb[k - 1](F.avg_pool2d(x, 2)), 0.2)
            sd = (h.var(0, unbiased=False) + 1e-8).sqrt().mean().view(1, 1, 1, 1).expand(h.shape[0], 1, *h.shape[2:])
            return self.o(F.leaky_relu(self.e(torch.cat([h, sd], 1)), 0.2))

    g, d = G().to(dev), D().to(dev)
    ema = _freeze(copy.deepcopy(g))
    og = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.0, 0.99))
    od = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.0, 0.99))
    for lev in range(6):
        for i in loop(8):
            a, b, s = min(1.0, (i + 1) / 5) if lev else 1.0, bs[lev], 8 * 2 ** lev
            real = torch.rand(b, 3, 256, 256, device=dev) * 2 - 1
            real = F.interpolate(real, size=(s, s), mode="area")
            with torch.no_grad():
                fake = g(torch.randn(b, 512, device=dev), lev, a)
            dr, df = d(real, lev, a), d(fake, lev, a)
            e = torch.rand(b, 1, 1, 1, device=dev)
            mix = (e * real + (1 - e) * fake).requires_grad_(True)
            gr, = torch.autograd.grad(d(mix, lev, a).sum(), mix, create_graph=True)
            gp = ((gr.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
            step(od, df.mean() - dr.mean() + 10 * gp + 1e-3 * dr.pow(2).mean())
            step(og, -d(g(torch.randn(b, 512, device=dev), lev, a), lev, a).mean())
            with torch.no_grad():
                for p, q in zip(ema.parameters(), g.parameters()):
                    p.lerp_(q, 0.001)
        with torch.no_grad():
            ema(torch.randn(16, 512, device=dev), lev, 1.0).clamp(-1, 1).cpu()


@prog
def vqvae_perceptual():
    """Nearest codes by a full table of distances, codebook by moving averages, losses on VGG features."""
    from torchvision.models import vgg16
    vgg = _freeze(vgg16(weights=None).features[:16]).to(dev)

    def res(c):
        class Res(nn.Module):
            def __init__(self):
                super().__init__()
                self.f = nn.Sequential(nn.GroupNorm(16, c), nn.SiLU(), nn.Conv2d(c, c, 3, padding=1),
                                       nn.GroupNorm(16, c), nn.SiLU(), nn.Conv2d(c, c, 3, padding=1))

            def forward(self, x):
                return x + self.f(x)
        return Res()

    D, K = 64, 2048
    enc = nn.Sequential(nn.Conv2d(3, 96, 3, padding=1), res(96), nn.Conv2d(96, 192, 4, 2, 1), res(192),
                        nn.Conv2d(192, 256, 4, 2, 1), res(256), res(256), nn.Conv2d(256, D, 1)).to(dev)
    dec = nn.Sequential(nn.Conv2d(D, 256, 3, padding=1), res(256), res(256), nn.ConvTranspose2d(256, 192, 4, 2, 1),
                        res(192), nn.ConvTranspose2d(192, 96, 4, 2, 1), res(96), nn.Conv2d(96, 3, 3, padding=1)).to(dev)
    code = torch.randn(K, D, device=dev)
    cnt, avg = torch.zeros(K, device=dev), code.clone()
    opt = torch.optim.Adam(list(enc.parameters()) + list(dec.parameters()), lr=2e-4, betas=(0.5, 0.9))
    for i in loop(50):
        b, s = R.choice([4, 6, 8]), R.choice([128, 160, 192, 256])
        x = torch.rand(b, 3, s, s, device=dev)
        z = enc(x)
        zf = z.permute(0, 2, 3, 1).reshape(-1, D)
        with torch.no_grad():
            dist = zf.pow(2).sum(1, keepdim=True) - 2 * zf @ code.t() + code.pow(2).sum(1)[None]
            k = dist.argmin(1)
            hot = F.one_hot(k, K).float()
            cnt.mul_(0.99).add_(hot.sum(0), alpha=0.01)
            avg.mul_(0.99).add_(hot.t() @ zf, alpha=0.01)
            n = cnt.sum()
            code = avg / ((cnt + 1e-5) / (n + K * 1e-5) * n)[:, None]
            p = hot.mean(0)
            (-(p * (p + 1e-10).log()).sum()).exp().item()
            dead = (cnt < 1e-3).nonzero()[:, 0]
            if i % 5 == 4 and dead.numel():
                code[dead] = zf[torch.randint(0, zf.shape[0], (dead.numel(),), device=dev)]
        q = code[k].view(b, s // 4, s // 4, D).permute(0, 3, 1, 2)
        com = F.mse_loss(z, q)
        y = dec(z + (q - z).detach())
        per = F.l1_loss(vgg(y), vgg(x))
        step(opt, F.l1_loss(y, x) + 0.25 * com + 0.1 * per)
        if i % 12 == 11:
            with torch.no_grad():
                dec(code[torch.randint(0, K, (4, 64, 64), device=dev)].permute(0, 3, 1, 2)).clamp(0, 1).cpu()


class _TRes(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.n1, self.c1, self.t = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(t, o)
        self.n2, self.c2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
        self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        y = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.s(x) + self.c2(F.silu(self.n2(y)))


class _Cross(nn.Module):
    def __init__(self, c, ctx, h=8):
        super().__init__()
        self.h, self.n = h, nn.GroupNorm(32, c)
        self.n1, self.n2, self.n3 = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.o1 = nn.Linear(c, 3 * c, bias=False), nn.Linear(c, c)
        self.q, self.kv, self.o2 = nn.Linear(c, c, bias=False), nn.Linear(ctx, 2 * c, bias=False), nn.Linear(c, c)
        self.g, self.f = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def att(self, q, k, v):
        q, k, v = [t.reshape(t.shape[0], t.shape[1], self.h, -1).transpose(1, 2) for t in (q, k, v)]
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x, ctx):
        b, c, h, w = x.shape
        y = self.n(x).flatten(2).transpose(1, 2)
        y = y + self.o1(self.att(*self.qkv(self.n1(y)).chunk(3, -1)))
        y = y + self.o2(self.att(self.q(self.n2(y)), *self.kv(ctx).chunk(2, -1)))
        a, g = self.g(self.n3(y)).chunk(2, -1)
        y = y + self.f(a * F.gelu(g))
        return x + y.transpose(1, 2).reshape(b, c, h, w)


@prog
def latent_diffusion_buckets():
    """Latents in buckets of shape, text by cross attention, captions dropped, bf16, averaged weights, AdamW over lists."""
    ch, T, X = [192, 384, 576], 768, 768

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.te = nn.Sequential(nn.Linear(192, T), nn.SiLU(), nn.Linear(T, T))
            self.i = nn.Conv2d(4, ch[0], 3, padding=1)
            self.d, self.u, cur, sk = nn.ModuleList(), nn.ModuleList(), ch[0], [ch[0]]
            for k, c in enumerate(ch):
                for _ in range(2):
                    self.d.append(nn.ModuleList([_TRes(cur, c, T), _Cross(c, X)]))
                    cur = c
                    sk.append(c)
                if k < 2:
                    self.d.append(nn.ModuleList([nn.Conv2d(c, c, 3, 2, 1)]))
                    sk.append(c)
            self.m = nn.ModuleList([_TRes(cur, cur, T), _Cross(cur, X), _TRes(cur, cur, T)])
            for k, c in reversed(list(enumerate(ch))):
                for j in range(3):
                    self.u.append(nn.ModuleList([_TRes(cur + sk.pop(), c, T), _Cross(c, X)]))
                    cur = c
                    if j == 2 and k > 0:
                        self.u[-1].append(nn.Conv2d(c, c, 3, padding=1))
            self.n, self.o = nn.GroupNorm(32, cur), nn.Conv2d(cur, 4, 3, padding=1)

        def forward(self, x, t, ctx):
            fr = torch.exp(-math.log(1e4) * torch.arange(96, device=x.device) / 96)
            a = t[:, None].float() * fr[None]
            t = self.te(torch.cat([a.sin(), a.cos()], 1))
            x = self.i(x)
            sk = [x]
            for f in self.d:
                x = f[0](x) if len(f) == 1 else f[1](f[0](x, t), ctx)
                sk.append(x)
            x = self.m[2](self.m[1](self.m[0](x, t), ctx), t)
            for f in self.u:
                s = sk.pop()
                x = f[1](f[0](torch.cat([x, s], 1), t), ctx)
                if len(f) == 3:
                    x = f[2](F.interpolate(x, size=sk[-1].shape[2:], mode="nearest"))
            return self.o(F.silu(self.n(x)))

    with torch.device(dev):
        m = Net().train()
    ema = [p.detach().clone() for p in m.parameters()]
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, weight_decay=0.01, foreach=True)
    ab = torch.cumprod(1 - torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000) ** 2, 0).to(dev)
    buckets = [(h, w) for h in range(32, 129, 8) for w in range(32, 129, 8) if 3300 <= h * w <= 4100]
    for _ in loop(30):
        h, w = R.choice(buckets)
        b = R.choice([8, 8, 8, 3])
        x = torch.randn(b, 4, h, w).to(dev) * 0.18
        ctx = torch.randn(b, 77 * R.choice([1, 1, 2, 3]), X).to(dev)
        ctx = torch.where(torch.rand(b, 1, 1, device=dev) < 0.1, torch.zeros_like(ctx), ctx)
        t, e = torch.randint(0, 1000, (b,), device=dev), torch.randn_like(x)
        a = ab[t][:, None, None, None]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            o = m(a.sqrt() * x + (1 - a).sqrt() * e, t, ctx)
        snr = (ab[t] / (1 - ab[t]))
        loss = (F.mse_loss(o.float(), e, reduction="none").mean((1, 2, 3)) * snr.clamp(max=5) / snr).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        loss.item()
        with torch.no_grad():
            torch._foreach_mul_(ema, 0.9999)
            torch._foreach_add_(ema, [p.detach() for p in m.parameters()], alpha=0.0001)


@prog
def nerf_rays():
    """Batches of rays, coarse and fine samples; now and then a whole picture in pieces."""
    class Field(nn.Module):
        def __init__(self, w=256):
            super().__init__()
            self.l = nn.ModuleList([nn.Linear(63 if i == 0 else w + 63 if i == 5 else w, w) for i in range(8)])
            self.s, self.f = nn.Linear(w, 1), nn.Linear(w, w)
            self.v, self.c = nn.Linear(w + 27, w // 2), nn.Linear(w // 2, 3)

        def forward(self, x, d):
            h = x
            for i, f in enumerate(self.l):
                if i == 5:
                    h = torch.cat([x, h], -1)
                h = F.relu(f(h))
            s = self.s(h)
            h = F.relu(self.v(torch.cat([self.f(h), d], -1)))
            return torch.cat([torch.sigmoid(self.c(h)), s], -1)

    def pe(x, n):
        return torch.cat([x] + [g(x * 2.0 ** k) for k in range(n) for g in (torch.sin, torch.cos)], -1)

    def query(net, p, d):
        dd = pe(d[:, None].expand(p.shape).reshape(-1, 3), 4)
        x = pe(p.reshape(-1, 3), 10)
        o = torch.cat([net(x[i:i + 131072], dd[i:i + 131072]) for i in range(0, x.shape[0], 131072)])
        return o.view(*p.shape[:2], 4)

    def comp(o, z):
        dz = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], 1)
        a = 1 - torch.exp(-F.relu(o[..., 3]) * dz)
        w = a * torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]
        return (w[..., None] * o[..., :3]).sum(1), w

    def render(ro, rd, nc, nf, noise):
        n = ro.shape[0]
        z = torch.linspace(2, 6, nc, device=dev).expand(n, nc)
        if noise:
            z = z + torch.rand(n, nc, device=dev) * 4 / nc
        vd = F.normalize(rd, dim=-1)
        c0, w = comp(query(coarse, ro[:, None] + rd[:, None] * z[..., None], vd), z)
        with torch.no_grad():
            mid = 0.5 * (z[:, 1:] + z[:, :-1])
            pdf = w[:, 1:-1] + 1e-5
            cdf = torch.cumsum(pdf / pdf.sum(-1, keepdim=True), -1)
            cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], -1)
            u = torch.rand(n, nf, device=dev)
            k = torch.searchsorted(cdf.contiguous(), u, right=True)
            lo, hi = (k - 1).clamp(min=0), k.clamp(max=cdf.shape[1] - 1)
            g = torch.stack([lo, hi], -1).view(n, -1)
            cg, mg = torch.gather(cdf, 1, g).view(n, nf, 2), torch.gather(mid, 1, g).view(n, nf, 2)
            den = cg[..., 1] - cg[..., 0]
            t = (u - cg[..., 0]) / torch.where(den < 1e-5, torch.ones_like(den), den)
            zf = mg[..., 0] + t * (mg[..., 1] - mg[..., 0])
            z = torch.sort(torch.cat([z, zf], 1), 1).values
        c1, _ = comp(query(fine, ro[:, None] + rd[:, None] * z[..., None], vd), z)
        return c0, c1

    coarse, fine = Field().to(dev), Field().to(dev)
    opt = torch.optim.Adam(list(coarse.parameters()) + list(fine.parameters()), lr=5e-4)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.999)
    imgs = torch.rand(20, 200, 200, 3, device=dev)
    for i in loop(60):
        n = R.choice([1024, 1024, 2048])
        k, y, x = [torch.randint(0, m, (n,), device=dev) for m in (20, 200, 200)]
        ro = torch.randn(n, 3, device=dev) * 0.1 + k[:, None] * 0.01
        rd = torch.stack([(x - 100) / 180, -(y - 100) / 180, -torch.ones_like(x).float()], -1)
        c0, c1 = render(ro, rd, 64, 128, True)
        t = imgs[k, y, x]
        step(opt, F.mse_loss(c0, t) + F.mse_loss(c1, t))
        sched.step()
        if i % 20 == 19:
            with torch.no_grad():
                s = R.choice([80, 100, 120])
                yy, xx = torch.meshgrid(torch.arange(s, device=dev), torch.arange(s, device=dev), indexing="ij")
                rd = torch.stack([(xx - s / 2) / s, -(yy - s / 2) / s, -torch.ones_like(xx).float()], -1).view(-1, 3)
                ro, out = torch.zeros_like(rd), []
                for a in range(0, rd.shape[0], 4096):
                    out.append(render(ro[a:a + 4096], rd[a:a + 4096], 64, 128, False)[1])
                torch.cat(out).view(s, s, 3).cpu()
