"""Language models tuned: instructions, adapters, preferences, rewards."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, ids, loop, prog, step
from training_common import Decoder, _freeze


class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                gr, s = p.grad.float(), self.state[p]
                if not s:
                    s["n"] = 0
                    if p.dim() >= 2:
                        s["r"] = torch.zeros(p.shape[:-1], device=p.device)
                        s["c"] = torch.zeros(p.shape[:-2] + p.shape[-1:], device=p.device)
                    else:
                        s["v"] = torch.zeros_like(gr)
                s["n"] += 1
                b2 = 1 - s["n"] ** -0.8
                sq = gr.pow(2) + 1e-30
                if p.dim() >= 2:
                    s["r"].mul_(b2).add_(sq.mean(-1), alpha=1 - b2)
                    s["c"].mul_(b2).add_(sq.mean(-2), alpha=1 - b2)
                    rf = (s["r"] / s["r"].mean(-1, keepdim=True)).rsqrt_()[..., None]
                    u = rf * s["c"].rsqrt()[..., None, :] * gr
                else:
                    s["v"].mul_(b2).add_(sq, alpha=1 - b2)
                    u = gr * s["v"].rsqrt()
                u.div_((u.norm() / u.numel() ** 0.5).clamp_(min=1.0))
                p.add_(u.to(p.dtype), alpha=-g["lr"])


@prog
def lm_any_length_sft():
    """Instruction tuning: answers of any length, padded to the longest of the batch, layers checkpointed, Adafactor, fp16."""
    V = 50000
    with torch.device(dev):
        m = Decoder(V, 1280, 20, 20, 20, 3456, ckpt=True).train()
    opt = Adafactor(m.parameters(), lr=1e-4)
    sc = torch.amp.GradScaler("cuda", init_scale=2.0 ** 12)
    for _ in loop(40):
        opt.zero_grad(set_to_none=True)
        acc = R.choice([1, 2, 2])
        for _k in range(acc):
            b = R.choice([2, 4, 6])
            ls = [min(2600, int(math.exp(R.gauss(6.0, 0.8))) + 20) for _ in range(b)]
            x = torch.zeros(b, max(ls), dtype=torch.long)
            y = torch.full((b, max(ls)), -100)
            for j, l in enumerate(ls):
                x[j, :l] = torch.randint(5, V, (l,))
                q = R.randint(8, max(9, l // 2))
                y[j, q:l] = x[j, q:l]
            x, y = x.to(dev), y.to(dev)
            with torch.autocast("cuda", dtype=torch.float16):
                o = m(x)
                sl, sy = o[:, :-1].float().contiguous(), y[:, 1:].contiguous()
                loss = F.cross_entropy(sl.view(-1, V), sy.view(-1), ignore_index=-100) / acc
            sc.scale(loss).backward()
            del o, sl, sy
        sc.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        sc.step(opt)
        sc.update()


class _Mat4(torch.autograd.Function):
    @staticmethod
    def deq(q, am, code, o, i):
        k = torch.stack([q >> 4, q & 15], -1).view(-1, 64)
        return (code[k.long()] * am[:, None]).view(o, i)

    @staticmethod
    def forward(ctx, x, q, am, code, o, i):
        ctx.save_for_backward(q, am, code)
        ctx.oi = (o, i)
        return F.linear(x, _Mat4.deq(q, am, code, o, i))

    @staticmethod
    def backward(ctx, g):
        w = _Mat4.deq(*ctx.saved_tensors, *ctx.oi)
        return g @ w, None, None, None, None, None


class _Lin4(nn.Module):
    def __init__(self, i, o, r=32):
        super().__init__()
        self.i, self.o = i, o
        self.register_buffer("q", torch.randint(0, 256, (i * o // 2,), dtype=torch.uint8))
        self.register_buffer("am", torch.full((i * o // 64,), 0.04, dtype=torch.bfloat16))
        self.register_buffer("code", torch.linspace(-1, 1, 16, dtype=torch.bfloat16))
        self.a = nn.Parameter(torch.randn(r, i) * 0.01)
        self.b = nn.Parameter(torch.zeros(o, r))

    def forward(self, x):
        y = _Mat4.apply(x, self.q, self.am, self.code, self.o, self.i)
        z = F.linear(F.linear(F.dropout(x.to(self.a.dtype), 0.05, self.training), self.a), self.b)
        return y + (z * 0.5).to(y.dtype)


@prog
def qlora_adapters():
    """Frozen 4-bit matrices, made bf16 for each product, adapters on every one, checkpointed layers, batches by length."""
    V = 32000
    with torch.device(dev):
        m = Decoder(V, 2048, 16, 8, 18, 5632, ckpt=True, lin=_Lin4)
    m.emb.to(torch.bfloat16)
    m.head.to(torch.bfloat16)
    for n, p in m.named_parameters():
        if not n.endswith((".a", ".b")):
            p.requires_grad_(False)
            p.data = p.data.to(torch.bfloat16)
    m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=2e-4, foreach=True)
    lens = sorted(min(1900, int(math.exp(R.gauss(5.8, 0.7))) + 16) for _ in range(400))
    groups = [lens[i:i + 4] for i in range(0, 400, 4)]
    R.shuffle(groups)
    for i in loop(40):
        l = -(-max(groups[i]) // 8) * 8
        x = ids(4, l, V)
        y = x.clone()
        for j, k in enumerate(groups[i]):
            y[j, k:] = -100
        h = m.hidden(x)
        o = m.head(h)[:, :-1].float()
        loss = F.cross_entropy(o.reshape(-1, V), y[:, 1:].reshape(-1), ignore_index=-100)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in m.parameters() if p.requires_grad], 0.3)
        opt.step()
        loss.item()


@prog
def dpo_pairs():
    """Preferences: chosen and rejected answers in one batch, a frozen reference of the same size."""
    V = 32000
    with torch.device(dev):
        m = Decoder(V, 1024, 16, 8, 14, 2816).train()
    ref = _freeze(copy.deepcopy(m)).to(torch.bfloat16)
    opt = torch.optim.AdamW(m.parameters(), lr=5e-7, weight_decay=0.0)

    def logps(model, x, y):
        o = model(x)[:, :-1].float()
        t = y[:, 1:].clone()
        ok = t != -100
        t[t == -100] = 0
        lp = torch.gather(o.log_softmax(-1), 2, t[..., None])[..., 0]
        return (lp * ok).sum(-1)

    for _ in loop(30):
        b = R.choice([2, 3, 4])
        seqs = []
        ps = [R.randint(20, 300) for _ in range(b)]
        for _side in range(2):
            seqs += [(p, p + R.randint(20, 420)) for p in ps]
        l = max(e for _, e in seqs)
        x, y = ids(2 * b, l, V), torch.full((2 * b, l), -100, device=dev)
        for j, (p, e) in enumerate(seqs):
            x[j, e:] = 0
            y[j, p:e] = x[j, p:e]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.no_grad():
                rc, rr = logps(ref, x, y).chunk(2)
            pc, pr = logps(m, x, y).chunk(2)
        d = 0.1 * ((pc - pr) - (rc - rr))
        loss = -F.logsigmoid(d).mean()
        stats = [(0.1 * (pc - rc)).detach().mean().item(), (0.1 * (pr - rr)).detach().mean().item(),
                 (d > 0).float().mean().item()]
        step(opt, loss + 0.0 * stats[0])


@prog
def rlhf_ppo():
    """Rollouts with a growing cache, scored by a reward model and a reference, then some PPO epochs on them."""
    V = 32000
    with torch.device(dev):
        pol = Decoder(V, 768, 12, 12, 12, 2048)
        vh = nn.Linear(768, 1)
        rm, rh = Decoder(V, 512, 8, 8, 8, 1408), nn.Linear(512, 1)
    ref = _freeze(copy.deepcopy(pol))
    _freeze(rm)
    ps = list(pol.parameters()) + list(vh.parameters())
    opt = torch.optim.Adam(ps, lr=1e-6)

    def full_mask(k, l):
        c = torch.ones(l, l, dtype=torch.bool, device=dev)
        return ((c.tril() & k[:, None, :]) | torch.eye(l, dtype=torch.bool, device=dev))[:, None]

    def lp_of(o, t):
        return o.float().log_softmax(-1).gather(-1, t[..., None])[..., 0]

    for _ in loop(4):
        b, p, n = R.choice([8, 12, 16]), R.randint(24, 200), R.choice([16, 24, 32])
        keep = torch.ones(b, p, dtype=torch.bool)
        for j in range(1, b):
            keep[j, :R.randint(0, p // 2)] = False
        keep = keep.to(dev)
        x = ids(b, p, V)
        pol.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            caches = [[] for _ in pol.blocks]
            pos = (keep.long().cumsum(-1) - 1).clamp(min=0)
            h = pol.hidden(x, mask=full_mask(keep, p), pos=pos, caches=caches)
            for _t in loop(n):
                pr = torch.softmax(pol.head(h[:, -1]).float(), -1)
                sp, si = pr.sort(-1, descending=True)
                sp[sp.cumsum(-1) - sp > 0.95] = 0
                nx = si.gather(-1, torch.multinomial(sp, 1))
                x = torch.cat([x, nx], 1)
                keep = torch.cat([keep, torch.ones(b, 1, dtype=torch.bool, device=dev)], 1)
                pos = keep.long().sum(-1, keepdim=True) - 1
                h = pol.hidden(nx, mask=keep[:, None, None, :], pos=pos, caches=caches)
            del caches, h
            l = x.shape[1]
            n = l - p
            if n < 2:
                break
            pos = (keep.long().cumsum(-1) - 1).clamp(min=0)
            fm = full_mask(keep, l)
            score = rh(rm.hidden(x, mask=fm, pos=pos)[:, -1]).float()[:, 0]
            h = pol.hidden(x, mask=fm, pos=pos)[:, p - 1:-1]
            old, val = lp_of(pol.head(h), x[:, p:]), vh(h)[..., 0].float()
            rlp = lp_of(ref.head(ref.hidden(x, mask=fm, pos=pos)[:, p - 1:-1]), x[:, p:])
            rew = -0.05 * (old - rlp)
            rew[:, -1] += score
            adv, last = [], torch.zeros(b, device=dev)
            for t in reversed(range(n)):
                nv = val[:, t + 1] if t + 1 < n else 0.0
                last = rew[:, t] + nv - val[:, t] + 0.95 * last
                adv.append(last)
            adv = torch.stack(adv[::-1], 1)
            ret = adv + val
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pol.train()
        for _ep in loop(2):
            for k in torch.randperm(b, device=dev).split(4):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    h = pol.hidden(x[k], mask=fm[k], pos=pos[k])[:, p - 1:-1]
                    o = pol.head(h).float()
                    lp = lp_of(o, x[k, p:])
                    v = vh(h)[..., 0].float()
                ent = -(o.softmax(-1) * o.log_softmax(-1)).sum(-1).mean()
                r = (lp - old[k]).exp()
                pg = torch.max(-adv[k] * r, -adv[k] * r.clamp(0.8, 1.2)).mean()
                vc = val[k] + (v - val[k]).clamp(-0.2, 0.2)
                vl = torch.max((v - ret[k]) ** 2, (vc - ret[k]) ** 2).mean()
                opt.zero_grad(set_to_none=True)
                (pg + 0.1 * vl - 0.01 * ent).backward()
                torch.nn.utils.clip_grad_norm_(ps, 1.0)
                opt.step()
