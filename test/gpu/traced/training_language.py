"""Language models trained from nothing, and speech to text."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog
from training_common import Decoder, _groups


@prog
def lm_packed_pretrain():
    """Packed rows of one length, some micro-batches a step, fused AdamW, cosine rate, now and then a validation."""
    V, L = 32000, 2048
    m = Decoder(V, 768, 12, 4, 12, 2048).to(dev).train()
    opt = torch.optim.AdamW(_groups(m), lr=6e-4, betas=(0.9, 0.95), fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10) * 0.5 * (1 + math.cos(s / 100)))
    tok = torch.randint(0, V, (4_000_000,), dtype=torch.int32)
    for i in loop(20):
        opt.zero_grad(set_to_none=True)
        tot = 0.0
        for _k in range(4):
            at = [R.randint(0, tok.numel() - L - 2) for _ in range(6)]
            x = torch.stack([tok[a:a + L].long() for a in at]).to(dev)
            y = torch.stack([tok[a + 1:a + 1 + L].long() for a in at]).to(dev)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                o = m(x)
                loss = F.cross_entropy(o.float().view(-1, V), y.view(-1)) / 4
            loss.backward()
            tot += loss.detach()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sched.step()
        float(tot)
        if i % 5 == 4:
            m.eval()
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
                ls = []
                for _k in range(3):
                    x = ids(8, L, V)
                    ls.append(F.cross_entropy(m(x)[:, :-1].float().reshape(-1, V), x[:, 1:].reshape(-1)))
                torch.stack(ls).mean().item()
            m.train()


class _Routed(nn.Module):
    """Experts of limited capacity; tokens sorted by their expert, those over it fall out."""

    def __init__(self, d, ff, E, top=2, cap=1.25):
        super().__init__()
        self.E, self.top, self.cap = E, top, cap
        self.gate = nn.Linear(d, E, bias=False)
        self.w1 = nn.Parameter(torch.randn(E, d, 2 * ff) * d ** -0.5)
        self.w2 = nn.Parameter(torch.randn(E, ff, d) * ff ** -0.5)
        self.aux = 0.0

    def forward(self, x):
        b, l, d = x.shape
        x = x.reshape(-1, d)
        n = x.shape[0]
        p = self.gate(x).float().softmax(-1)
        w, e = p.topk(self.top, -1)
        w = w / w.sum(-1, keepdim=True)
        C = int(math.ceil(n * self.top / self.E * self.cap))
        fe = e.flatten()
        order = fe.argsort(stable=True)
        cnt = torch.bincount(fe, minlength=self.E)
        rank = torch.arange(fe.numel(), device=x.device) - (cnt.cumsum(0) - cnt)[fe[order]]
        ok = rank < C
        order, rank = order[ok], rank[ok]
        slot = fe[order] * C + rank
        tok = order // self.top
        buf = x.new_zeros(self.E * C, d).index_copy(0, slot, x[tok])
        g, u = torch.bmm(buf.view(self.E, C, d), self.w1).chunk(2, -1)
        y = torch.bmm(F.silu(g) * u, self.w2).view(self.E * C, d)
        y = y[slot] * w.flatten()[order][:, None].to(y.dtype)
        out = torch.zeros(n, d, device=x.device, dtype=y.dtype).index_add(0, tok, y)
        self.aux = self.E * (p.mean(0) * (cnt / fe.numel())).sum()
        return out.view(b, l, d)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if "buf" not in s:
                    s["buf"] = torch.zeros_like(p.grad)
                s["buf"].lerp_(p.grad, 1 - g["momentum"])
                x = p.grad.lerp(s["buf"], g["momentum"]).bfloat16()
                tall = x.shape[-2] > x.shape[-1]
                if tall:
                    x = x.mT
                x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
                for _ in range(5):
                    a = x @ x.mT
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                if tall:
                    x = x.mT
                p.add_(x.to(p.dtype), alpha=-g["lr"] * max(1, p.shape[-2] / p.shape[-1]) ** 0.5)


@prog
def moe_lm_muon():
    """A language model with routed layers; Muon for the matrices inside, AdamW for the rest."""
    V, d = 32000, 640
    with torch.device(dev):
        m = Decoder(V, d, 10, 5, 8, 1792, mlp=lambda: _Routed(d, 1024, 16), every=2).train()
    mats = [p for f in m.blocks for p in f.parameters() if p.dim() >= 2]
    inside = {id(p) for p in mats}
    o1 = Muon(mats)
    o2 = torch.optim.AdamW([p for p in m.parameters() if id(p) not in inside], lr=3e-4)
    for i in loop(30):
        b, l = (8, 1024) if i % 3 else (R.choice([4, 12]), R.choice([512, 768]))
        x = ids(b, l + 1, V)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            o = m(x[:, :-1])
            loss = F.cross_entropy(o.view(-1, V).float(), x[:, 1:].reshape(-1))
        loss = loss + 0.01 * sum(f.mlp.aux for f in m.blocks if isinstance(f.mlp, _Routed))
        o1.zero_grad(set_to_none=True)
        o2.zero_grad(set_to_none=True)
        loss.backward()
        o1.step()
        o2.step()
        loss.item()


@prog
def word_lstm_tbptt():
    """Word-level LSTM, state carried on, pieces of changing length, adaptive softmax, SGD; a valuation each epoch."""
    V, E, H = 120000, 400, 1150
    emb = nn.Embedding(V, E).to(dev)
    rnn = nn.ModuleList([nn.LSTM(E if i == 0 else H, H if i < 2 else E) for i in range(3)]).to(dev)
    sm = nn.AdaptiveLogSoftmaxWithLoss(E, V, cutoffs=[8000, 40000], div_value=2.0).to(dev)
    ps = [p for m in (emb, rnn, sm) for p in m.parameters()]
    opt = torch.optim.SGD(ps, lr=1.0, weight_decay=1.2e-6)

    def locked(x, p):
        k = x.new_empty(1, x.shape[1], x.shape[2]).bernoulli_(1 - p) / (1 - p)
        return x * k

    def run(x, st, train):
        h = emb(x)
        if train:
            h = locked(h, 0.4)
        new, raw = [], h
        for i, f in enumerate(rnn):
            raw, s = f(h, st[i] if st else None)
            new.append(tuple(t.detach() for t in s))
            h = locked(raw, 0.25) if train else raw
        return h, raw, new

    data = (torch.rand(64, 6000) ** 4 * V).long().clamp(max=V - 1).t().contiguous().to(dev)
    val = (torch.rand(10, 1500) ** 4 * V).long().clamp(max=V - 1).t().contiguous().to(dev)
    for _ep in loop(6):
        at, st = 0, None
        for _k in loop(25):
            bptt = 70 if R.random() < 0.95 else 35
            n = max(5, int(R.gauss(bptt, 5)))
            x, y = data[at:at + n], data[at + 1:at + 1 + n]
            at += n
            h, raw, st = run(x, st, True)
            loss = sm(h.reshape(-1, E), y.reshape(-1)).loss
            loss = loss + 2.0 * h.pow(2).mean() + 1.0 * (raw[1:] - raw[:-1]).pow(2).mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(ps, 0.25)
            opt.step()
            loss.item()
        with torch.no_grad():
            vs, tot = None, 0.0
            for a in range(0, 600, 70):
                h, _, vs = run(val[a:a + 70], vs, False)
                tot += sm(h.reshape(-1, E), val[a + 1:a + 71].reshape(-1)).loss.item()


class _Conformer(nn.Module):
    def __init__(self, d, h, k=31):
        super().__init__()

        def ff():
            return nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(0.1),
                                 nn.Linear(4 * d, d), nn.Dropout(0.1))

        self.f1, self.f2 = ff(), ff()
        self.na, self.nc, self.no = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, h, 0.1, batch_first=True)
        self.p1, self.dw = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, k, padding=k // 2, groups=d)
        self.bn, self.p2 = nn.BatchNorm1d(d), nn.Conv1d(d, d, 1)

    def forward(self, x, pad):
        x = x + 0.5 * self.f1(x)
        y = self.na(x)
        x = x + self.att(y, y, y, key_padding_mask=pad, need_weights=False)[0]
        y = self.nc(x).masked_fill(pad[..., None], 0.0).transpose(1, 2)
        y = self.p2(F.silu(self.bn(self.dw(F.glu(self.p1(y), 1)))))
        x = x + F.dropout(y.transpose(1, 2), 0.1, self.training)
        x = x + 0.5 * self.f2(x)
        return self.no(x)


@prog
def conformer_ctc_attention():
    """Speech to text: batches by length, masked spectra, CTC beside an attention decoder."""
    V, d = 5000, 384
    sub = nn.Sequential(nn.Conv2d(1, d, 3, 2), nn.ReLU(), nn.Conv2d(d, d, 3, 2), nn.ReLU()).to(dev)
    pin = nn.Linear(d * 19, d).to(dev)
    enc = nn.ModuleList([_Conformer(d, 6) for _ in range(10)]).to(dev)
    ctc = nn.Linear(d, V).to(dev)
    emb, out = nn.Embedding(V, d).to(dev), nn.Linear(d, V).to(dev)
    dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 6, 4 * d, batch_first=True), 4).to(dev)
    mods = (sub, pin, enc, ctc, emb, out, dec)
    ps = [p for m in mods for p in m.parameters()]
    opt = torch.optim.Adam(ps, lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) ** -0.5, (s + 1) * 25 ** -1.5))
    lens = sorted(int(min(2400, max(100, math.exp(R.gauss(6.7, 0.55))))) for _ in range(1200))
    batches, cur = [], []
    for l in lens:
        if cur and (len(cur) + 1) * l > 24000:
            batches.append(cur)
            cur = []
        cur.append(l)
    R.shuffle(batches)

    def encode(x, ls):
        h = sub(x[:, None])
        b, c, t, f = h.shape
        h = pin(h.transpose(1, 2).reshape(b, t, c * f))
        sl = (((ls - 1) // 2) - 1) // 2
        pad = torch.arange(t, device=dev)[None] >= sl[:, None]
        for f in enc:
            h = f(h, pad)
        return h, sl, pad

    for i in loop(len(batches)):
        bl = batches[i]
        ls = torch.tensor(bl, device=dev)
        x = torch.randn(len(bl), max(bl), 80).to(dev)
        tl = [max(2, l // 30 + R.randint(-2, 4)) for l in bl]
        tgt = torch.randint(3, V, (len(bl), max(tl))).to(dev)
        tlen = torch.tensor(tl, device=dev)
        for j in range(len(bl)):
            a, c = R.randint(0, 60), R.randint(0, max(1, bl[j] - 50))
            x[j, :, a:a + R.randint(1, 20)] = 0
            x[j, c:c + R.randint(1, 40)] = 0
        with torch.autocast("cuda", dtype=torch.bfloat16):
            h, sl, pad = encode(x, ls)
            lg = ctc(h)
            ti = torch.cat([torch.ones_like(tgt[:, :1]), tgt], 1)
            n = ti.shape[1]
            cm = torch.triu(torch.ones(n, n, device=dev, dtype=torch.bool), 1)
            o = out(dec(emb(ti), h, tgt_mask=cm, memory_key_padding_mask=pad))
        ty = torch.cat([tgt, torch.full_like(tgt[:, :1], -1)], 1)
        ty = ty.masked_fill(torch.arange(n, device=dev)[None] >= tlen[:, None], -1)
        l1 = F.ctc_loss(lg.float().log_softmax(-1).transpose(0, 1), tgt, sl, tlen, zero_infinity=True)
        l2 = F.cross_entropy(o.float().reshape(-1, V), ty.reshape(-1), ignore_index=-1, label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        (0.3 * l1 + 0.7 * l2).backward()
        torch.nn.utils.clip_grad_norm_(ps, 5.0)
        opt.step()
        sched.step()
        if i % 10 == 9:
            for m in mods:
                m.eval()
            with torch.no_grad():
                best = ctc(encode(x, ls)[0]).argmax(-1)
                [torch.unique_consecutive(r).tolist() for r in best]
            for m in mods:
                m.train()
