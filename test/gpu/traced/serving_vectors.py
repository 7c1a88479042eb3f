"""Inference: retrieval, quantising, streams of speech."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog
from serving_common import BF, _load


@prog
def landmark_retrieval():
    """Pictures of buildings sought among 300 thousand: features at three scales, whitened; the nearest are compared again by
    local features, fetched from the host, and fitted by many guessed transformations; expanded questions at the end."""
    from torchvision.models import resnet50
    G, Ld, K = 1024, 128, 700

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            r = resnet50(weights=None)
            self.a = nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool, r.layer1, r.layer2, r.layer3)
            self.b, self.p, self.fc = r.layer4, 3.0, nn.Linear(2048, 2048)
            self.red, self.att = nn.Conv2d(1024, Ld, 1), nn.Sequential(nn.Conv2d(1024, 512, 1), nn.ReLU(), nn.Conv2d(512, 1, 1))

        def forward(self, x):
            mid = self.a(x)
            y = self.b(mid).float().clamp(min=1e-6).pow(self.p).mean((2, 3)).pow(1 / self.p)
            return F.normalize(self.fc(y.to(x.dtype)).float(), dim=1), mid

        def local(self, mid, scale):
            s, f = F.softplus(self.att(mid).float())[0, 0], self.red(mid).float()[0]
            at = s.flatten().topk(min(400, s.numel())).indices
            xy = torch.stack([at % s.shape[1], at // s.shape[1]], 1).float() * 16 / scale
            return F.normalize(f.flatten(1)[:, at].t(), dim=1), xy, s.flatten()[at]

    m = _load(Net, torch.float16)
    mean, proj = torch.zeros(2048, device=dev), torch.randn(2048, G, device=dev) * 2048 ** -0.5
    db = torch.cat([F.normalize(torch.randn(50000, G, device=dev), dim=1).half() for _ in range(6)])
    host = [(F.normalize(torch.randn(R.randint(200, K), Ld), dim=1).half(), torch.rand(K, 2) * 1000) for _ in range(150)]

    def describe(h, w):
        x = torch.randint(0, 255, (3, h, w), dtype=torch.uint8).to(dev)
        x = ((x.float() - 120) / 58)[None].half()
        gs, ls = [], []
        for s in (0.7071, 1.0, 1.4142):
            y = F.interpolate(x, scale_factor=s, mode="bilinear", align_corners=False, recompute_scale_factor=True)
            g, mid = m(y)
            gs.append(g)
            ls.append(m.local(mid, s))
        g = F.normalize((F.normalize(torch.cat(gs).mean(0, keepdim=True), dim=1) - mean) @ proj, dim=1)
        f, xy, s = (torch.cat(v) for v in zip(*ls))
        top = s.topk(min(K, s.numel())).indices
        return g, f[top].half(), xy[top]

    def verify(f, xy, of, oxy):
        sim = (f @ of.t()).float()
        near, back = sim.argmax(1), sim.argmax(0)
        two = sim.topk(2, 1).values
        ok = (back[near] == torch.arange(f.shape[0], device=dev)) & (two[:, 0] - two[:, 1] > 0.005)
        a, b = xy[ok], oxy[near[ok]]
        n = a.shape[0]
        if n < 6:
            return 0.0
        pick = torch.randint(0, n, (1000, 3), device=dev)
        A = torch.cat([a[pick], torch.ones(1000, 3, 1, device=dev)], 2) + 1e-2 * torch.randn(1000, 3, 3, device=dev)
        T = torch.linalg.solve_ex(A, b[pick])[0]
        T = torch.nan_to_num(T, 0.0, 0.0, 0.0)
        p = torch.cat([a, torch.ones(n, 1, device=dev)], 1) @ T                  # 1000 n 2
        inl = ((p - b) ** 2).sum(2) < 24 ** 2
        good = inl[inl.sum(1).argmax()]
        if int(good.sum()) >= 4:
            X = torch.cat([a[good], torch.ones(int(good.sum()), 1, device=dev)], 1)
            Z = torch.linalg.solve(X.t() @ X + 1e-3 * torch.eye(3, device=dev), X.t() @ b[good])
            return float((((torch.cat([a, torch.ones(n, 1, device=dev)], 1) @ Z - b) ** 2).sum(1) < 24 ** 2).sum())
        return float(good.sum())

    with torch.inference_mode():
        seen = []
        for _ in loop(400):
            g, _f, _xy = describe(*R.choice([(512, 768), (768, 512), (683, 1024)]))
            seen.append(g)
            if len(seen) == 40:
                break
        if len(seen) > 1:
            x = torch.cat(seen) @ proj.t() + 0.01 * torch.randn(len(seen), 2048, device=dev)
            cov = torch.cov(x.t()) + 1e-3 * torch.eye(2048, device=dev)
            val, vec = torch.linalg.eigh(cov)
            mean, proj = x.mean(0), (vec[:, -G:] * val[-G:].clamp(min=1e-6).rsqrt()).flip(1).contiguous()
            del x, cov, val, vec
        recent = []
        for i in loop(3000):
            h, w = R.choice([(768, 1024), (1024, 768), (683, 1024), (1024, 1024), (600, 800), (576, 1024)])
            g, f, xy = describe(h, w)
            score, idx = (g.half() @ db.t()).float().topk(100)
            inliers = []
            for j in idx[0, :20].tolist():
                of, oxy = host[j % len(host)]
                of, oxy = of.to(dev), oxy[:of.shape[0]].to(dev)
                inliers.append(verify(f, xy, of, oxy))
            order = sorted(range(len(inliers)), key=lambda k: -inliers[k])
            recent.append((g, idx[0][torch.tensor(order).to(dev)], score[0]))
            if len(recent) == 32:
                q = torch.cat([r[0] for r in recent])
                near = torch.stack([db[r[1][:10]].float() for r in recent])
                wt = torch.stack([r[2][:10] for r in recent]).clamp(min=0) ** 3
                q = F.normalize(q + (near * wt[..., None]).sum(1), dim=1)
                sim = q.half() @ db.t()
                sim.float().topk(100).indices.cpu()
                recent = []


@prog
def gptq_layers():
    """Weights made 4-bit after training, layer by layer: sums of products of what goes in, Cholesky, columns one by one with the
    error passed on, a low-rank patch for what is left; then perplexity by the quantised layers."""
    d, H, ff, V, NS, L = 1536, 12, 4096, 32000, 64, 768
    hd = d // H

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
            self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
            self.g, self.u, self.down = nn.Linear(d, ff, bias=False), nn.Linear(d, ff, bias=False), nn.Linear(ff, d, bias=False)

        def forward(self, x):
            b, l, _ = x.shape
            y = self.n1(x)
            q, k, v = (f(y).view(b, l, H, hd).transpose(1, 2) for f in (self.q, self.k, self.v))
            x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, l, d))
            y = self.n2(x)
            return x + self.down(F.silu(self.g(y)) * self.u(y))

    class Packed(nn.Module):
        def __init__(self, q, scale, zero, a, b):
            super().__init__()
            self.w, self.scale, self.zero, self.a, self.b = (q[:, ::2] | (q[:, 1::2] << 4)), scale, zero, a, b

        def forward(self, x):
            q = torch.stack([self.w & 15, self.w >> 4], -1).flatten(1)
            o, i = q.shape
            w = (q.view(o, -1, 128).to(x.dtype) - self.zero[..., None]) * self.scale[..., None]
            return F.linear(x, w.view(o, i)) + F.linear(F.linear(x, self.a), self.b)

    def gptq(weight, Hs, group=128):
        W = weight.float().clone()
        o, n = W.shape
        dead = Hs.diag() == 0
        Hs[dead, dead] = 1
        W[:, dead] = 0
        perm = Hs.diag().argsort(descending=True)
        W, Hs = W[:, perm], Hs[perm][:, perm]
        i = torch.arange(n, device=dev)
        Hs[i, i] += 0.02 * Hs.diag().mean()
        inv = torch.linalg.cholesky(Hs)
        inv = torch.cholesky_inverse(inv)
        inv = torch.linalg.cholesky(inv, upper=True)
        Q = torch.zeros(o, n, dtype=torch.uint8, device=dev)
        scales, zeros = [], []
        D = torch.zeros_like(W)
        for k in loop(n // group):
            a, e = k * group, (k + 1) * group
            w, err, hi = W[:, a:e].clone(), torch.zeros(o, group, device=dev), inv[a:e, a:e]
            lo, up = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
            s = ((up - lo) / 15).clamp(min=1e-8)
            z = (-lo / s).round()
            for c in range(group):
                col = w[:, c]
                q = (col / s + z).round().clamp(0, 15)
                dq = (q - z) * s
                Q[:, a + c], D[:, a + c] = q.to(torch.uint8), dq
                r = (col - dq) / hi[c, c]
                w[:, c:] -= r[:, None] * hi[c, c:][None]
                err[:, c] = r
            W[:, e:] -= err @ inv[a:e, e:]
            scales.append(s)
            zeros.append(z)
        if len(scales) < n // group:
            return None
        back = perm.argsort()
        left = (weight.float() - D[:, back])
        U, S, Vh = torch.svd_lowrank(left, q=48, niter=2)
        A, Bm = (Vh * S).t()[:32].to(BF).contiguous(), U[:, :32].to(BF).contiguous()
        return Packed(Q, torch.stack(scales, 1).to(BF), torch.stack(zeros, 1).to(BF), A, Bm)

    def fresh():
        with torch.device(dev):
            return Layer().to(BF).requires_grad_(False)

    emb = (torch.randn(V, d, device=dev) * 0.02).to(BF)
    head = (torch.randn(V, d, device=dev) * d ** -0.5).to(BF)
    with torch.no_grad():
        xs = [emb[ids(1, L, V)] for _ in range(NS)]
        done = []
        for _layer in loop(40):
            f = fresh()
            for names in (("q", "k", "v"), ("o",), ("g", "u"), ("down",)):
                sums, hooks = {}, []
                for name in names:
                    lin = getattr(f, name)
                    sums[name] = [torch.zeros(lin.in_features, lin.in_features, device=dev), 0]

                    def see(_m, inp, _out, at=sums[name]):
                        x = inp[0].reshape(-1, inp[0].shape[-1]).float()
                        at[0] *= at[1] / (at[1] + 1)
                        at[1] += 1
                        x = x * math.sqrt(2 / at[1])
                        at[0] += x.t() @ x

                    hooks.append(lin.register_forward_hook(see))
                for x in xs:
                    f(x)
                for h in hooks:
                    h.remove()
                for name in names:
                    made = gptq(getattr(f, name).weight, sums[name][0])
                    if made is None:
                        return
                    setattr(f, name, made)
            for j in range(NS):
                xs[j] = f(xs[j])
            done.append(f)
            if len(done) % 3 == 0:
                nll = []
                for _ in loop(12):
                    t = ids(2, R.randint(200, 1024), V)
                    x = emb[t]
                    for g in done:
                        x = g(x)
                    logits = F.rms_norm(x, (d,)) @ head.t()
                    nll.append(F.cross_entropy(logits[:, :-1].float().flatten(0, 1), t[:, 1:].flatten()))
                if nll:
                    torch.stack(nll).mean().exp().item()


@prog
def rnnt_streams():
    """Live captions: streams come and go, their states are stacked for every chunk and taken apart again; a streaming encoder,
    a small predictor, the most likely symbols, for some streams four hypotheses."""
    d, H, N, V, left = 512, 8, 16, 5000, 96

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = nn.ModuleList([nn.LayerNorm(d) for _ in range(5)])
            self.f = nn.ModuleList([nn.Sequential(nn.Linear(d, 2048), nn.SiLU(), nn.Linear(2048, d)) for _ in range(2)])
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.pw, self.dw, self.out = nn.Linear(d, 2 * d), nn.Conv1d(d, d, 31, groups=d), nn.Linear(d, d)

        def forward(self, x, k0, v0, c0, seen):
            b, l, _ = x.shape
            x = x + 0.5 * self.f[0](self.n[0](x))
            q, k, v = self.qkv(self.n[1](x)).chunk(3, -1)
            k, v = torch.cat([k0, k], 1), torch.cat([v0, v], 1)
            t = k.shape[1]
            mask = torch.arange(t, device=dev)[None] >= (left - seen.clamp(max=left))[:, None]
            a = F.scaled_dot_product_attention(*(y.view(b, -1, H, d // H).transpose(1, 2) for y in (q, k, v)),
                                               attn_mask=mask[:, None, None])
            x = x + self.o(a.transpose(1, 2).reshape(b, l, d))
            y = torch.cat([c0, F.glu(self.pw(self.n[2](x)), -1).transpose(1, 2)], 2)
            x = x + self.out(F.silu(self.dw(y)).transpose(1, 2))
            x = x + 0.5 * self.f[1](self.n[3](x))
            return self.n[4](x), k[:, -left:], v[:, -left:], y[:, :, -30:]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(nn.Conv2d(1, 64, 3, 2), nn.SiLU(), nn.Conv2d(64, 128, 3, 2), nn.SiLU())
            self.lin, self.ls = nn.Linear(128 * 19, d), nn.ModuleList([Layer() for _ in range(N)])
            self.e, self.lstm = nn.Embedding(V, d), nn.LSTMCell(d, d)
            self.je, self.jp, self.out = nn.Linear(d, 640), nn.Linear(d, 640), nn.Linear(640, V)

        def encode(self, feats, st):
            x = self.sub(feats[:, None])
            b, c, t, w = x.shape
            x = self.lin(x.transpose(1, 2).reshape(b, t, c * w))
            ks, vs, cs = [], [], []
            for i, f in enumerate(self.ls):
                x, k, v, y = f(x, st["k"][:, i], st["v"][:, i], st["c"][:, i], st["seen"])
                ks.append(k)
                vs.append(v)
                cs.append(y)
            return x, {"k": torch.stack(ks, 1), "v": torch.stack(vs, 1), "c": torch.stack(cs, 1), "seen": st["seen"] + t}

        def join(self, e, p):
            return self.out(torch.tanh(self.je(e) + self.jp(p)))

    m = _load(Model)
    hann, bank = torch.hann_window(400, device=dev), torch.rand(80, 201, device=dev)

    def start():
        z = {"k": torch.zeros(N, left, d, device=dev), "v": torch.zeros(N, left, d, device=dev),
             "c": torch.zeros(N, d, 30, device=dev), "seen": torch.zeros((), dtype=torch.long, device=dev)}
        return {"st": z, "h": torch.zeros(d, device=dev), "cc": torch.zeros(d, device=dev), "last": 0, "text": [],
                "wave": torch.zeros(560, device=dev), "left": R.randint(4, 60), "beam": R.random() < 0.15}

    def greedy(group, enc):
        h, c = torch.stack([s["h"] for s in group]), torch.stack([s["cc"] for s in group])
        fresh = torch.tensor([s["last"] for s in group]).to(dev)
        if not group[0]["text"]:
            h, c = m.lstm(m.e(fresh), (h, c))
        out = []
        for t in range(enc.shape[1]):
            for _k in range(2):
                y = m.join(enc[:, t], h)
                y[:, 0] += 1.2
                tok = y.argmax(-1)
                say = tok != 0
                out.append(torch.where(say, tok, -1))
                if not bool(say.any()):
                    break
                h2, c2 = m.lstm(m.e(tok), (h, c))
                h, c = torch.where(say[:, None], h2, h), torch.where(say[:, None], c2, c)
        toks = torch.stack(out, 1).cpu().tolist()
        for i, s in enumerate(group):
            s["h"], s["cc"] = h[i], c[i]
            s["text"] += [k for k in toks[i] if k > 0]

    def beam(s, enc):
        hyps = [(0.0, [], s["h"], s["cc"])]
        for t in range(enc.shape[0]):
            h, c = torch.stack([x[2] for x in hyps]), torch.stack([x[3] for x in hyps])
            lp = m.join(enc[t][None].expand(len(hyps), -1), h).log_softmax(-1)
            lp = lp + torch.tensor([x[0] for x in hyps]).to(dev)[:, None]
            val, idx = lp.flatten().topk(4)
            src, tok = idx // V, idx % V
            h2, c2 = m.lstm(m.e(tok), (h[src], c[src]))
            h2, c2 = torch.where((tok == 0)[:, None], h[src], h2), torch.where((tok == 0)[:, None], c[src], c2)
            new = {}
            for j, (v, a, k) in enumerate(zip(val.tolist(), src.tolist(), tok.tolist())):
                text = hyps[a][1] + ([k] if k else [])
                if tuple(text) not in new:
                    new[tuple(text)] = (v, text, h2[j], c2[j])
            hyps = list(new.values())
        best = max(hyps, key=lambda x: x[0] / (len(x[1]) + 1))
        s["text"] += best[1]
        s["h"], s["cc"] = best[2], best[3]

    with torch.inference_mode():
        live = []
        for t in loop(20000):
            rate = 0.6 if t % 120 < 60 else 0.15
            while len(live) < 64 and R.random() < rate:
                live.append(start())
            ready = [s for s in live if R.random() < 0.8]
            if not ready:
                continue
            chunk = torch.stack([torch.cat([s["wave"], (torch.randn(10240) * 0.1).to(dev)]) for s in ready])
            for i, s in enumerate(ready):
                s["wave"] = chunk[i, -560:].clone()
            spec = torch.stft(chunk, 400, 160, window=hann, center=False, return_complex=True).abs() ** 2
            feats = torch.log(bank @ spec + 1e-6).transpose(1, 2)
            st = {k: torch.stack([s["st"][k] for s in ready]) for k in ("k", "v", "c", "seen")}
            enc, st = m.encode(feats, st)
            parts = {k: torch.unbind(v) for k, v in st.items()}
            for i, s in enumerate(ready):
                s["st"] = {k: parts[k][i] for k in parts}
            for fresh in (True, False):
                at = [i for i, s in enumerate(ready) if not s["beam"] and (not s["text"]) == fresh]
                if at:
                    greedy([ready[i] for i in at], enc[torch.tensor(at).to(dev)])
            for i, s in enumerate(ready):
                if s["beam"]:
                    beam(s, enc[i])
            for s in ready:
                s["left"] -= 1
            live = [s for s in live if s["left"] > 0]
