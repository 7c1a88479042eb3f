"""Inference: paged language-model batches, pictures by flow, late interaction."""

import collections
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog
from serving_common import BF, _load


@prog
def paged_llm_batches():
    """Requests enter and leave; keys and values in blocks of one pool, gathered by tables; prompts in chunks beside the decoding
    rows; who finds no free block is put back."""
    L, d, H, KV, ff, V, B, NB = 8, 2048, 16, 4, 5632, 64000, 32, 2400
    hd = d // H

    def w(o, i):
        return (torch.randn(o, i, device=dev) * i ** -0.5).to(BF)

    layers = [{"qkv": w(d + 2 * KV * hd, d), "o": w(d, d), "gu": w(2 * ff, d), "down": w(d, ff),
               "n1": torch.ones(d, device=dev, dtype=BF), "n2": torch.ones(d, device=dev, dtype=BF)} for _ in range(L)]
    emb, head, last = w(V, d), w(V, d), torch.ones(d, device=dev, dtype=BF)
    pool = [torch.zeros(NB, 2, B, KV, hd, device=dev, dtype=BF) for _ in range(L)]
    freq = 1e4 ** (-torch.arange(0, hd, 2, device=dev).float() / hd)
    free, waiting, running = list(range(NB)), collections.deque(), []

    def rms(x, g):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * g

    def rope(x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def forward(tok, pos, slot, pre, tables, lens):
        """tok, pos, slot: flat; pre: (from, to, table, end) of the prompts' chunks; then one row for each decoding request."""
        x = emb[tok]
        a = pos[:, None].float() * freq
        cos, sin = a.cos()[:, None], a.sin()[:, None]
        for l, f in enumerate(layers):
            q, k, v = (rms(x, f["n1"]) @ f["qkv"].t()).split([d, KV * hd, KV * hd], -1)
            q = rope(q.view(-1, H, hd), cos, sin)
            k = rope(k.reshape(-1, KV, hd), cos, sin)
            pool[l][slot // B, 0, slot % B] = k
            pool[l][slot // B, 1, slot % B] = v.reshape(-1, KV, hd)
            out, at = [], 0
            for s, e, table, end in pre:
                kv = pool[l][table].transpose(0, 1).reshape(2, -1, KV, hd)[:, :end]
                kk, vv = kv.transpose(1, 2).repeat_interleave(H // KV, 1)[:, None]
                qq = q[s:e].transpose(0, 1)[None]
                n = e - s
                if n == end:
                    o = F.scaled_dot_product_attention(qq, kk, vv, is_causal=True)
                else:
                    mask = torch.arange(end, device=dev)[None] <= torch.arange(end - n, end, device=dev)[:, None]
                    o = F.scaled_dot_product_attention(qq, kk, vv, attn_mask=mask)
                out.append(o[0].transpose(0, 1).reshape(n, d))
                at = e
            if tables is not None:
                b = tables.shape[0]
                kv = pool[l][tables]                                          # b blocks 2 B KV hd
                kk = kv[:, :, 0].reshape(b, -1, KV, hd).transpose(1, 2)
                vv = kv[:, :, 1].reshape(b, -1, KV, hd).transpose(1, 2)
                mask = torch.arange(kk.shape[2], device=dev)[None] < lens[:, None]
                o = F.scaled_dot_product_attention(q[at:].view(b, KV, H // KV, hd), kk, vv, attn_mask=mask[:, None, None])
                out.append(o.reshape(b, d))
            x = x + torch.cat(out) @ f["o"].t()
            g, u = (rms(x, f["n2"]) @ f["gu"].t()).chunk(2, -1)
            x = x + (F.silu(g) * u) @ f["down"].t()
        return rms(x, last)

    def sample(logits, temp, top_p):
        p = torch.softmax(logits.float() / temp[:, None], -1)
        s, i = p.sort(-1, descending=True)
        s = s.masked_fill(s.cumsum(-1) - s > top_p, 0.0)
        return i.gather(1, torch.multinomial(s, 1))[:, 0]

    def need(r, upto):
        while len(r["table"]) * B < upto:
            if not free:
                return False
            r["table"].append(free.pop())
        return True

    def release(r):
        free.extend(r["table"])
        r["table"], r["done"] = [], 0

    with torch.inference_mode():
        for t in loop(100000):
            for _ in range(R.choice([0, 0, 0, 0, 1, 1, 2]) if t % 300 < 220 else 0):
                n = min(6000, int(math.exp(R.gauss(6.0, 1.1))) + 8)
                waiting.append({"tok": [R.randrange(V) for _ in range(n)], "table": [], "done": 0, "left": R.randint(10, 250),
                                "temp": R.choice([0.3, 0.7, 1.0])})
            while waiting and len(running) < 64 and len(free) > len(waiting[0]["tok"]) // B + 4:
                running.append(waiting.popleft())
                if sum(len(r["tok"]) - r["done"] for r in running) > 8192:
                    break
            budget, pre, dec = 1024, [], []
            for r in list(running):
                if r not in running:
                    continue
                todo = len(r["tok"]) - r["done"]
                n = min(todo, budget) if todo > 1 else 1
                if n == 0:
                    continue
                ok = need(r, r["done"] + n)
                while not ok and running[-1] is not r:
                    back = running.pop()
                    release(back)
                    pre, dec = [p for p in pre if p[0] is not back], [p for p in dec if p is not back]
                    waiting.appendleft(back)
                    ok = need(r, r["done"] + n)
                if not ok:
                    break
                if todo > 1:
                    pre.append((r, n))
                    budget -= n
                else:
                    dec.append(r)
            if not pre and not dec:
                continue
            tok, pos, slot, chunks = [], [], [], []
            for r, n in pre + [(r, 1) for r in dec]:
                s = len(tok)
                span = range(r["done"], r["done"] + n)
                tok += [r["tok"][i] for i in span]
                pos += list(span)
                slot += [r["table"][i // B] * B + i % B for i in span]
                if len(chunks) < len(pre):
                    nb = (r["done"] + n + B - 1) // B
                    chunks.append((s, s + n, torch.tensor(r["table"][:nb]).to(dev), r["done"] + n))
            tables = lens = None
            if dec:
                most = max(r["done"] // B + 1 for r in dec)
                tables = torch.tensor([(r["table"] + [0] * most)[:most] for r in dec]).to(dev)
                lens = torch.tensor([r["done"] + 1 for r in dec]).to(dev)
            x = forward(torch.tensor(tok).to(dev), torch.tensor(pos).to(dev), torch.tensor(slot).to(dev), chunks, tables, lens)
            ready, rows = [], []
            for (r, n), c in zip(pre, chunks):
                r["done"] += n
                if r["done"] == len(r["tok"]):
                    ready.append(r)
                    rows.append(c[1] - 1)
            first = chunks[-1][1] if chunks else 0
            for j, r in enumerate(dec):
                r["done"] += 1
                ready.append(r)
                rows.append(first + j)
            if ready:
                logits = x[torch.tensor(rows).to(dev)] @ head.t()
                new = sample(logits, torch.tensor([r["temp"] for r in ready]).to(dev), 0.9).tolist()
                for r, k in zip(ready, new):
                    r["tok"].append(k)
                    r["left"] -= 1
                    if r["left"] <= 0:
                        release(r)
                        running.remove(r)


@prog
def flow_dit_aspects():
    """Text to picture by a transformer over text and picture tokens together: guidance, any aspect ratio, some requests start
    from a picture; decoded one by one."""
    d, H, N, V, td = 1024, 16, 10, 32000, 768

    class Enc(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(V, td)
            self.b = nn.TransformerEncoder(nn.TransformerEncoderLayer(td, 12, 3072, 0.0, "gelu", batch_first=True, norm_first=True),
                                           6, enable_nested_tensor=False)

        def forward(self, x):
            return self.b(self.e(x))

    class Side(nn.Module):
        def __init__(self):
            super().__init__()
            self.ada, self.qkv, self.o = nn.Linear(d, 6 * d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def start(self, x, c):
            self.m = self.ada(F.silu(c))[:, None].chunk(6, -1)
            y = F.layer_norm(x, (d,)) * (1 + self.m[0]) + self.m[1]
            b, l, _ = x.shape
            return self.qkv(y).view(b, l, 3, H, d // H).permute(2, 0, 3, 1, 4)

        def finish(self, x, a):
            x = x + self.m[2] * self.o(a)
            y = F.layer_norm(x, (d,)) * (1 + self.m[3]) + self.m[4]
            return x + self.m[5] * self.f2(F.gelu(self.f1(y), approximate="tanh"))

    class DiT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.text = nn.Conv2d(16, d, 2, 2), nn.Linear(td, d)
            self.t1, self.t2, self.p = nn.Linear(256, d), nn.Linear(d, d), nn.Linear(td, d)
            self.img, self.txt = nn.ModuleList([Side() for _ in range(N)]), nn.ModuleList([Side() for _ in range(N)])
            self.ada, self.out = nn.Linear(d, 2 * d), nn.Linear(d, 64)
            self.pos = nn.Parameter(torch.randn(1, d, 64, 64) * 0.02)

        def forward(self, z, t, text):
            x = self.patch(z)
            b, _, h, w = x.shape
            x = (x + F.interpolate(self.pos.float(), size=(h, w), mode="bilinear").to(x.dtype)).flatten(2).transpose(1, 2)
            a = t[:, None].float() * 1000 * torch.exp(-math.log(1e4) * torch.arange(128, device=z.device) / 128)
            c = self.t2(F.silu(self.t1(torch.cat([a.cos(), a.sin()], 1).to(z.dtype)))) + self.p(text.mean(1))
            y = self.text(text)
            n = x.shape[1]
            for f, g in zip(self.img, self.txt):
                q, k, v = torch.cat([f.start(x, c), g.start(y, c)], 3)
                o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, -1, d)
                x, y = f.finish(x, o[:, :n]), g.finish(y, o[:, n:])
            s, r = self.ada(F.silu(c))[:, None].chunk(2, -1)
            x = self.out(F.layer_norm(x, (d,)) * (1 + s) + r)
            return x.view(b, h, w, 2, 2, 16).permute(0, 5, 1, 3, 2, 4).reshape(b, 16, 2 * h, 2 * w)

    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1)
            self.n2, self.c2 = nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
            self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x):
            y = self.c2(F.silu(self.n2(self.c1(F.silu(self.n1(x))))))
            return self.s(x) + y

    class Up(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.c = nn.Conv2d(c, c, 3, padding=1)

        def forward(self, x):
            return self.c(F.interpolate(x, scale_factor=2.0, mode="nearest"))

    def decoder():
        return nn.Sequential(nn.Conv2d(16, 384, 3, padding=1), Res(384, 384), Res(384, 384), Up(384), Res(384, 384), Res(384, 384),
                             Up(384), Res(384, 192), Res(192, 192), Up(192), Res(192, 96), Res(96, 96), nn.GroupNorm(32, 96),
                             nn.SiLU(), nn.Conv2d(96, 3, 3, padding=1))

    def encoder():
        return nn.Sequential(nn.Conv2d(3, 96, 3, padding=1), Res(96, 96), nn.Conv2d(96, 96, 3, 2, 1), Res(96, 192),
                             nn.Conv2d(192, 192, 3, 2, 1), Res(192, 384), nn.Conv2d(384, 384, 3, 2, 1), Res(384, 384),
                             nn.GroupNorm(32, 384), nn.SiLU(), nn.Conv2d(384, 32, 3, padding=1))

    te, dit, dec, enc = _load(Enc, BF), _load(DiT, BF), _load(decoder, BF), _load(encoder, BF)
    sizes = [(1024, 1024), (832, 1216), (1216, 832), (768, 1344), (1344, 768), (640, 1536), (512, 512), (512, 768), (1152, 896)]
    with torch.inference_mode():
        for _ in loop(300):
            h, w = R.choice(sizes)
            b = R.choice([1, 1, 2, 4]) if h * w < 1000000 else R.choice([1, 1, 1, 2])
            steps, scale = R.choice([6, 8, 12, 16]), R.uniform(3, 7)
            n = R.choice([77, 77, 154, 256])
            text = te(ids(2 * b, n, V))
            ts = torch.linspace(1, 0, steps + 1).tolist()
            z, begin = torch.randn(b, 16, h // 8, w // 8, device=dev, dtype=BF), 0
            if R.random() < 0.3:
                photo = torch.randint(0, 255, (b, 3, h, w), dtype=torch.uint8).to(dev).to(BF) / 127.5 - 1
                mean, logvar = enc(photo).chunk(2, 1)
                start = mean + torch.randn_like(mean) * (0.5 * logvar.clamp(-30, 20)).exp()
                begin = steps // 3
                z = ts[begin] * z + (1 - ts[begin]) * start
            for k in loop(steps - begin):
                t, u = ts[begin + k], ts[begin + k + 1]
                v = dit(torch.cat([z, z]), torch.full((2 * b,), t, device=dev), text)
                on, off = v.chunk(2)
                v = off + scale * (on - off)
                z = z + (u - t) * v
            for i in range(b):
                y = dec(z[i:i + 1] / 1.5 + 0.06)
                ((y.float() / 2 + 0.5).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu()


@prog
def late_interaction_search():
    """A search server with a vector for each token: documents come in, are compressed against centroids and appended; questions
    come in batches, find candidates through centroids, and are scored by their best tokens."""
    V, d, H, N, D, C = 30522, 512, 8, 8, 128, 4096

    class Enc(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.p = nn.Embedding(V, d), nn.Embedding(512, d)
            self.n = nn.LayerNorm(d)
            self.ls = nn.ModuleList([nn.ModuleDict({"qkv": nn.Linear(d, 3 * d), "o": nn.Linear(d, d), "a": nn.LayerNorm(d),
                                                    "f1": nn.Linear(d, 4 * d), "f2": nn.Linear(4 * d, d), "b": nn.LayerNorm(d)})
                                     for _ in range(N)])
            self.out = nn.Linear(d, D, bias=False)

        def forward(self, x, keep):
            b, l = x.shape
            h = self.n(self.e(x) + self.p.weight[:l])
            m = keep[:, None, None]
            for f in self.ls:
                q, k, v = f["qkv"](h).view(b, l, 3, H, d // H).permute(2, 0, 3, 1, 4)
                a = F.scaled_dot_product_attention(q, k, v, attn_mask=m)
                h = f["a"](h + f["o"](a.transpose(1, 2).reshape(b, l, d)))
                h = f["b"](h + f["f2"](F.gelu(f["f1"](h))))
            return F.normalize(self.out(h).float(), dim=-1).half()

    m = _load(Enc, torch.float16)
    cents = F.normalize(torch.randn(C, D, device=dev), dim=1).half()
    edges, codes = torch.linspace(-0.2, 0.2, 15, device=dev), torch.linspace(-0.21, 0.21, 16, device=dev)
    new, lens = {"c": [], "r": []}, []                      # appended since the last merge; lengths of all documents
    tok_c, tok_r = torch.zeros(0, dtype=torch.int16, device=dev), torch.zeros(0, D // 2, dtype=torch.uint8, device=dev)
    starts = doc_of = None

    def pad(ls):
        n = max(ls)
        keep = torch.arange(n)[None] < torch.tensor(ls)[:, None]
        return (torch.randint(5, V, (len(ls), n)) * keep).to(dev), keep.to(dev)

    def ingest():
        ls = sorted(min(500, 20 + int(R.expovariate(1 / 150))) for _ in range(R.choice([64, 128, 256])))
        cur = []
        for k, l in enumerate(ls):
            cur.append(l)
            if k + 1 == len(ls) or (len(cur) + 1) * ls[k + 1] > 32768:
                x, keep = pad(cur)
                e = m(x, keep)[keep]
                best = torch.cat([(c @ cents.t()).argmax(1) for c in e.split(8192)])
                res = torch.bucketize((e - cents[best]).float(), edges).to(torch.uint8)
                new["c"].append(best.to(torch.int16))
                new["r"].append(res[:, ::2] * 16 + res[:, 1::2])
                lens.extend(cur)
                cur = []

    def search(b):
        x, keep = pad([R.randint(6, 32) for _ in range(b)])
        q = m(x, keep) * keep[..., None]
        near = (q.flatten(0, 1) @ cents.t()).float().view(b, -1, C)
        probe = near.topk(2, -1).indices
        answers = []
        for i in range(b):
            cid = torch.unique(probe[i])
            docs, hits = torch.unique(doc_of[torch.isin(tok_c, cid.to(torch.int16))], return_counts=True)
            if docs.numel() == 0:
                continue
            docs = docs[hits.topk(min(1024, docs.numel())).indices]
            for want in (256, 0):                            # first by centroids alone, then exactly
                n = (starts[docs + 1] - starts[docs])
                seg = torch.repeat_interleave(torch.arange(docs.numel(), device=dev), n)
                at = torch.arange(seg.numel(), device=dev) - (n.cumsum(0) - n)[seg] + starts[docs][seg]
                c = tok_c[at].long()
                if want:
                    s = near[i][:, c]
                else:
                    r = tok_r[at]
                    r = torch.stack([r // 16, r % 16], -1).flatten(1).long()
                    e = F.normalize(cents[c].float() + codes[r], dim=1).half()
                    s = (q[i] @ e.t()).float()
                best = torch.full((s.shape[0], docs.numel()), -1.0, device=dev)
                best.scatter_reduce_(1, seg[None].expand(s.shape[0], -1), s, "amax")
                total = best.sum(0)
                docs = docs[total.topk(min(want or 10, docs.numel())).indices]
            answers.append(docs)
        if answers:
            torch.cat(answers).cpu()

    with torch.inference_mode():
        for t in loop(5000):
            if len(lens) < 12000 and (t < 20 or t % 3 == 0):
                ingest()
            if len(new["c"]) > 10 or starts is None:
                tok_c, tok_r = torch.cat([tok_c] + new["c"]), torch.cat([tok_r] + new["r"])
                new["c"], new["r"] = [], []
                n = torch.tensor(lens).to(dev)
                starts = F.pad(n.cumsum(0), (1, 0))
                doc_of = torch.repeat_interleave(torch.arange(len(lens), device=dev), n)
            search(R.choice([1, 2, 3, 5, 8, 16]))
