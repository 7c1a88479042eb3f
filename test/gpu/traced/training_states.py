"""Training: decisions from pictures, state spaces, spikes."""

import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog


@prog
def decision_transformer_frames():
    """Offline reinforcement learning: returns, stacked frames and actions as one sequence, from a replay kept as bytes on the
    GPU; valuation in sixteen games at once with a context that fills and then slides."""
    M, A, d, H, N = 40000, 18, 256, 8, 6
    frames = torch.randint(0, 255, (M, 84, 84), dtype=torch.uint8, device=dev)
    acts = torch.randint(0, A, (M,), device=dev)
    starts, ends, at = [], [], 0
    while at < M - 1600:
        starts.append(at)
        at += R.randint(200, 1500)
        ends.append(at)
    rtg, when = torch.zeros(M, device=dev), torch.zeros(M, dtype=torch.long, device=dev)
    for a, e in zip(starts, ends):
        rew = (torch.rand(e - a, device=dev) < 0.05).float()
        rtg[a:e] = rew.flip(0).cumsum(0).flip(0)
        when[a:e] = torch.arange(e - a, device=dev)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.f = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))

        def forward(self, x):
            b, l, _ = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, l, 3, H, d // H).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
            x = x + F.dropout(self.o(a.transpose(1, 2).reshape(b, l, d)), 0.1, self.training)
            return x + self.f(self.n2(x))

    class DT(nn.Module):
        def __init__(self):
            super().__init__()
            self.cnn = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                     nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, d), nn.Tanh())
            self.ret, self.act = nn.Sequential(nn.Linear(1, d), nn.Tanh()), nn.Embedding(A + 1, d)
            self.time, self.pos = nn.Embedding(4096, d), nn.Parameter(torch.zeros(1, 150, d))
            self.b = nn.ModuleList([Block() for _ in range(N)])
            self.n, self.head = nn.LayerNorm(d), nn.Linear(d, A, bias=False)

        def forward(self, rtg, obs, act, t):
            b, k = rtg.shape
            s = self.cnn(obs.flatten(0, 1).float() / 255).view(b, k, d)
            x = torch.stack([self.ret(rtg[..., None]), s, self.act(act)], 2).view(b, 3 * k, d)
            x = x + self.pos[:, :3 * k] + self.time(t).repeat_interleave(3, 1)
            x = F.dropout(x, 0.1, self.training)
            for f in self.b:
                x = f(x)
            return self.head(self.n(x[:, 1::3]))

    m = DT().to(dev)
    slow = [p for p in m.parameters() if p.dim() > 1]
    fast = [p for p in m.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": slow, "weight_decay": 0.1}, {"params": fast, "weight_decay": 0.0}], lr=6e-4,
                            betas=(0.9, 0.95))
    for _epoch in loop(60):
        m.train()
        for i in loop(40):
            k, b = R.choice([20, 30, 30, 50]), 64 if i < 39 else 22
            which = [R.randrange(len(starts)) for _ in range(b)]
            first = torch.tensor([R.randint(starts[w], ends[w] - k) for w in which]).to(dev)
            low = torch.tensor([starts[w] for w in which]).to(dev)
            idx = first[:, None] + torch.arange(k, device=dev)
            stack = torch.maximum(idx[..., None] + torch.arange(-3, 1, device=dev), low[:, None, None])
            a = acts[idx]
            logits = m(rtg[idx], frames[stack], a, when[idx])
            loss = F.cross_entropy(logits.reshape(-1, A), a.reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            opt.step()
            loss.item()
        m.eval()
        with torch.no_grad():
            e = 16
            last = torch.randint(0, 255, (e, 1, 4, 84, 84), dtype=torch.uint8, device=dev)
            obs, ret = last, torch.full((e, 1), 90.0, device=dev)
            act, t = torch.full((e, 1), A, device=dev), torch.zeros(e, 1, dtype=torch.long, device=dev)
            for j in loop(60):
                p = m(ret, obs, act, t)[:, -1].softmax(-1)
                act[:, -1:] = torch.multinomial(p, 1)
                act[:, -1].cpu()
                new = torch.randint(0, 255, (e, 1, 1, 84, 84), dtype=torch.uint8).to(dev)
                last = torch.cat([last[:, :, 1:], new], 2)
                obs = torch.cat([obs, last], 1)[:, -30:]
                ret = torch.cat([ret, ret[:, -1:] - (torch.rand(e, 1, device=dev) < 0.05).float()], 1)[:, -30:]
                act = torch.cat([act, torch.full((e, 1), A, device=dev)], 1)[:, -30:]
                t = torch.cat([t, torch.full((e, 1), j + 1, device=dev)], 1)[:, -30:]


@prog
def mamba_bytes():
    """A state-space language model over bytes, the scan by chunks in plain operations, longer rows with the layers
    recomputed; samples by the recurrence."""
    from torch.utils.checkpoint import checkpoint
    d, inner, n, p, N, V = 768, 1536, 64, 64, 8, 256
    h = inner // p

    def segsum(x):
        t = x.shape[-1]
        x = x[..., None].repeat(*([1] * x.dim()), t)
        x = x.masked_fill(~torch.ones(t, t, dtype=torch.bool, device=x.device).tril(-1), 0)
        x = x.cumsum(-2)
        return x.masked_fill(~torch.ones(t, t, dtype=torch.bool, device=x.device).tril(0), float("-inf"))

    def ssd(x, a, B, C, q=64):
        b, l = x.shape[:2]
        c = l // q
        x, B, C = x.view(b, c, q, h, p), B.view(b, c, q, n), C.view(b, c, q, n)
        a = a.view(b, c, q, h).permute(0, 3, 1, 2)
        acc = a.cumsum(-1)
        L = segsum(a).exp()                                                        # b h c q q
        G = torch.einsum("bcln,bcsn->bcls", C, B)
        y = torch.einsum("bhcls,bcshp->bclhp", L * G[:, None], x)
        decay = (acc[..., -1:] - acc).exp()                                        # b h c q
        states = torch.einsum("bcln,bclhp->bchpn", B, x * decay.permute(0, 2, 3, 1)[..., None])
        states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
        between = segsum(F.pad(acc[..., -1], (1, 0))).exp()                        # b h c+1 c+1
        states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
        off = torch.einsum("bcln,bchpn->bclhp", C, states) * acc.exp().permute(0, 2, 3, 1)[..., None]
        return (y + off).reshape(b, l, h, p)

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out_norm = nn.LayerNorm(d), nn.LayerNorm(inner)
            self.i = nn.Linear(d, 2 * inner + 2 * n + h, bias=False)
            self.conv = nn.Conv1d(inner + 2 * n, inner + 2 * n, 4, padding=3, groups=inner + 2 * n)
            self.dt, self.A = nn.Parameter(torch.full((h,), -3.0)), nn.Parameter(torch.arange(1, h + 1).float().log())
            self.D, self.o = nn.Parameter(torch.ones(h)), nn.Linear(inner, d, bias=False)

        def forward(self, u):
            b, l, _ = u.shape
            z, xbc, dt = self.i(self.norm(u)).split([inner, inner + 2 * n, h], -1)
            xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :l].transpose(1, 2))
            with torch.autocast(dev, enabled=False):
                x, B, C = xbc.float().split([inner, n, n], -1)
                dt = F.softplus(dt.float() + self.dt)
                x = x.reshape(b, l, h, p)
                y = ssd(x * dt[..., None], -self.A.exp() * dt, B.contiguous(), C.contiguous()) + x * self.D[:, None]
                y = y.reshape(b, l, inner)
            return u + self.o(self.out_norm(y * F.silu(z)))

        def step(self, u, state):
            z, xbc, dt = self.i(self.norm(u)).split([inner, inner + 2 * n, h], -1)
            state["c"] = torch.cat([state["c"][..., 1:], xbc[..., None]], -1)
            xbc = F.silu((state["c"] * self.conv.weight[:, 0]).sum(-1) + self.conv.bias)
            x, B, C = xbc.split([inner, n, n], -1)
            dt = F.softplus(dt + self.dt)
            x = x.view(-1, h, p)
            state["s"] = state["s"] * (-self.A.exp() * dt).exp()[..., None, None] \
                + (x * dt[..., None])[..., None] * B[:, None, None]
            y = (state["s"] * C[:, None, None]).sum(-1) + x * self.D[:, None]
            return u + self.o(self.out_norm(y.reshape(-1, inner) * F.silu(z)))

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.b = nn.Embedding(V, d), nn.ModuleList([Mix() for _ in range(N)])
            self.n, self.head = nn.LayerNorm(d), nn.Linear(d, V)

        def forward(self, x, save):
            x = self.emb(x)
            for f in self.b:
                x = checkpoint(f, x, use_reentrant=False) if save else f(x)
            return self.head(self.n(x))

    with torch.device(dev):
        m = LM()
    opt = torch.optim.AdamW(m.parameters(), lr=5e-4, weight_decay=0.1)
    text = torch.randint(0, V, (4_000_000,), dtype=torch.uint8)
    for epoch in loop(40):
        for _ in loop(30):
            l = 64 * R.randint(4, min(32, 12 + 6 * epoch))
            b = max(1, (14000 if l >= 1536 else 7000) // l)
            x = torch.stack([text[s:s + l + 1] for s in (R.randrange(text.numel() - l - 1) for _ in range(b))]).to(dev).long()
            with torch.autocast(dev, torch.bfloat16):
                loss = F.cross_entropy(m(x[:, :-1], l >= 1536).float().flatten(0, 1), x[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            opt.step()
            loss.item()
        with torch.no_grad():
            b = R.randint(2, 24)
            st = [{"c": torch.zeros(b, inner + 2 * n, 4, device=dev), "s": torch.zeros(b, h, p, n, device=dev)} for _ in m.b]
            tok, out = torch.randint(0, V, (b,), device=dev), []
            for _ in loop(60):
                x = m.emb(tok)
                for f, s in zip(m.b, st):
                    x = f.step(x, s)
                tok = torch.multinomial((m.head(m.n(x)) / 0.9).softmax(-1), 1)[:, 0]
                out.append(tok)
            if out:
                torch.stack(out, 1).cpu()


@prog
def spiking_events():
    """Gestures from an event camera: events binned to some frames, a spiking residual network unrolled over them, a made-up
    gradient for the spikes, fp16 with a scaler."""
    W = 64

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return (v > 0).to(v.dtype)

        @staticmethod
        def backward(ctx, g):
            v, = ctx.saved_tensors
            return g / (1 + (math.pi * v) ** 2)

    class LIF(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            v, out = torch.zeros_like(x[0]), []
            for t in range(x.shape[0]):
                v = v + (x[t] - v) * self.w.sigmoid()
                s = Spike.apply(v - 1.0)
                v = v * (1 - s.detach())
                out.append(s)
            return torch.stack(out)

    class Conv(nn.Module):
        def __init__(self, i, o, pool=False):
            super().__init__()
            self.c, self.n, self.lif, self.pool = nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), LIF(), pool

        def forward(self, x):
            t, b = x.shape[:2]
            y = self.n(self.c(x.flatten(0, 1)))
            y = self.lif(y.view(t, b, *y.shape[1:]))
            if self.pool:
                y = F.max_pool2d(y.flatten(0, 1), 2)
                y = y.view(t, b, *y.shape[1:])
            return y

    class Res(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.a, self.b = Conv(c, c), Conv(c, c)

        def forward(self, x):
            return x + self.b(self.a(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(Conv(2, 64, True), Res(64), Conv(64, 128, True), Res(128), Conv(128, 256, True), Res(256))
            self.h = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 11))

        def forward(self, x):
            return self.h(self.f(x).mean((0, 3, 4)))

    def binned(b, t):
        ev = []
        for i in range(b):
            k = R.randint(20000, 150000)
            xy = (torch.randn(k, 2, device=dev) * 12 + 32).long().clamp(0, W - 1)
            when = torch.rand(k, device=dev).mul(t).long().clamp(max=t - 1)
            pol = torch.randint(0, 2, (k,), device=dev)
            ev.append((((when * b + i) * 2 + pol) * W + xy[:, 1]) * W + xy[:, 0])
        f = torch.bincount(torch.cat(ev), minlength=t * b * 2 * W * W).view(t, b, 2, W, W).float()
        return f / f.amax((0, 2, 3, 4), keepdim=True).clamp(min=1)

    m = Net().to(dev)
    opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    sched, scaler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 60), torch.amp.GradScaler(dev)
    for _epoch in loop(60):
        m.train()
        for i in loop(30):
            b, t = (24 if i < 29 else 9), R.choice([8, 10, 12, 16])
            x, y = binned(b, t), torch.randint(0, 11, (b,), device=dev)
            with torch.autocast(dev, torch.float16):
                out = m(x)
            loss = F.cross_entropy(out.float(), y, label_smoothing=0.1)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(m.parameters(), 2.0)
            scaler.step(opt)
            scaler.update()
        sched.step()
        m.eval()
        hits = []
        with torch.no_grad(), torch.autocast(dev, torch.float16):
            for i in loop(6):
                b = 32 if i < 5 else 13
                hits.append((m(binned(b, 20)).argmax(1) == torch.randint(0, 11, (b,), device=dev)).float())
        if hits:
            torch.cat(hits).mean().item()
            torch.save({k: v.cpu() for k, v in m.state_dict().items()}, io.BytesIO())
