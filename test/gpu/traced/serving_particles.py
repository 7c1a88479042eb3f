"""Inference: molecular dynamics, sparse voxels, translation."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog
from serving_common import BF, _load


@prog
def md_neighbour_lists():
    """Molecular dynamics with a learned potential: forces as gradients of the energy, lists of neighbours with a margin rebuilt
    when atoms have moved; boxes of several sizes, and batches of small molecules relaxed."""
    d, K, cut, skin = 128, 50, 5.0, 1.0

    class Net(nn.Module):
        def __init__(self, n=4):
            super().__init__()
            self.e = nn.Embedding(20, d)
            self.f = nn.ModuleList([nn.Sequential(nn.Linear(K, d), nn.SiLU(), nn.Linear(d, d)) for _ in range(n)])
            self.a = nn.ModuleList([nn.Linear(d, d, bias=False) for _ in range(n)])
            self.b = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d)) for _ in range(n)])
            self.o = nn.Sequential(nn.Linear(d, 64), nn.SiLU(), nn.Linear(64, 1))
            self.register_buffer("mu", torch.linspace(0, cut, K))

        def forward(self, z, pos, src, dst, shift, mol, nm):
            r = pos[dst] - pos[src] + shift
            dist = (r ** 2).sum(1).add(1e-8).sqrt()
            inside = (dist < cut).nonzero()[:, 0]
            src, dst, dist = src[inside], dst[inside], dist[inside]
            rbf = torch.exp(-10 * (dist[:, None] - self.mu) ** 2)
            env = 0.5 * (torch.cos(dist * math.pi / cut) + 1)[:, None]
            h = self.e(z)
            for f, a, b in zip(self.f, self.a, self.b):
                w = f(rbf) * env
                msg = a(h)[src] * w
                h = h + b(torch.zeros_like(h).index_add(0, dst, msg))
            e = self.o(h)[:, 0] + 0.01 * torch.zeros_like(h[:, 0]).index_add(0, dst, 1 / (dist + 0.1) ** 6)
            return torch.zeros(nm, device=dev).index_add(0, mol, e)

    net = _load(Net)

    def pairs(pos, box):
        src, dst, sh = [], [], []
        n = pos.shape[0]
        for a in range(0, n, 1024):
            r = pos[None] - pos[a:a + 1024, None]
            s = -box * torch.round(r / box)
            r = r + s
            near = (r ** 2).sum(2) < (cut + skin) ** 2
            i = torch.arange(near.shape[0], device=dev)
            near[i, i + a] = False
            i, j = near.nonzero().unbind(1)
            src.append(i + a)
            dst.append(j)
            sh.append(s[i, j])
        return torch.cat(src), torch.cat(dst), torch.cat(sh)

    def forces(z, pos, lists, mol, nm):
        x = pos.detach().requires_grad_(True)
        e = net(z, x, *lists, mol, nm)
        f, = torch.autograd.grad(e.sum(), x)
        return e.detach(), -f.clamp(-50, 50)

    for _job in loop(100):
        if R.random() < 0.6:
            n = R.randint(900, 3600)
            box, side = (n / 0.09) ** (1 / 3), int(math.ceil(n ** (1 / 3)))
            grid = torch.cartesian_prod(*[torch.arange(side, device=dev).float()] * 3)[:n] * (box / side)
            pos = grid + 0.1 * torch.randn(n, 3, device=dev)
            z, mol = torch.randint(1, 20, (n,), device=dev), torch.zeros(n, dtype=torch.long, device=dev)
            mass = (1 + 15 * torch.rand(n, 1, device=dev))
            vel, dt, old, lists = torch.randn(n, 3, device=dev) / mass.sqrt(), 0.01, None, None
            path, log = [], []
            for t in loop(R.randint(40, 150)):
                if old is None or float((pos - old).norm(dim=1).max()) > skin / 2:
                    wrapped = pos % box
                    pos, old = wrapped, wrapped.clone()
                    lists = pairs(pos, box)
                    _e, f = forces(z, pos, lists, mol, 1)
                vel += 0.5 * dt * f / mass
                pos = pos + dt * vel
                e, f = forces(z, pos, lists, mol, 1)
                vel += 0.5 * dt * f / mass
                c = math.exp(-0.5 * dt)
                vel.mul_(c).add_(torch.randn_like(vel) * math.sqrt(1 - c * c) / mass.sqrt())
                log.append((e, 0.5 * (mass * vel ** 2).sum()))
                if t % 10 == 0:
                    path.append(pos.cpu())
            if log:
                torch.stack([a.sum() + b for a, b in log]).cpu()
        else:
            nm = R.randint(64, 512)
            sizes = [R.randint(8, 60) for _ in range(nm)]
            n = sum(sizes)
            mol = torch.repeat_interleave(torch.arange(nm), torch.tensor(sizes)).to(dev)
            z, pos = torch.randint(1, 20, (n,), device=dev), torch.randn(n, 3, device=dev) * 2.5
            src, dst, at = [], [], 0
            for s in sizes:
                i, j = torch.tril_indices(s, s, -1)
                src += [i + at, j + at]
                dst += [j + at, i + at]
                at += s
            src, dst = torch.cat(src).to(dev), torch.cat(dst).to(dev)
            lists = (src, dst, torch.zeros(src.numel(), 3, device=dev))
            vel, dt, alpha = torch.zeros_like(pos), torch.full((nm,), 0.02, device=dev), torch.full((nm,), 0.1, device=dev)
            for _t in loop(R.randint(30, 90)):
                _e, f = forces(z, pos, lists, mol, nm)
                p = torch.zeros(nm, device=dev).index_add(0, mol, (f * vel).sum(1))
                up = p > 0
                dt = torch.where(up, (dt * 1.1).clamp(max=0.1), dt * 0.5)
                alpha = torch.where(up, alpha * 0.99, torch.full_like(alpha, 0.1))
                fn, vn = f.norm(dim=1, keepdim=True).clamp(min=1e-9), vel.norm(dim=1, keepdim=True)
                a = alpha[mol][:, None]
                vel = torch.where(up[mol][:, None], (1 - a) * vel + a * vn * f / fn, torch.zeros_like(vel))
                vel = vel + dt[mol][:, None] * f
                move = (dt[mol][:, None] * vel).clamp(-0.2, 0.2)
                pos = pos + move
                live = torch.zeros(nm, device=dev).scatter_reduce(0, mol, f.norm(dim=1), "amax") > 0.05
                if not bool(live.any()):
                    break
            pos.cpu()


@prog
def sparse_voxels_scan():
    """Classes for the points of laser scans: voxels, a sparse convolutional U-Net with its maps of neighbours, made by sorted
    keys; rotated copies averaged."""
    chs, C = [32, 64, 128, 256, 256], 20

    def key(c):
        return ((c[:, 0] * 4096 + c[:, 1] + 1024) * 4096 + c[:, 2] + 1024) * 4096 + c[:, 3] + 1024

    offs = torch.cartesian_prod(*[torch.arange(-1, 2, device=dev)] * 3)
    delta = (offs[:, 0] * 4096 + offs[:, 1]) * 4096 + offs[:, 2]

    def neighbours(keys):
        maps = []
        for k in range(27):
            want = keys + delta[k]
            at = torch.searchsorted(keys, want).clamp(max=keys.numel() - 1)
            ok = keys[at] == want
            maps.append((at[ok], ok.nonzero()[:, 0]))
        return maps

    class Conv(nn.Module):
        def __init__(self, i, o, n=27):
            super().__init__()
            self.w = nn.Parameter(torch.randn(n, i, o) * (2 / (i * min(n, 9))) ** 0.5)
            self.bn = nn.BatchNorm1d(o)

        def forward(self, x, maps, size, act=True):
            y = torch.zeros(size, self.w.shape[2], device=x.device, dtype=x.dtype)
            for w, (a, b) in zip(self.w, maps):
                y.index_add_(0, b, x[a] @ w)
            y = self.bn(y)
            return F.relu(y) if act else y

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.a, self.b = Conv(i, o), Conv(o, o)
            self.s = nn.Linear(i, o, bias=False) if i != o else nn.Identity()

        def forward(self, x, maps):
            return F.relu(self.b(self.a(x, maps, x.shape[0]), maps, x.shape[0], False) + self.s(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.ModuleList([Conv(4, 32), Conv(32, 32)])
            self.down = nn.ModuleList([Conv(chs[k], chs[k], 8) for k in range(4)])
            self.enc = nn.ModuleList([nn.ModuleList([Res(chs[k], chs[k + 1]), Res(chs[k + 1], chs[k + 1])]) for k in range(4)])
            up = [256, 256, 128, 96, 96]
            self.up = nn.ModuleList([Conv(up[k], up[k + 1], 8) for k in range(4)])
            self.dec = nn.ModuleList([nn.ModuleList([Res(up[k + 1] + chs[3 - k], up[k + 1]), Res(up[k + 1], up[k + 1])])
                                      for k in range(4)])
            self.o = nn.Linear(96, C)

        def forward(self, x, coords):
            keys = key(coords)
            levels = [(coords, neighbours(keys))]
            for f in self.i:
                x = f(x, levels[0][1], x.shape[0])
            skips, downs = [], []
            for k in range(4):
                skips.append(x)
                half = torch.cat([coords[:, :1], torch.div(coords[:, 1:], 2, rounding_mode="floor")], 1)
                uk, inv = torch.unique(key(half), return_inverse=True)
                first = torch.full((uk.numel(),), coords.shape[0], device=dev).scatter_reduce_(
                    0, inv, torch.arange(coords.shape[0], device=dev), "amin")
                bit = coords[:, 1:] & 1
                bit = (bit[:, 0] * 2 + bit[:, 1]) * 2 + bit[:, 2]
                down = []
                for j in range(8):
                    a = (bit == j).nonzero()[:, 0]
                    down.append((a, inv[a]))
                downs.append(down)
                coords = half[first]
                levels.append((coords, neighbours(uk)))
                x = self.down[k](x, down, uk.numel())
                for f in self.enc[k]:
                    x = f(x, levels[-1][1])
            for k in range(4):
                s = skips.pop()
                x = self.up[k](x, [(b, a) for a, b in downs.pop()], s.shape[0])
                x = torch.cat([x, s], 1)
                for f in self.dec[k]:
                    x = f(x, levels[3 - k][1])
            return self.o(x)

    m = _load(Net, torch.float16)

    def scan(n):
        ring = 2 + 48 * torch.rand(n).pow(1.6)
        ang = torch.rand(n) * 2 * math.pi
        z = torch.where(torch.rand(n) < 0.6, -1.7 + 0.05 * torch.randn(n), torch.rand(n) * 4 - 1.7)
        return torch.stack([ring * ang.cos(), ring * ang.sin(), z, torch.rand(n)], 1).to(dev)

    with torch.inference_mode():
        for _ in loop(2000):
            clouds = [torch.cat([scan(R.randint(60000, 130000)) for _k in range(R.choice([1, 2, 3]))]) for _i in range(R.choice([1, 2, 4]))]
            total = torch.zeros(sum(c.shape[0] for c in clouds), C, device=dev)
            for _turn in range(R.choice([1, 1, 2, 4])):
                a, rows, feats = R.uniform(0, 2 * math.pi), [], []
                rot = torch.tensor([[math.cos(a), -math.sin(a), 0], [math.sin(a), math.cos(a), 0], [0, 0, 1]]).to(dev)
                for i, c in enumerate(clouds):
                    p = c[:, :3] @ rot.t() * R.uniform(0.95, 1.05)
                    v = torch.floor(p / 0.1).long()
                    v = torch.cat([torch.full_like(v[:, :1], i), v - v.amin(0)], 1)
                    rows.append(v)
                    feats.append(torch.cat([p, c[:, 3:]], 1))
                rows, feats = torch.cat(rows), torch.cat(feats)
                uk, inv, cnt = torch.unique(key(rows), return_inverse=True, return_counts=True)
                mean = torch.zeros(uk.numel(), 4, device=dev).index_add_(0, inv, feats) / cnt[:, None]
                coords = torch.zeros(uk.numel(), 4, dtype=torch.long, device=dev)
                coords[inv] = rows
                out = m(mean.half(), coords)
                total += out.float().softmax(1)[inv]
            best = total.argmax(1)
            at = 0
            for c in clouds:
                best[at:at + c.shape[0]].to(torch.uint8).cpu()
                at += c.shape[0]


@prog
def translate_int4_beams():
    """Documents translated sentence by sentence, sorted by length, with 4-bit weights made bfloat16 at each use: an encoder, then
    four beams whose caches grow and are reordered; sentences that are done leave the batch."""
    d, H, N, ff, V, nb = 1024, 16, 10, 4096, 128000, 4
    hd = d // H

    class Int4(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.o, self.i = o, i
            self.register_buffer("w", torch.randint(0, 256, (o, i // 2), dtype=torch.uint8))
            self.register_buffer("s", torch.full((o, i // 64), 0.22 * i ** -0.5, dtype=BF))
            self.register_buffer("b", torch.zeros(o, dtype=BF))

        def forward(self, x):
            w = torch.stack((self.w & 15, self.w >> 4), -1).view(self.o, -1, 64).to(BF) - 8
            return F.linear(x, (w * self.s[:, :, None]).view(self.o, self.i), self.b)

    class Att(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = Int4(d, d), Int4(d, d), Int4(d, d), Int4(d, d)

        def split(self, x):
            return x.view(x.shape[0], -1, H, hd).transpose(1, 2)

        def forward(self, x, k, v, mask=None):
            a = F.scaled_dot_product_attention(self.split(self.q(x)), k, v, attn_mask=mask)
            return self.o(a.transpose(1, 2).reshape(x.shape))

        def kv(self, x):
            return self.split(self.k(x)), self.split(self.v(x))

    class Layer(nn.Module):
        def __init__(self, cross):
            super().__init__()
            self.a, self.c = Att(), Att() if cross else None
            self.n = nn.ModuleList([nn.LayerNorm(d, dtype=BF) for _ in range(3)])
            self.f1, self.f2 = Int4(d, ff), Int4(ff, d)

        def forward(self, x, mask, cache=None, cross=None, cmask=None):
            y = self.n[0](x)
            k, v = self.a.kv(y)
            if cache is not None:
                if cache:
                    k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
                cache[:] = [k, v]
            x = x + self.a(y, k, v, mask)
            if self.c is not None:
                x = x + self.c(self.n[1](x), *cross, cmask)
            return x + self.f2(F.relu(self.f1(self.n[2](x))))

    with torch.device(dev):
        emb = (torch.randn(V, d) * d ** -0.5).to(BF)
        enc = nn.ModuleList([Layer(False) for _ in range(N)]).requires_grad_(False)
        dec = nn.ModuleList([Layer(True) for _ in range(N)]).requires_grad_(False)
        final = nn.LayerNorm(d, dtype=BF).requires_grad_(False)
    fr = 1e4 ** (-torch.arange(0, d, 2, device=dev).float() / d)

    def embed(tok, at):
        a = torch.arange(at, at + tok.shape[1], device=dev)[:, None] * fr
        return emb[tok] * d ** 0.5 + torch.cat([a.sin(), a.cos()], -1).to(BF)

    def translate(lens):
        b, n = len(lens), max(lens)
        x = ids(b, n, V)
        keep = torch.arange(n, device=dev)[None] < torch.tensor(lens).to(dev)[:, None]
        h = embed(x, 0)
        for f in enc:
            h = f(h, keep[:, None, None])
        h = F.layer_norm(h, (d,)).repeat_interleave(nb, 0)
        keep = keep.repeat_interleave(nb, 0)
        cross, caches = [f.c.kv(h) for f in dec], [[] for _ in dec]
        del h
        tok = torch.full((b * nb, 1), 2, device=dev)
        out, score = tok, torch.tensor([0.0] + [-1e9] * (nb - 1)).to(dev).repeat(b)
        left, best = [min(110, max(4, int(l * R.uniform(0.7, 1.3)))) for l in lens], [None] * b
        who = list(range(b))
        for t in loop(120):
            y = embed(tok, t)
            for f, c, kv in zip(dec, caches, cross):
                y = f(y, None, c, kv, keep[:, None, None])
            logits = F.linear(final(y)[:, -1], emb).float()
            lp = torch.log_softmax(logits, -1)
            lp[:, 1] = float("-inf")
            lp = (lp + score[:, None]).view(len(who), nb * V)
            score, idx = lp.topk(2 * nb, dim=1)
            score, idx = score[:, :nb], idx[:, :nb]
            src = (torch.arange(len(who), device=dev)[:, None] * nb + idx // V).flatten()
            tok, score = (idx % V).view(-1, 1), score.flatten()
            out = torch.cat([out[src], tok], 1)
            for c in caches:
                c[:] = [c[0].index_select(0, src), c[1].index_select(0, src)]
            over = [i for i, w in enumerate(who) if t + 1 >= left[w]]
            if over:
                for i in over:
                    best[who[i]] = out[i * nb].cpu()
                stay = [i for i in range(len(who)) if i not in over]
                if not stay:
                    break
                who = [who[i] for i in stay]
                rows = torch.tensor([i * nb + j for i in stay for j in range(nb)]).to(dev)
                caches = [[c[0][rows], c[1][rows]] for c in caches]
                cross = [(k[rows], v[rows]) for k, v in cross]
                keep, tok, score, out = keep[rows], tok[rows], score[rows], out[rows]
        return best

    with torch.inference_mode():
        for _doc in loop(200):
            lens = sorted((min(300, 4 + int(R.expovariate(1 / 28))) for _ in range(R.randint(10, 160))), reverse=True)
            batch = []
            for l in lens:
                if batch and (len(batch) + 1) * batch[0] > 2500:
                    translate(batch)
                    batch = []
                batch.append(l)
            translate(batch)
