"""What several serving programs share: models made in place, a decoder with a cache, sampling."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import dev

BF = torch.bfloat16


def _load(make, dtype=torch.float32):
    """A model made on the device in its own precision, as from_pretrained leaves it."""
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(dev):
            m = make()
    finally:
        torch.set_default_dtype(old)
    return m.eval().requires_grad_(False)


def _rms(x, w):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
    return w * y.to(x.dtype)


def _rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, d, h, kv, ff, lin=None, window=None):
        super().__init__()
        lin = lin or (lambda i, o: nn.Linear(i, o, bias=False))
        self.h, self.kv, self.hd, self.window = h, kv, d // h, window
        self.n1, self.n2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.q, self.k, self.v = lin(d, d), lin(d, kv * self.hd), lin(d, kv * self.hd)
        self.o = lin(d, d)
        self.mlp(d, ff, lin)

    def mlp(self, d, ff, lin):
        self.gate, self.up, self.down = lin(d, ff), lin(d, ff), lin(ff, d)

    def feed(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x, cos, sin, mask, past):
        b, n, _ = x.shape
        y = _rms(x, self.n1)
        q = self.q(y).view(b, n, self.h, self.hd).transpose(1, 2)
        k = self.k(y).view(b, n, self.kv, self.hd).transpose(1, 2)
        v = self.v(y).view(b, n, self.kv, self.hd).transpose(1, 2)
        q, k = _rope(q, cos, sin), _rope(k, cos, sin)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        s = k.shape[2]
        new = (k, v)
        if self.window and s > self.window:
            new = (k[:, :, -self.window:].contiguous(), v[:, :, -self.window:].contiguous())
        causal = False
        if mask is None and n > 1:
            if s == n and not (self.window and n > self.window):
                causal = True
            else:
                i = torch.arange(s - n, s, device=x.device)[:, None]
                j = torch.arange(s, device=x.device)[None]
                mask = j <= i
                if self.window:
                    mask = mask & (j > i - self.window)
        if self.h != self.kv:
            k = k.repeat_interleave(self.h // self.kv, 1)
            v = v.repeat_interleave(self.h // self.kv, 1)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        x = x + self.o(a.transpose(1, 2).reshape(b, n, -1))
        return x + self.feed(_rms(x, self.n2)), new


class Dec(nn.Module):
    def __init__(self, layers, d, h, kv, ff, vocab, lin=None, windows=None, block=Block):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.emb.weight.data.mul_(0.02)
        self.b = nn.ModuleList([block(d, h, kv, ff, lin, windows[i] if windows else None) for i in range(layers)])
        self.n = nn.Parameter(torch.ones(d))
        self.head = nn.Linear(d, vocab, bias=False)
        self.register_buffer("freq", 1e4 ** (-torch.arange(0, d // h, 2).float() / (d // h)), persistent=False)

    def forward(self, tok, kv=None, pos=0, mask=None):
        """Hidden states and the new cache; tok: ids, or vectors; pos: where it starts, or a position for each token."""
        x = self.emb(tok) if tok.dim() == 2 else tok
        if not torch.is_tensor(pos):
            pos = torch.arange(pos, pos + x.shape[1], device=x.device)[None]
        a = pos[..., None].float() * self.freq.float()
        a = torch.cat([a, a], -1)[:, None]
        cos, sin = a.cos().to(x.dtype), a.sin().to(x.dtype)
        out = []
        for i, f in enumerate(self.b):
            x, c = f(x, cos, sin, mask, kv[i] if kv is not None else None)
            out.append(c)
        return _rms(x, self.n), out


def _pick(logits, temp=0.8, top_k=50):
    v = logits.float() / temp
    kth = torch.topk(v, top_k, dim=-1).values[..., -1:]
    v = v.masked_fill(v < kth, float("-inf"))
    return torch.multinomial(torch.softmax(v, -1), 1)
