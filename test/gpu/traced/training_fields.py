"""Training: tables in folds, implicit surfaces, equations."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


@prog
def ft_transformer_folds():
    """Tables: a token for every column, five folds for each of several drawn configurations, early stopping, the best
    weights kept, predictions of all folds averaged."""
    N, C, cards = 50000, 26, [2, 3, 5, 12, 30, 90, 400, 1500]
    raw = torch.randn(N, C, device=dev).exp()
    refs = torch.quantile(raw, torch.linspace(0, 1, 1001, device=dev), dim=0).t().contiguous()
    u = torch.searchsorted(refs, raw.t().contiguous()).t().float() / 1001
    X = torch.special.ndtri(u.clamp(1e-4, 1 - 1e-4))
    K = torch.stack([torch.randint(0, c, (N,), device=dev) for c in cards], 1)
    Y = (X[:, :4].sum(1) + torch.randn(N, device=dev) > 0).float()

    class FT(nn.Module):
        def __init__(self, d, n, drop):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.randn(C, d) * d ** -0.5), nn.Parameter(torch.zeros(C, d))
            self.cat, self.cls = nn.Embedding(sum(cards), d), nn.Parameter(torch.zeros(1, 1, d))
            self.register_buffer("off", torch.tensor([sum(cards[:i]) for i in range(len(cards))]))
            layer = nn.TransformerEncoderLayer(d, 8, 4 * d, drop, "gelu", batch_first=True, norm_first=True)
            self.enc = nn.TransformerEncoder(layer, n, enable_nested_tensor=False)
            self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 1))

        def forward(self, x, k):
            t = torch.cat([self.cls.expand(x.shape[0], -1, -1), x[:, :, None] * self.w + self.b,
                           self.cat(k + self.off)], 1)
            return self.head(self.enc(t)[:, 0])[:, 0]

    def predict(m, rows):
        m.eval()
        with torch.no_grad():
            p = [m(X[r], K[r]).sigmoid() for r in rows.split(4096)]
        m.train()
        return torch.cat(p)

    def auc(p, y):
        rank = torch.empty_like(p)
        rank[p.argsort()] = torch.arange(1, p.numel() + 1, device=dev, dtype=p.dtype)
        n1 = y.sum()
        return ((rank[y > 0].sum() - n1 * (n1 + 1) / 2) / (n1 * (y.numel() - n1)).clamp(min=1)).item()

    test, results = torch.arange(N - 8000, N, device=dev), []
    for _trial in loop(20):
        d, n, drop, B = R.choice([128, 192, 256]), R.randint(2, 5), R.uniform(0.0, 0.3), R.choice([256, 512, 1024])
        perm, total = torch.randperm(N - 8000, device=dev), torch.zeros(8000, device=dev)
        for fold in range(5):
            val = perm[fold * 8400:(fold + 1) * 8400]
            train = torch.cat([perm[:fold * 8400], perm[(fold + 1) * 8400:]])
            m = FT(d, n, drop).to(dev)
            opt = torch.optim.AdamW(m.parameters(), lr=R.choice([1e-4, 3e-4]), weight_decay=1e-5)
            best, kept, bad = 0.0, None, 0
            for _epoch in loop(4):
                order = train[torch.randperm(train.numel(), device=dev)].split(B)
                for i in loop(len(order)):
                    rows = order[i]
                    step(opt, F.binary_cross_entropy_with_logits(m(X[rows], K[rows]), Y[rows]))
                score = auc(predict(m, val), Y[val])
                if score > best:
                    best, kept, bad = score, copy.deepcopy(m.state_dict()), 0
                else:
                    bad += 1
                    if bad == 2:
                        break
            if kept is not None:
                m.load_state_dict(kept)
                total += predict(m, test) / 5
                results.append((best, {k: v.cpu() for k, v in kept.items()}))
        auc(total, Y[test])
    results.sort(key=lambda r: -r[0])


@prog
def sdf_hashgrid():
    """A surface as the zero set of a hash grid and a small network: distances, the eikonal term by gradients of gradients;
    now and then the whole volume and where its sign changes."""
    log2, base, fine, levels = 19, 16, 1024, 12

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            g = math.exp(math.log(fine / base) / (levels - 1))
            self.res = [int(base * g ** i) for i in range(levels)]
            self.t = nn.ParameterList([nn.Parameter((torch.rand(min((r + 2) ** 3, 1 << log2), 2) * 2 - 1) * 1e-3)
                                       for r in self.res])
            self.register_buffer("corner", torch.tensor([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)]))
            self.register_buffer("prime", torch.tensor([1, 2654435761, 805459861]))
            self.net = nn.Sequential(nn.Linear(3 + 2 * levels, 64), nn.Softplus(100), nn.Linear(64, 64), nn.Softplus(100),
                                     nn.Linear(64, 1))

        def forward(self, x):
            out = [x - 0.5]
            for r, table in zip(self.res, self.t):
                p = x * r
                c = p.detach().floor()
                f = (p - c)[:, None]
                ix = c.long()[:, None] + self.corner
                if (r + 2) ** 3 <= 1 << log2:
                    h = (ix[..., 0] * (r + 2) + ix[..., 1]) * (r + 2) + ix[..., 2]
                else:
                    y = ix * self.prime
                    h = (y[..., 0] ^ y[..., 1] ^ y[..., 2]) & ((1 << log2) - 1)
                w = torch.where(self.corner.bool(), f, 1 - f)
                w = w[..., 0] * w[..., 1] * w[..., 2]
                out.append((table[h] * w[..., None]).sum(1))
            return self.net(torch.cat(out, 1))[:, 0]

    def radius(v):
        return 0.3 + 0.04 * torch.sin(9 * v[:, 0]) * torch.cos(7 * v[:, 1])

    def surface(n):
        v = F.normalize(torch.randn(n, 3, device=dev), dim=1)
        return v * radius(v)[:, None] + 0.5

    def distance(x):
        v = x - 0.5
        return v.norm(dim=1) - radius(F.normalize(v, dim=1))

    m = Field().to(dev)
    opt = torch.optim.Adam([{"params": m.t.parameters(), "lr": 1e-2}, {"params": m.net.parameters(), "lr": 1e-3}],
                           betas=(0.9, 0.99), eps=1e-15)
    pool, S = surface(2_000_000), 224
    for i in loop(2000):
        n = R.choice([1 << 16, 1 << 16, 100000, 1 << 17])
        on = pool[torch.randint(0, pool.shape[0], (n * 2 // 5,), device=dev)]
        near = (on + torch.randn_like(on) * 0.02).clamp(0, 1)
        x = torch.cat([on, near, torch.rand(n // 5, 3, device=dev)]).requires_grad_(True)
        y = m(x)
        g, = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        want = distance(x.detach())
        loss = ((y - want).abs() / (want.abs() + 0.01)).mean() + 0.1 * ((g.norm(dim=1) - 1) ** 2).mean()
        step(opt, loss)
        if i % 40 == 39:
            with torch.no_grad():
                ax = torch.linspace(0, 1, S, device=dev)
                vol = torch.empty(S * S * S, device=dev)
                for a in range(0, S * S * S, 1 << 19):
                    k = torch.arange(a, min(S * S * S, a + (1 << 19)), device=dev)
                    vol[a:a + k.numel()] = m(torch.stack([ax[k // (S * S)], ax[k // S % S], ax[k % S]], 1))
                vol, verts = vol.view(S, S, S), []
                for axis in range(3):
                    a, b = vol.narrow(axis, 0, S - 1), vol.narrow(axis, 1, S - 1)
                    at = ((a > 0) != (b > 0)).nonzero()
                    va, vb = a[at[:, 0], at[:, 1], at[:, 2]], b[at[:, 0], at[:, 1], at[:, 2]]
                    p = at.float()
                    p[:, axis] += va / (va - vb)
                    verts.append(p / (S - 1))
                verts = torch.cat(verts)
                if verts.shape[0]:
                    some = verts[torch.randint(0, verts.shape[0], (10000,), device=dev)]
                    dd = torch.cdist(some, surface(10000))
                    (dd.amin(0).mean() + dd.amin(1).mean()).item()
                verts.cpu()


@prog
def pinn_adaptive():
    """Flow by a network of its stream function and pressure: third derivatives, points drawn anew where the residual is
    large, Adam and then some rounds of L-BFGS."""
    class Net(nn.Module):
        def __init__(self, w=192):
            super().__init__()
            self.register_buffer("f", torch.randn(3, 32))
            ls, c = [], 64
            for _ in range(4):
                ls += [nn.Linear(c, w), nn.Tanh()]
                c = w
            self.body = nn.Sequential(*ls, nn.Linear(c, 2))

        def forward(self, x):
            a = x @ self.f
            return self.body(torch.cat([a.sin(), a.cos()], 1))

    def D(y, x):
        return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

    net, nu = Net().to(dev), 0.01

    def residual(x):
        x = x.detach().requires_grad_(True)
        psi, p = net(x).split(1, 1)
        g, gp = D(psi, x), D(p, x)
        u, v = g[:, 1:2], -g[:, :1]
        gu, gv = D(u, x), D(v, x)
        uxx, uyy = D(gu[:, :1], x)[:, :1], D(gu[:, 1:2], x)[:, 1:2]
        vxx, vyy = D(gv[:, :1], x)[:, :1], D(gv[:, 1:2], x)[:, 1:2]
        rx = gu[:, 2:] + u * gu[:, :1] + v * gu[:, 1:2] + gp[:, :1] - nu * (uxx + uyy)
        ry = gv[:, 2:] + u * gv[:, :1] + v * gv[:, 1:2] + gp[:, 1:2] - nu * (vxx + vyy)
        return rx, ry

    def border(n):
        x = torch.rand(n, 3, device=dev)
        side = torch.randint(0, 2, (n,), device=dev)
        x[torch.arange(n, device=dev), side] = torch.randint(0, 2, (n,), device=dev).float()
        return x, (side == 1) & (x[:, 1] == 1)

    def losses(pts, edge, lid, start):
        rx, ry = residual(pts)
        e = edge.detach().requires_grad_(True)
        g = D(net(e)[:, :1], e)
        wall = ((g[:, 1] - lid.float()) ** 2 + g[:, 0] ** 2).mean()
        s = start.detach().requires_grad_(True)
        g = D(net(s)[:, :1], s)
        return (rx ** 2 + ry ** 2).mean() + 10 * wall + (g[:, :2] ** 2).mean()

    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    pts = torch.rand(10000, 3, device=dev)
    for _round in loop(40):
        for _ in loop(40):
            edge, lid = border(R.randint(2000, 4000))
            start = torch.rand(1500, 3, device=dev) * torch.tensor([1.0, 1.0, 0.0], device=dev)
            take = pts[torch.randint(0, pts.shape[0], (R.choice([8000, 10000, 12000]),), device=dev)]
            step(opt, losses(take, edge, lid, start))
        pool, res = torch.rand(60000, 3, device=dev), []
        for c in pool.split(12000):
            rx, ry = residual(c)
            res.append((rx.detach() ** 2 + ry.detach() ** 2)[:, 0])
        w = torch.cat(res)
        w = w / w.mean().clamp(min=1e-12) + 0.5
        new = pool[torch.multinomial(w, 3000)]
        pts = torch.cat([pts[torch.randperm(pts.shape[0], device=dev)[:12000]], new])
        edge, lid = border(3000)
        start = torch.rand(1500, 3, device=dev) * torch.tensor([1.0, 1.0, 0.0], device=dev)
        fixed = pts[:9000].clone()
        second = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, history_size=20, line_search_fn="strong_wolfe")

        def closure():
            second.zero_grad()
            loss = losses(fixed, edge, lid, start)
            loss.backward()
            return loss

        for _ in loop(2):
            second.step(closure)
        with torch.no_grad():
            grid = torch.cartesian_prod(*[torch.linspace(0, 1, k, device=dev) for k in (256, 256, 8)])
            torch.cat([net(c) for c in grid.split(65536)]).view(256, 256, 8, 2).cpu()
