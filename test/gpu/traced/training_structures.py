"""Training: protein chains, meshes that move, noisy speech."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


@prog
def protein_mlm_buckets():
    """Masked residues of protein chains in batches of about equal residue count, two micro-batches a step; contacts from the
    attention maps of held-out chains after every epoch."""
    d, H, N, V, PAD, MASK = 640, 20, 16, 33, 1, 32
    hd = d // H

    def rot(x, cos, sin):
        a, b = x.chunk(2, -1)
        return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x, cos, sin, keep, maps):
            b, l, _ = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, l, 3, H, hd).permute(2, 0, 3, 1, 4)
            q, k = rot(q, cos, sin), rot(k, cos, sin)
            if maps is None:
                a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
            else:
                s = (q @ k.transpose(-1, -2)).float() * hd ** -0.5
                p = s.masked_fill(~keep, float("-inf")).softmax(-1)
                maps.append(p.bfloat16())
                a = p.to(v.dtype) @ v
            x = x + self.o(a.transpose(1, 2).reshape(b, l, d))
            return x + self.f2(F.gelu(self.f1(self.n2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(V, d, padding_idx=PAD)
            nn.init.normal_(self.emb.weight, std=0.02)
            self.ls = nn.ModuleList([Layer() for _ in range(N)])
            self.n, self.h1, self.h2 = nn.LayerNorm(d), nn.Linear(d, d), nn.LayerNorm(d)
            self.bias = nn.Parameter(torch.zeros(V))
            self.register_buffer("freq", 1e4 ** (-torch.arange(0, hd, 2).float() / hd))

        def forward(self, x, maps=None):
            keep = x != PAD
            h = self.emb(x).masked_fill((x == MASK)[..., None], 0.0)
            ratio = (x == MASK).sum(1).float() / keep.sum(1)
            h = h * (1 - 0.15 * 0.8) / (1 - ratio)[:, None, None]
            h = h * keep[..., None]
            a = torch.arange(x.shape[1], device=x.device)[:, None] * self.freq
            a = torch.cat([a, a], -1)[None, None]
            cos, sin = a.cos(), a.sin()
            for f in self.ls:
                h = f(h, cos, sin, keep[:, None, None], maps)
            return self.n(h)

        def logits(self, h):
            return F.linear(self.h2(F.gelu(self.h1(h))), self.emb.weight, self.bias)

    def chain():
        return min(1022, max(30, int(math.exp(R.gauss(5.7, 0.6))))) + 2

    def buckets():
        out, cur = [], []
        for l in sorted(chain() for _ in range(1500)):
            if cur and (len(cur) + 1) * l > 16000:
                out.append(cur)
                cur = []
            cur.append(l)
        out.append(cur)
        R.shuffle(out)
        return out

    def collate(lens):
        x = torch.full((len(lens), max(lens)), PAD)
        for i, l in enumerate(lens):
            x[i, :l] = torch.randint(4, 24, (l,))
            x[i, 0], x[i, l - 1] = 0, 2
        return x.to(dev)

    with torch.device(dev):
        m = Model().train()
    opt = torch.optim.AdamW(m.parameters(), lr=4e-4, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / 200))
    weight, losses = torch.randn(N * H, device=dev) * 0.1, []
    for _epoch in loop(30):
        bs = buckets()
        for i in loop(len(bs)):
            x = collate(bs[i])
            r = torch.rand(x.shape, device=dev)
            sel = (r < 0.15) & (x > 3)
            y = x[sel]
            z = x.masked_fill(sel & (r < 0.12), MASK)
            swap = sel & (r >= 0.12) & (r < 0.135)
            z[swap] = torch.randint(4, 24, (int(swap.sum()),), device=dev)
            with torch.autocast(dev, torch.bfloat16):
                h = m(z)
                loss = F.cross_entropy(m.logits(h[sel]).float(), y)
            (loss / 2).backward()
            losses.append(loss.detach())
            if i % 2 == 1 or i == len(bs) - 1:
                nn.utils.clip_grad_norm_(m.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
        if losses:
            torch.stack(losses).mean().item()
            losses = []
        m.eval()
        right = []
        with torch.no_grad(), torch.autocast(dev, torch.bfloat16):
            for _ in loop(8):
                x, maps = collate([min(700, chain())]), []
                m(x, maps)
                a = torch.cat(maps, 1)[:, :, 1:-1, 1:-1].float()
                a = a + a.transpose(-1, -2)
                a1, a2, a12 = a.sum(-1, keepdim=True), a.sum(-2, keepdim=True), a.sum((-1, -2), keepdim=True)
                a = a - a1 * a2 / a12
                c = torch.einsum("bhij,h->bij", a, weight).sigmoid()
                n = c.shape[-1]
                i, j = torch.triu_indices(n, n, 6, device=dev)
                top = c[0, i, j].float().topk(max(1, n // 5)).indices
                right.append((((i + j)[top] % 7) == 0).float().mean())
        if right:
            torch.stack(right).mean().item()
        m.train()


@prog
def mesh_gnn_rollouts():
    """A learned simulator on meshes: encode, twelve rounds of messages, decode; noise on the input, statistics kept on the
    way; then whole rollouts, fed with their own output."""
    d = 128

    def mlp(i, o, norm=True):
        ls = [nn.Linear(i, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, o)]
        return nn.Sequential(*ls, nn.LayerNorm(o)) if norm else nn.Sequential(*ls)

    class Round(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.v = mlp(3 * d, d), mlp(2 * d, d)

        def forward(self, v, e, src, dst):
            new = self.e(torch.cat([v[src], v[dst], e], 1))
            got = torch.zeros_like(v).index_add_(0, dst, new)
            return v + self.v(torch.cat([v, got], 1)), e + new

    class Norm:
        def __init__(self, k):
            self.n, self.s, self.q = (torch.zeros(s, device=dev) for s in ((), k, k))

        def learn(self, x):
            self.n += x.shape[0]
            self.s += x.sum(0)
            self.q += (x * x).sum(0)

        def stat(self):
            mean = self.s / self.n.clamp(min=1)
            return mean, (self.q / self.n.clamp(min=1) - mean ** 2).clamp(min=1e-8).sqrt()

        def __call__(self, x):
            mean, std = self.stat()
            return (x - mean) / std

        def back(self, y):
            mean, std = self.stat()
            return y * std + mean

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.ve, self.ee, self.dec = mlp(6, d), mlp(3, d), mlp(d, 2, False)
            self.rs = nn.ModuleList([Round() for _ in range(12)])

        def forward(self, vel, pos, kind, src, dst):
            v = self.ve(torch.cat([nv(vel), F.one_hot(kind, 4).float()], 1))
            rel = pos[src] - pos[dst]
            e = self.ee(ne(torch.cat([rel, rel.norm(dim=1, keepdim=True)], 1)))
            for f in self.rs:
                v, e = f(v, e, src, dst)
            return self.dec(v)

    def mesh():
        n = R.randint(1000, 4500)
        pos = torch.rand(n, 2, device=dev) * torch.tensor([1.6, 0.4], device=dev)
        near = torch.cdist(pos, pos).topk(7, largest=False).indices[:, 1:]
        a, b = torch.arange(n, device=dev).repeat_interleave(6), near.flatten()
        key = torch.unique(torch.cat([a * n + b, b * n + a]))
        kind = torch.where(pos[:, 0] < 0.05, 1, torch.where(pos[:, 0] > 1.55, 2, 0))
        return pos, kind, key // n, key % n

    def truth(pos, vel):
        return 0.05 * torch.cat([torch.sin(7 * pos[:, 1:]) - vel[:, :1], torch.cos(5 * pos[:, :1]) - vel[:, 1:]], 1)

    nv, ne, na = Norm(2), Norm(3), Norm(2)
    meshes = [mesh() for _ in range(14)]
    net = Net().to(dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.999)
    for _epoch in loop(40):
        for _ in loop(40):
            some, total = [], 0
            for g in R.sample(meshes[:10], R.randint(1, 4)):
                if not some or total + g[0].shape[0] < 11000:
                    some.append(g)
                    total += g[0].shape[0]
            pos, kind = torch.cat([g[0] for g in some]), torch.cat([g[1] for g in some])
            off = [0]
            for g in some[:-1]:
                off.append(off[-1] + g[0].shape[0])
            src = torch.cat([g[2] + o for g, o in zip(some, off)])
            dst = torch.cat([g[3] + o for g, o in zip(some, off)])
            vel = torch.randn_like(pos) * 0.3
            acc = truth(pos, vel)
            inner = kind != 1
            noise = torch.randn_like(vel) * 0.02 * inner[:, None]
            rel = pos[src] - pos[dst]
            nv.learn(vel + noise)
            ne.learn(torch.cat([rel, rel.norm(dim=1, keepdim=True)], 1))
            na.learn(acc - noise)
            out = net(vel + noise, pos, kind, src, dst)
            err = ((out - na(acc - noise)) ** 2).sum(1)
            step(opt, err[inner].mean())
            sched.step()
        net.eval()
        with torch.no_grad():
            for g in meshes[10:]:
                pos, kind, src, dst = g
                vel = torch.randn_like(pos) * 0.3
                true, path, paths = vel.clone(), [], []
                for _t in loop(40):
                    vel = torch.where((kind == 1)[:, None], vel, vel + na.back(net(vel, pos, kind, src, dst)))
                    true = true + truth(pos, true)
                    path.append(vel)
                    paths.append(true)
                if path:
                    a, b = torch.stack(path), torch.stack(paths)
                    ((a - b) ** 2).mean((1, 2)).sqrt().cpu()
                    a.cpu()
        net.train()


@prog
def speech_enhance_crn():
    """Noise and reverberation put on speech on the fly, a complex mask by convolutions and a GRU, losses at three STFT
    resolutions; validation on whole utterances."""
    ch, win = [2, 32, 64, 128, 256, 256], torch.hann_window(512, device=dev)

    class CRN(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.ModuleList([nn.Sequential(nn.Conv2d(ch[k], ch[k + 1], (3, 5), (1, 2), (1, 2)),
                                                  nn.BatchNorm2d(ch[k + 1]), nn.PReLU()) for k in range(5)])
            self.g, self.p = nn.GRU(256 * 9, 512, 2, batch_first=True), nn.Linear(512, 256 * 9)
            self.d = nn.ModuleList()
            for k in (4, 3, 2, 1, 0):
                up = nn.ConvTranspose2d(2 * ch[k + 1], ch[k], (3, 5), (1, 2), (1, 2))
                self.d.append(nn.Sequential(up, nn.BatchNorm2d(ch[k]), nn.PReLU()) if k else up)

        def forward(self, wave):
            spec = torch.stft(wave, 512, 128, window=win, return_complex=True)
            x, skips = torch.stack([spec.real, spec.imag], 1).transpose(2, 3), []
            for f in self.e:
                x = f(x)
                skips.append(x)
            b, c, t, w = x.shape
            y, _ = self.g(x.permute(0, 2, 1, 3).reshape(b, t, c * w))
            x = self.p(y).view(b, t, c, w).permute(0, 2, 1, 3)
            for f in self.d:
                x = f(torch.cat([x, skips.pop()], 1))
            x = torch.tanh(x).transpose(2, 3).contiguous()
            return torch.istft(spec * torch.complex(x[:, 0], x[:, 1]), 512, 128, window=win, length=wave.shape[1])

    wins = {n: torch.hann_window(n, device=dev) for n in (512, 1024, 2048)}

    def speech(b, n):
        t = torch.arange(n, device=dev) / 16000
        f0 = 80 + 200 * torch.rand(b, 1, device=dev)
        s = sum(torch.sin(2 * math.pi * k * f0 * t) / k for k in range(1, 6))
        env = F.interpolate(torch.rand(b, 1, n // 1600 + 2, device=dev), size=n, mode="linear")[:, 0]
        return s * env

    def mix(clean):
        b, n = clean.shape
        rir = torch.randn(b, 6000, device=dev) * torch.exp(-torch.arange(6000, device=dev) / R.randint(300, 1500))
        rir[:, 0] = 1
        size = n + 6000
        wet = torch.fft.irfft(torch.fft.rfft(clean, size) * torch.fft.rfft(rir * 0.05, size), size)[:, :n]
        noise = torch.randn_like(wet)
        snr = torch.empty(b, 1, device=dev).uniform_(-5, 20)
        gain = wet.pow(2).mean(1, keepdim=True).sqrt() / noise.pow(2).mean(1, keepdim=True).sqrt() * 10 ** (-snr / 20)
        x = wet + gain * noise
        return x / x.abs().amax(1, keepdim=True).clamp(min=1e-3)

    def sisnr(a, s):
        a, s = a - a.mean(1, keepdim=True), s - s.mean(1, keepdim=True)
        p = (a * s).sum(1, keepdim=True) * s / (s.pow(2).sum(1, keepdim=True) + 1e-8)
        return 10 * torch.log10(p.pow(2).sum(1) / ((a - p).pow(2).sum(1) + 1e-8) + 1e-8)

    def spectral(a, s):
        total = 0.0
        for n, w in wins.items():
            x = torch.stft(a, n, n // 4, window=w, return_complex=True).abs().clamp(min=1e-5)
            y = torch.stft(s, n, n // 4, window=w, return_complex=True).abs().clamp(min=1e-5)
            total = total + (x - y).norm() / y.norm() + (x.log() - y.log()).abs().mean()
        return total

    m = CRN().to(dev)
    opt = torch.optim.Adam(m.parameters(), lr=6e-4)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
    best, kept = -1e9, None
    for _epoch in loop(30):
        m.train()
        for i in loop(25):
            clean = speech(16 if i < 24 else 7, R.choice([32000, 48000, 64000]))
            noisy = mix(clean)
            out = m(noisy)
            loss = spectral(out, clean) - 0.05 * sisnr(out, clean).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 5.0)
            opt.step()
            loss.item()
        m.eval()
        scores = []
        with torch.no_grad():
            for _ in loop(12):
                clean = speech(1, R.randint(3 * 16000, 20 * 16000))
                scores.append(sisnr(m(mix(clean)), clean).item())
        if scores:
            score = sum(scores) / len(scores)
            sched.step(-score)
            if score > best:
                best, kept = score, {k: v.cpu() for k, v in m.state_dict().items()}
    del kept
