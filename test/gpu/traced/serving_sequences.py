"""Speech, sound, time series and proteins of any length, served."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog
from serving_common import BF, Dec, _load


@prog
def conformer_windows():
    """Speech cut at its pauses into windows of any length, sorted into batches; CTC."""
    d, H, V = 512, 8, 1024

    class Conf(nn.Module):
        def __init__(self):
            super().__init__()
            self.f1 = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))
            self.f2 = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))
            self.na, self.qkv, self.pos, self.o = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d, bias=False), nn.Linear(d, d)
            self.u, self.w = nn.Parameter(torch.zeros(H, d // H)), nn.Parameter(torch.zeros(H, d // H))
            self.nc, self.c1 = nn.LayerNorm(d), nn.Conv1d(d, 2 * d, 1)
            self.dw, self.bn, self.c2 = nn.Conv1d(d, d, 31, padding=15, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1)
            self.n = nn.LayerNorm(d)

        def att(self, x, pe, mask):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, H, d // H).unbind(2)
            p = self.pos(pe).view(1, -1, H, d // H).transpose(1, 2)
            ac = (q + self.u).transpose(1, 2) @ k.permute(0, 2, 3, 1)
            bd = (q + self.w).transpose(1, 2) @ p.transpose(-2, -1)
            bd = F.pad(bd, (1, 0)).view(b, H, 2 * t, t)[:, :, 1:].reshape(b, H, t, 2 * t - 1)[..., :t]
            s = (ac + bd) / math.sqrt(d // H)
            s = s.masked_fill(mask[:, None, None], -1e4)
            a = torch.softmax(s, -1).masked_fill(mask[:, None, None], 0.0)
            return self.o((a @ v.transpose(1, 2)).transpose(1, 2).reshape(b, t, d))

        def forward(self, x, pe, mask):
            x = x + 0.5 * self.f1(x)
            x = x + self.att(self.na(x), pe, mask)
            y = F.glu(self.c1(self.nc(x).transpose(1, 2)), 1).masked_fill(mask[:, None], 0.0)
            x = x + self.c2(F.silu(self.bn(self.dw(y)))).transpose(1, 2)
            x = x + 0.5 * self.f2(x)
            return self.n(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(nn.Conv2d(1, 256, 3, 2, 1), nn.ReLU(), nn.Conv2d(256, 256, 3, 2, 1), nn.ReLU())
            self.i = nn.Linear(256 * 20, d)
            self.b = nn.ModuleList([Conf() for _ in range(8)])
            self.o = nn.Linear(d, V + 1)

        def forward(self, mel, lens):
            x = self.sub(mel[:, None])
            b, c, f, t = x.shape
            x = self.i(x.permute(0, 3, 1, 2).reshape(b, t, c * f))
            at = torch.arange(t - 1, -t, -1, device=x.device).float()[:, None]
            fr = torch.exp(torch.arange(0, d, 2, device=x.device).float() * (-math.log(1e4) / d))[None]
            pe = torch.stack([(at * fr).sin(), (at * fr).cos()], -1).flatten(1).to(x.dtype)[None]
            mask = torch.arange(t, device=x.device)[None] >= ((lens + 3) // 4)[:, None]
            for f in self.b:
                x = f(x, pe, mask)
            return self.o(x).float().log_softmax(-1)

    m = _load(Net, torch.float16)
    win, fb = torch.hann_window(400, device=dev), torch.rand(80, 257, device=dev)
    with torch.no_grad():
        for _ in loop(12):
            # one recording: its pieces, sorted by length
            pieces = sorted((int(16000 * min(40.0, 1 + R.expovariate(1 / 9))) for _ in range(R.randint(3, 60))), reverse=True)
            size = R.choice([1, 8, 16])
            texts = []
            for a in range(0, len(pieces), size):
                for _k in loop(1):
                    ls = pieces[a:a + size]
                    wav = torch.zeros(len(ls), ls[0])
                    for i, l in enumerate(ls):
                        wav[i, :l] = torch.rand(l) - 0.5
                    spec = torch.stft(wav.to(dev), 512, 160, 400, window=win, return_complex=True).abs().pow(2)
                    mel = torch.log(fb @ spec + 1e-5)
                    mel = (mel - mel.mean(2, keepdim=True)) / (mel.std(2, keepdim=True) + 1e-5)
                    lp = m(mel.half(), torch.tensor([l // 160 + 1 for l in ls], device=dev))
                    texts.append(lp.argmax(-1))
            for t in texts:
                torch.unique_consecutive(t[0]).cpu()


@prog
def hifigan_vocoder():
    """Mel spectrograms of any length to waveforms."""
    class Res(nn.Module):
        def __init__(self, c, k):
            super().__init__()
            self.a = nn.ModuleList([nn.Conv1d(c, c, k, padding=(k - 1) * r // 2, dilation=r) for r in (1, 3, 5)])
            self.b = nn.ModuleList([nn.Conv1d(c, c, k, padding=k // 2) for _ in range(3)])

        def forward(self, x):
            for a, b in zip(self.a, self.b):
                x = b(F.leaky_relu(a(F.leaky_relu(x, 0.1)), 0.1)) + x
            return x

    class Gen(nn.Module):
        def __init__(self, c=512):
            super().__init__()
            self.i = nn.Conv1d(80, c, 7, padding=3)
            self.u, self.r = nn.ModuleList(), nn.ModuleList()
            for r, k in ((8, 16), (8, 16), (2, 4), (2, 4)):
                self.u.append(nn.ConvTranspose1d(c, c // 2, k, r, (k - r) // 2))
                c //= 2
                self.r.append(nn.ModuleList([Res(c, k) for k in (3, 7, 11)]))
            self.o = nn.Conv1d(c, 1, 7, padding=3)

        def forward(self, x):
            x = self.i(x)
            for u, rs in zip(self.u, self.r):
                x = u(F.leaky_relu(x, 0.1))
                y = None
                for r in rs:
                    y = r(x) if y is None else y + r(x)
                x = y / 3
            return torch.tanh(self.o(F.leaky_relu(x)))

    m = _load(Gen)
    with torch.inference_mode():
        for _ in loop(60):
            b, t = R.choice([1, 1, 1, 2, 4, 8]), int(50 * 2 ** (R.random() * 5.5))
            w = m(torch.randn(b, 80, t).to(dev))
            w = w / w.abs().amax(2, keepdim=True).clamp(min=1e-5)
            (w.squeeze(1) * 32767).to(torch.int16).cpu()


@prog
def series_paths():
    """Time-series forecasts: many sampled paths of every series, step by step with a cache; quantiles at the end."""
    B = 1024
    m = _load(lambda: Dec(5, 512, 8, 8, 2048, B), BF)
    with torch.inference_mode():
        for _ in loop(10):
            b, s, n, ahead = R.choice([1, 4, 8, 16, 32]), R.choice([20, 20, 50]), R.randint(64, 768), R.randint(12, 64)
            y = torch.randn(b, n).cumsum(1).to(dev)
            scale = y.abs().mean(1, keepdim=True) + 1e-6
            edges = torch.linspace(-8, 8, B - 1, device=dev)
            tok = torch.bucketize(y / scale, edges)
            h, kv = m(tok)
            kv = [(k.repeat_interleave(s, 0), v.repeat_interleave(s, 0)) for k, v in kv]
            cur = torch.multinomial(torch.softmax(m.head(h[:, -1]).float(), -1), s, replacement=True).view(-1, 1)
            path = [cur]
            for t in loop(ahead - 1):
                h, kv = m(cur, kv, n + t)
                cur = torch.multinomial(torch.softmax(m.head(h[:, -1]).float(), -1), 1)
                path.append(cur)
            z = torch.cat(path, 1).view(b, s, -1)
            z = edges[z.clamp(max=B - 2)] * scale[:, :, None]
            torch.quantile(z, torch.tensor([0.1, 0.5, 0.9], device=dev), dim=1).cpu()
            del kv


@prog
def pair_fold():
    """Proteins of any length: rows of an alignment and L x L pairs, triangles, some rounds; in chunks where it is long."""
    cz, cm, h = 128, 64, 4

    class Tri(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.no = nn.LayerNorm(cz), nn.LayerNorm(cz)
            self.a, self.ga, self.b, self.gb, self.g, self.o = (nn.Linear(cz, cz) for _ in range(6))

        def forward(self, z, out):
            x = self.n(z)
            a, b = torch.sigmoid(self.ga(x)) * self.a(x), torch.sigmoid(self.gb(x)) * self.b(x)
            if out:
                p = torch.matmul(a.permute(2, 0, 1), b.permute(2, 1, 0))
            else:
                p = torch.matmul(a.permute(2, 1, 0), b.permute(2, 0, 1))
            return torch.sigmoid(self.g(x)) * self.o(self.no(p.permute(1, 2, 0)))

    class Att(nn.Module):
        """Attention within each row, with a bias from the pairs."""

        def __init__(self, c):
            super().__init__()
            self.n, self.nb = nn.LayerNorm(c), nn.LayerNorm(cz)
            self.qkv, self.bias = nn.Linear(c, 3 * 32 * h, bias=False), nn.Linear(cz, h, bias=False)
            self.g, self.o = nn.Linear(c, 32 * h), nn.Linear(32 * h, c)

        def rows(self, x, bias):
            r, n, _ = x.shape
            q, k, v = self.qkv(x).view(r, n, 3, h, 32).permute(2, 0, 3, 1, 4)
            a = (q * 32 ** -0.5) @ k.transpose(-2, -1)
            a = torch.softmax(a + bias, -1)
            y = (a @ v).transpose(1, 2).reshape(r, n, 32 * h)
            return self.o(torch.sigmoid(self.g(x)) * y)

        def forward(self, x, z, chunk):
            x = self.n(x)
            bias = self.bias(self.nb(z)).permute(2, 0, 1)[None]
            if not chunk:
                return self.rows(x, bias)
            return torch.cat([self.rows(c, bias) for c in x.split(chunk)])

    class Blk(nn.Module):
        def __init__(self):
            super().__init__()
            self.row, self.ma = Att(cm), nn.Sequential(nn.LayerNorm(cm), nn.Linear(cm, 4 * cm), nn.ReLU(), nn.Linear(4 * cm, cm))
            self.nm, self.l, self.r, self.op = nn.LayerNorm(cm), nn.Linear(cm, 32), nn.Linear(cm, 32), nn.Linear(1024, cz)
            self.t1, self.t2, self.a1, self.a2 = Tri(), Tri(), Att(cz), Att(cz)
            self.tr = nn.Sequential(nn.LayerNorm(cz), nn.Linear(cz, 4 * cz), nn.ReLU(), nn.Linear(4 * cz, cz))

        def outer(self, s, chunk):
            x = self.nm(s)
            a, b, n = self.l(x), self.r(x), s.shape[1]
            out = []
            for c in a.split(chunk or n, dim=1):
                p = torch.einsum("sia,sjb->ijab", c, b) / s.shape[0]
                out.append(self.op(p.reshape(c.shape[1], n, 1024)))
            return torch.cat(out) if len(out) > 1 else out[0]

        def forward(self, s, z, chunk):
            s = s + self.row(s, z, chunk)
            s = s + self.ma(s)
            z = z + self.outer(s, chunk)
            z = z + self.t1(z, True)
            z = z + self.t2(z, False)
            z = z + self.a1(z, z, chunk)
            y = z.transpose(0, 1).contiguous()
            z = z + self.a2(y, y, chunk).transpose(0, 1)
            return s, z + self.tr(z)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.ms, self.zl, self.zr = nn.Linear(49, cm), nn.Linear(21, cz), nn.Linear(21, cz)
            self.rel, self.b = nn.Embedding(65, cz), nn.ModuleList([Blk() for _ in range(3)])
            self.rz, self.rm, self.bins = nn.LayerNorm(cz), nn.LayerNorm(cm), nn.Linear(cz, 64)

        def forward(self, msa, seq, prev, chunk):
            n = len(seq)
            at = torch.arange(n, device=seq.device)
            z = self.zl(seq)[:, None] + self.zr(seq)[None] + self.rel((at[:, None] - at[None]).clamp(-32, 32) + 32)
            s = self.ms(msa)
            if prev is not None:
                z = z + self.rz(prev[1])
                s = torch.cat([s[:1] + self.rm(prev[0])[None], s[1:]])
            for f in self.b:
                s, z = f(s, z, chunk)
            d = self.bins(z)
            return (s[0], z), (d + d.transpose(0, 1)).float().softmax(-1)

    m = _load(Net, BF)
    with torch.inference_mode():
        for _ in loop(10):
            n, r = int(70 * 2 ** (R.random() * 3.2)), R.choice([64, 128, 256])
            chunk = None if n < 300 else R.choice([32, 64, 128])
            seq = F.one_hot(torch.randint(0, 21, (n,), device=dev), 21).to(BF)
            prev = dist = None
            for _k in loop(R.randint(1, 4)):
                msa = torch.randn(r, n, 49, device=dev, dtype=BF)
                prev, dist = m(msa, seq, prev, chunk)
            if dist is not None:
                (dist[..., :20].sum(-1) > 0.5).cpu()
            del prev, dist
