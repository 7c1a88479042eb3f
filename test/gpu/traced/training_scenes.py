"""Training: molecules as graphs, splats, several tasks of a scene."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog


@prog
def graphormer_molecules():
    """Molecules of any size in batches of like size: shortest paths and distances as a bias of every head, several targets
    of which some are missing, denoised positions, averaged weights."""
    d, H, N, K, T = 512, 16, 8, 64, 12

    def molecules(n, b):
        sizes = [max(6, n - R.randint(0, n // 6)) for _ in range(b)]
        sizes[0] = n
        adj = torch.zeros(b, n, n)
        for i, s in enumerate(sizes):
            for j in range(1, s):
                k = R.randrange(max(0, j - 4), j)
                adj[i, j, k] = adj[i, k, j] = 1
        atoms = torch.randint(1, 90, (b, n))
        atoms *= torch.arange(n)[None] < torch.tensor(sizes)[:, None]
        y = torch.randn(b, T)
        y[torch.rand(b, T) < 0.4] = float("nan")
        return atoms.to(dev), adj.to(dev), (torch.randn(b, n, 3) * n ** 0.33).to(dev), y.to(dev)

    def paths(adj):
        n = adj.shape[1]
        dist = torch.where(adj > 0, 1.0, 510.0)
        dist[:, torch.arange(n, device=dev), torch.arange(n, device=dev)] = 0
        for k in range(n):
            dist = torch.minimum(dist, dist[:, :, k:k + 1] + dist[:, k:k + 1])
        return dist.clamp(max=39).long()

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.f1, self.f2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

        def forward(self, x, bias):
            b, l, _ = x.shape
            q, k, v = self.qkv(self.n1(x)).view(b, l, 3, H, d // H).permute(2, 0, 3, 1, 4)
            a = (q * (d // H) ** -0.5) @ k.transpose(-1, -2) + bias
            a = F.dropout(a.softmax(-1), 0.1, self.training)
            x = x + F.dropout(self.o((a @ v).transpose(1, 2).reshape(b, l, d)), 0.1, self.training)
            return x + self.f2(F.gelu(self.f1(self.n2(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.atom, self.deg, self.cls = nn.Embedding(90, d, padding_idx=0), nn.Embedding(16, d), nn.Parameter(torch.zeros(d))
            self.spd, self.virtual = nn.Embedding(40, H), nn.Parameter(torch.zeros(H))
            self.mean, self.std = nn.Parameter(torch.linspace(0, 12, K)), nn.Parameter(torch.full((K,), 0.5))
            self.e1, self.e2 = nn.Linear(K, K), nn.Linear(K, H)
            self.ls, self.n = nn.ModuleList([Layer() for _ in range(N)]), nn.LayerNorm(d)
            self.head = nn.Linear(d, T)
            self.fq, self.fk, self.fv, self.fo = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d // H, 1)

        def forward(self, atoms, adj, pos):
            b, n = atoms.shape
            pad = atoms == 0
            delta = pos[:, :, None] - pos[:, None]
            dist = (delta ** 2).sum(-1).add(1e-6).sqrt()
            rbf = torch.exp(-0.5 * ((dist[..., None] - self.mean) / (self.std.abs() + 1e-2)) ** 2)
            bias = self.spd(paths(adj)) + self.e2(F.gelu(self.e1(rbf)))
            bias = F.pad(bias.permute(0, 3, 1, 2), (1, 0, 1, 0))
            edge = torch.zeros(n + 1, n + 1, device=dev)
            edge[0], edge[:, 0] = 1, 1
            bias = bias + self.virtual[:, None, None] * edge
            bias = bias.masked_fill(F.pad(pad, (1, 0))[:, None, None], float("-inf"))
            x = self.atom(atoms) + self.deg(adj.sum(-1).long().clamp(max=15))
            x = torch.cat([self.cls.expand(b, 1, d), x], 1)
            for f in self.ls:
                x = f(x, bias)
            x = self.n(x)
            y = x[:, 1:]
            q, k, v = (f(y).view(b, n, H, d // H).transpose(1, 2) for f in (self.fq, self.fk, self.fv))
            p = (q @ k.transpose(-1, -2) * (d // H) ** -0.5 + bias[:, :, 1:, 1:]).softmax(-1)
            p = p[..., None] * (delta / (dist[..., None] + 1))[:, None]                   # b H n n 3
            f = torch.einsum("bhijc,bhjd->bicd", p, v).reshape(b, n, 3, d // H)
            return self.head(x[:, 0]), self.fo(f)[..., 0], ~pad

    m = Net().to(dev)
    ema = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    opt = torch.optim.AdamW(m.parameters(), lr=2e-4, betas=(0.9, 0.999))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-4, total_steps=4000)

    def losses(net, n, b, noise):
        atoms, adj, pos, y = molecules(n, b)
        shift = torch.randn_like(pos) * noise
        pred, force, real = net(atoms, adj, pos + shift)
        ok = ~y.isnan()
        return F.l1_loss(pred[ok], y[ok]), F.mse_loss(force[real], -shift[real])

    done = 0
    for _epoch in loop(40):
        m.train()
        for _ in loop(30):
            n = min(110, max(8, int(math.exp(R.gauss(3.4, 0.5)))))
            a, c = losses(m, n, max(2, min(256, 300000 // (n * n))), 0.2)
            loss = a + c
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 5.0)
            opt.step()
            if done < 3900:
                sched.step()
            done += 1
            ema.update_parameters(m)
            loss.item()
        ema.eval()
        got = []
        with torch.no_grad():
            for i in loop(8):
                a, _c = losses(ema, 12 + 12 * i, 64 if i < 4 else 20, 0.0)
                got.append(a)
        if got:
            torch.stack(got).mean().item()


@prog
def gaussian_splats():
    """A scene of Gaussians: projected, sorted, blended tile by tile in plain operations; they multiply and are pruned, and
    the optimizer's moments with them; pictures of held-out views."""
    names, view = ["xyz", "scale", "rot", "op", "sh"], 256
    n = 12000
    P = {"xyz": torch.randn(n, 3, device=dev) * 0.5, "scale": torch.full((n, 3), -4.0, device=dev),
         "rot": torch.randn(n, 4, device=dev), "op": torch.full((n, 1), -1.5, device=dev),
         "sh": torch.randn(n, 4, 3, device=dev) * 0.2}
    P = {k: nn.Parameter(v) for k, v in P.items()}
    lrs = {"xyz": 2e-3, "scale": 5e-3, "rot": 1e-3, "op": 5e-2, "sh": 2.5e-3}
    opt = torch.optim.Adam([{"params": [P[k]], "lr": lrs[k], "name": k} for k in names], eps=1e-15)

    def camera():
        a, b = R.uniform(0, 2 * math.pi), R.uniform(-0.5, 0.5)
        z = torch.tensor([math.cos(a) * math.cos(b), math.sin(b), math.sin(a) * math.cos(b)])
        x = torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]), z)
        x = x / x.norm()
        return torch.stack([x, torch.linalg.cross(z, x), z]).to(dev), torch.tensor([0.0, 0.0, R.uniform(2.5, 3.5)]).to(dev)

    def matrix(q):
        w, x, y, z = F.normalize(q, dim=1).unbind(1)
        return torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], 1).view(-1, 3, 3)

    def render(cam, h, w, back=0.0, tile=32):
        rot, t = cam
        f = 1.2 * w
        p = P["xyz"] @ rot.t() + t
        seen = ((p[:, 2] > 0.3) & (p[:, 0].abs() < p[:, 2]) & (p[:, 1].abs() < p[:, 2])).nonzero()[:, 0]
        seen = seen[p[seen, 2].detach().argsort()]
        x, y, z = p[seen].unbind(1)
        uv = torch.stack([f * x / z + w / 2, f * y / z + h / 2], 1)
        if uv.requires_grad:
            uv.retain_grad()
        zero = torch.zeros_like(z)
        J = torch.stack([f / z, zero, -f * x / z ** 2, zero, f / z, -f * y / z ** 2], 1).view(-1, 2, 3) @ rot
        M = J @ (matrix(P["rot"][seen]) * P["scale"][seen].exp()[:, None])
        C = M @ M.transpose(1, 2)
        a, b, c = C[:, 0, 0] + 0.3, C[:, 0, 1], C[:, 1, 1] + 0.3
        det = a * c - b * b
        ca, cb, cc = c / det, -b / det, a / det
        mid = 0.5 * (a + c)
        rad = (3 * (mid + (mid * mid - det).clamp(min=0.1).sqrt()).sqrt()).ceil().detach()
        dirs = F.normalize(P["xyz"][seen].detach() + rot.t() @ t, dim=1)
        sh = P["sh"][seen]
        col = torch.sigmoid(sh[:, 0] + (sh[:, 1:] * dirs[:, :, None]).sum(1))
        op = P["op"][seen].sigmoid()[:, 0]
        at, rows = uv.detach(), []
        for ty in range(0, h, tile):
            th, row = min(tile, h - ty), []
            for tx in range(0, w, tile):
                tw = min(tile, w - tx)
                hit = (at[:, 0] + rad > tx) & (at[:, 0] - rad < tx + tw) & (at[:, 1] + rad > ty) & (at[:, 1] - rad < ty + th)
                g = hit.nonzero()[:, 0][:2500]
                if g.numel() == 0:
                    row.append(torch.full((th, tw, 3), back, device=dev))
                    continue
                py, px = torch.meshgrid(torch.arange(ty, ty + th, device=dev) + 0.5, torch.arange(tx, tx + tw, device=dev) + 0.5,
                                        indexing="ij")
                dx, dy = px.reshape(-1, 1) - uv[g, 0], py.reshape(-1, 1) - uv[g, 1]
                power = -0.5 * (ca[g] * dx * dx + cc[g] * dy * dy) - cb[g] * dx * dy
                alpha = (op[g] * power.clamp(max=0).exp()).clamp(max=0.99)
                alpha = torch.where(alpha < 1 / 255, torch.zeros_like(alpha), alpha)
                T = torch.cumprod(1 - alpha, 1)
                wt = alpha * torch.cat([torch.ones_like(T[:, :1]), T[:, :-1]], 1)
                row.append((wt @ col[g] + T[:, -1:] * back).view(th, tw, 3))
            rows.append(torch.cat(row, 1))
        return torch.cat(rows), uv, seen, rad

    k1 = torch.exp(-(torch.arange(11, device=dev) - 5.0) ** 2 / 4.5)
    window = (k1[:, None] * k1 / (k1.sum() ** 2)).expand(3, 1, 11, 11).contiguous()

    def ssim(x, y):
        x, y = x.permute(2, 0, 1)[None], y.permute(2, 0, 1)[None]
        mx, my = F.conv2d(x, window, padding=5, groups=3), F.conv2d(y, window, padding=5, groups=3)
        xx = F.conv2d(x * x, window, padding=5, groups=3) - mx * mx
        yy = F.conv2d(y * y, window, padding=5, groups=3) - my * my
        xy = F.conv2d(x * y, window, padding=5, groups=3) - mx * my
        return ((2 * mx * my + 1e-4) * (2 * xy + 9e-4) / ((mx * mx + my * my + 1e-4) * (xx + yy + 9e-4))).mean()

    def change(keep, more):
        for group in opt.param_groups:
            k, old = group["name"], group["params"][0]
            st, new = opt.state.pop(old, None), nn.Parameter(torch.cat([old.detach()[keep], more[k]]))
            if st:
                for s in ("exp_avg", "exp_avg_sq"):
                    st[s] = torch.cat([st[s][keep], torch.zeros_like(more[k])])
                opt.state[new] = st
            group["params"][0] = P[k] = new

    cams = [camera() for _ in range(24)]
    photos = [F.interpolate(torch.rand(1, 3, 12, 12, device=dev), size=(view, view), mode="bicubic").clamp(0, 1)[0]
              .permute(1, 2, 0).contiguous() for _ in cams]
    grads, count = torch.zeros(n, device=dev), torch.zeros(n, device=dev)
    for i in loop(1500):
        c = R.randrange(20)
        img, uv, seen, rad = render(cams[c], view, view, R.random())
        loss = 0.8 * (img - photos[c]).abs().mean() + 0.2 * (1 - ssim(img, photos[c]))
        opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            grads[seen] += uv.grad.norm(dim=1)
            count[seen] += 1
        opt.step()
        loss.item()
        if i % 15 == 14:
            with torch.no_grad():
                mean = grads / count.clamp(min=1)
                room = 45000 - mean.numel()
                hot = mean >= torch.quantile(mean, 0.88)
                big = P["scale"].exp().amax(1) > 0.025
                clone, split = hot & ~big, hot & big
                if room < int(hot.sum()):
                    clone, split = torch.zeros_like(hot), torch.zeros_like(hot)
                more = {k: torch.cat([P[k][clone], P[k][split].repeat(2, *[1] * (P[k].dim() - 1))]) for k in names}
                s = int(split.sum()) * 2
                if s:
                    noise = torch.randn(s, 3, device=dev) * more["scale"][-s:].exp()
                    more["xyz"][-s:] += (matrix(more["rot"][-s:]) @ noise[:, :, None])[..., 0]
                    more["scale"][-s:] -= math.log(1.6)
                keep = (P["op"].sigmoid()[:, 0] > 0.03) & ~split
                change(keep, more)
                grads, count = (torch.zeros(P["xyz"].shape[0], device=dev) for _ in range(2))
        if i % 120 == 119:
            with torch.no_grad():
                P["op"].clamp_(max=-2.2)
        if i % 60 == 59:
            with torch.no_grad():
                for v in range(20, 24):
                    h, w = R.choice([(256, 256), (304, 400), (360, 480)])
                    out = render(cams[v], h, w)[0]
                    truth = F.interpolate(photos[v].permute(2, 0, 1)[None], size=(h, w), mode="bilinear")[0].permute(1, 2, 0)
                    (-10 * torch.log10(((out - truth) ** 2).mean())).item()
                    (out.clamp(0, 1) * 255).byte().cpu()


@prog
def multitask_scene():
    """Classes, depth, normals and edges of street scenes from one trunk: a backward pass for each task over the same graph,
    conflicting gradients projected (PCGrad); crops of several sizes, valuation on whole pictures."""
    from torchvision.models import resnet50
    C = 19

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            r = resnet50(weights=None)
            self.stem = nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool)
            self.st = nn.ModuleList([r.layer1, r.layer2, r.layer3, r.layer4])
            self.lat = nn.ModuleList([nn.Conv2d(c, 192, 1) for c in (256, 512, 1024, 2048)])
            self.sm = nn.Sequential(nn.Conv2d(192, 192, 3, padding=1), nn.BatchNorm2d(192), nn.ReLU())
            self.heads = nn.ModuleList([nn.Sequential(nn.Conv2d(192, 192, 3, padding=1), nn.BatchNorm2d(192), nn.ReLU(),
                                                      nn.Conv2d(192, o, 1)) for o in (C, 1, 3, 1)])

        def forward(self, x):
            size, x, fs = x.shape[2:], self.stem(x), []
            for f in self.st:
                x = f(x)
                fs.append(x)
            y = self.lat[3](fs[3])
            for k in (2, 1, 0):
                y = self.lat[k](fs[k]) + F.interpolate(y, size=fs[k].shape[2:], mode="bilinear", align_corners=False)
            y = self.sm(y)
            return [F.interpolate(f(y), size=size, mode="bilinear", align_corners=False) for f in self.heads]

    def batch(b, h, w):
        x = torch.rand(b, 3, h, w).to(dev).contiguous(memory_format=torch.channels_last)
        seg = torch.randint(0, C + 1, (b, h // 8, w // 8), device=dev)
        seg = seg.repeat_interleave(8, 1).repeat_interleave(8, 2)
        seg[seg == C] = 255
        depth = torch.rand(b, 1, h, w, device=dev) * 80
        depth[torch.rand(b, 1, h, w, device=dev) < 0.3] = 0
        normal = F.normalize(torch.randn(b, 3, h, w, device=dev), dim=1)
        edge = (seg[:, :, 1:] != seg[:, :, :-1]).float()
        return x, seg, depth, normal, F.pad(edge, (0, 1))[:, None]

    def losses(out, seg, depth, normal, edge):
        s, z, n, e = (o.float() for o in out)
        ok = depth > 0
        g = torch.log(F.softplus(z[ok]) + 1e-3) - torch.log(depth[ok])
        return [F.cross_entropy(s, seg, ignore_index=255), (g.pow(2).mean() - 0.5 * g.mean() ** 2).clamp(min=1e-6).sqrt(),
                (1 - F.cosine_similarity(n, normal, dim=1)).mean(),
                F.binary_cross_entropy_with_logits(e, edge, pos_weight=torch.tensor(5.0, device=dev))]

    m = Net().to(dev, memory_format=torch.channels_last).train()
    ps = list(m.parameters())
    opt = torch.optim.AdamW(ps, lr=1e-4, weight_decay=1e-4)
    for _epoch in loop(40):
        m.train()
        for i in loop(24):
            h, w = R.choice([(320, 640), (384, 768), (448, 448), (512, 512)])
            x, *ys = batch(6 if i < 23 else 2, h, w)
            with torch.autocast(dev, torch.bfloat16):
                out = m(x)
            ls, gs = losses(out, *ys), []
            for k, l in enumerate(ls):
                opt.zero_grad()
                l.backward(retain_graph=k < 3)
                gs.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad.clone()).flatten() for p in ps]))
            mixed = [g.clone() for g in gs]
            for g in mixed:
                for other in R.sample(gs, len(gs)):
                    dot = g @ other
                    if dot < 0:
                        g -= dot / (other @ other) * other
            total, at = torch.stack(mixed).mean(0), 0
            for p in ps:
                p.grad = total[at:at + p.numel()].view_as(p).clone()
                at += p.numel()
            nn.utils.clip_grad_norm_(ps, 10.0)
            opt.step()
            torch.stack([l.detach() for l in ls]).tolist()
        m.eval()
        conf, errs = torch.zeros(C, C, dtype=torch.long, device=dev), []
        with torch.no_grad(), torch.autocast(dev, torch.bfloat16):
            for i in loop(8):
                x, seg, depth, normal, edge = batch(4 if i < 7 else 1, 512, 1024)
                out = m(x)
                p, ok = out[0].argmax(1), seg != 255
                conf += torch.bincount(seg[ok] * C + p[ok], minlength=C * C).view(C, C)
                z = F.softplus(out[1].float())
                ok = depth > 0
                errs.append(((z[ok] - depth[ok]).abs() / depth[ok]).mean())
                torch.rad2deg(torch.acos(F.cosine_similarity(out[2].float(), normal, dim=1).clamp(-1, 1))).median().item()
        if errs:
            (conf.diag() / (conf.sum(0) + conf.sum(1) - conf.diag()).clamp(min=1)).mean().item()
            torch.stack(errs).mean().item()
