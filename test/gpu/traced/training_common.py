"""What several training programs share: a decoder as everybody writes it, parameter groups, frozen models."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def _rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def _lin(i, o):
    return nn.Linear(i, o, bias=False)


class Attn(nn.Module):
    def __init__(self, d, h, kv, lin):
        super().__init__()
        self.h, self.kv, self.hd = h, kv, d // h
        self.q, self.k, self.v = lin(d, d), lin(d, kv * self.hd), lin(d, kv * self.hd)
        self.o = lin(d, d)

    def forward(self, x, cos, sin, mask, cache):
        b, l, d = x.shape
        q = _rope(self.q(x).view(b, l, self.h, self.hd).transpose(1, 2), cos, sin)
        k = _rope(self.k(x).view(b, l, self.kv, self.hd).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, l, self.kv, self.hd).transpose(1, 2)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        if self.kv != self.h:
            k, v = k.repeat_interleave(self.h // self.kv, 1), v.repeat_interleave(self.h // self.kv, 1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o(o.transpose(1, 2).reshape(b, l, d))


class SwiGLU(nn.Module):
    def __init__(self, d, ff, lin):
        super().__init__()
        self.g, self.u, self.d = lin(d, ff), lin(d, ff), lin(ff, d)

    def forward(self, x):
        return self.d(F.silu(self.g(x)) * self.u(x))


class Block(nn.Module):
    def __init__(self, d, h, kv, ff, lin, mlp=None):
        super().__init__()
        self.n1, self.n2 = RMS(d), RMS(d)
        self.attn = Attn(d, h, kv, lin)
        self.mlp = SwiGLU(d, ff, lin) if mlp is None else mlp()

    def forward(self, x, cos, sin, mask=None, cache=None):
        x = x + self.attn(self.n1(x), cos, sin, mask, cache)
        return x + self.mlp(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, V, d, h, kv, n, ff, ckpt=False, lin=_lin, mlp=None, every=1):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        nn.init.normal_(self.emb.weight, std=0.02)
        self.blocks = nn.ModuleList([Block(d, h, kv, ff, lin, mlp if i % every == every - 1 else None)
                                     for i in range(n)])
        self.norm = RMS(d)
        self.head = nn.Linear(d, V, bias=False)
        self.hd, self.ckpt = d // h, ckpt

    def hidden(self, x, mask=None, pos=None, caches=None):
        from torch.utils.checkpoint import checkpoint
        if pos is None:
            pos = torch.arange(x.shape[1], device=x.device)[None]
        fr = 1e4 ** (-torch.arange(0, self.hd, 2, device=x.device).float() / self.hd)
        a = pos[:, None, :, None].float() * fr
        cos, sin = a.cos(), a.sin()
        x = self.emb(x)
        for i, f in enumerate(self.blocks):
            if self.ckpt and self.training:
                x = checkpoint(f, x, cos, sin, mask, use_reentrant=False)
            else:
                x = f(x, cos, sin, mask, None if caches is None else caches[i])
        return self.norm(x)

    def forward(self, x, **kw):
        return self.head(self.hidden(x, **kw))


def _groups(m, wd=0.1):
    ps = [p for p in m.parameters() if p.requires_grad]
    return [{"params": [p for p in ps if p.dim() > 1], "weight_decay": wd},
            {"params": [p for p in ps if p.dim() <= 1], "weight_decay": 0.0}]


def _freeze(m):
    for p in m.parameters():
        p.requires_grad_(False)
    return m.eval()
