"""Detection and segmentation trained, in pictures, slides and volumes."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step
from training_common import _freeze, _groups


def _hungarian(c):
    """Rows to columns at least cost; c has at most as many rows as columns."""
    n, m = len(c), len(c[0])
    u, v, p, way = [0.0] * (n + 1), [0.0] * (m + 1), [0] * (m + 1), [0] * (m + 1)
    for i in range(1, n + 1):
        p[0], j0 = i, 0
        mv, used = [float("inf")] * (m + 1), [False] * (m + 1)
        while True:
            used[j0] = True
            i0, delta, j1 = p[j0], float("inf"), 0
            for j in range(1, m + 1):
                if not used[j]:
                    cur = c[i0 - 1][j - 1] - u[i0] - v[j]
                    if cur < mv[j]:
                        mv[j], way[j] = cur, j0
                    if mv[j] < delta:
                        delta, j1 = mv[j], j
            for j in range(m + 1):
                if used[j]:
                    u[p[j]] += delta
                    v[j] -= delta
                else:
                    mv[j] -= delta
            j0 = j1
            if p[j0] == 0:
                break
        while j0:
            p[j0] = p[way[j0]]
            j0 = way[j0]
    got = [0] * n
    for j in range(1, m + 1):
        if p[j]:
            got[p[j] - 1] = j - 1
    return got


@prog
def detr_matching():
    """Pictures of any size padded together, queries matched to boxes, losses after every decoder layer."""
    from torchvision.models import resnet50
    from torchvision.ops import FrozenBatchNorm2d, box_convert, generalized_box_iou
    r = resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
    body = nn.Sequential(*list(r.children())[:-2]).to(dev)
    d, Q, C = 256, 100, 91
    proj = nn.Conv2d(2048, d, 1).to(dev)
    enc = nn.ModuleList([nn.TransformerEncoderLayer(d, 8, 2048, batch_first=True) for _ in range(6)]).to(dev)
    dec = nn.ModuleList([nn.TransformerDecoderLayer(d, 8, 2048, batch_first=True) for _ in range(6)]).to(dev)
    qe = nn.Parameter(torch.randn(1, Q, d, device=dev))
    norm, cls = nn.LayerNorm(d).to(dev), nn.Linear(d, C + 1).to(dev)
    box = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4)).to(dev)
    rest = [p for m in (proj, enc, dec, norm, cls, box) for p in m.parameters()] + [qe]
    opt = torch.optim.AdamW([{"params": rest}, {"params": body.parameters(), "lr": 1e-5}], lr=1e-4, weight_decay=1e-4)
    w = torch.ones(C + 1, device=dev)
    w[-1] = 0.1
    fr = 1e4 ** (2 * (torch.arange(128, device=dev) // 2) / 128)
    for _ in loop(30):
        b = R.choice([2, 3, 4])
        hw = []
        for _k in range(b):
            s, asp = R.choice([384, 416, 448, 480, 512, 544, 576, 608, 640]), R.choice([1.0, 1.33, 1.5])
            hw.append((s, int(s * asp)) if R.random() < 0.7 else (int(s * asp), s))
        H, W = max(h for h, _ in hw), max(v for _, v in hw)
        x = torch.zeros(b, 3, H, W, device=dev)
        pad = torch.ones(b, H, W, dtype=torch.bool, device=dev)
        tg = []
        for j, (h, v) in enumerate(hw):
            x[j, :, :h, :v] = torch.rand(3, h, v).to(dev)
            pad[j, :h, :v] = False
            n = R.randint(1, 18)
            tg.append((torch.randint(0, C, (n,)).to(dev),
                       torch.cat([0.2 + 0.6 * torch.rand(n, 2), 0.05 + 0.3 * torch.rand(n, 2)], 1).to(dev)))
        f = proj(body(x))
        fh, fw = f.shape[2:]
        pm = F.interpolate(pad[None].float(), size=(fh, fw))[0].bool()
        ny, nx = (~pm).cumsum(1).float(), (~pm).cumsum(2).float()
        ay, ax = [(t[..., None] / fr) for t in (ny / (ny[:, -1:] + 1e-6) * 6.28, nx / (nx[:, :, -1:] + 1e-6) * 6.28)]
        ay, ax = [torch.stack([t[..., 0::2].sin(), t[..., 1::2].cos()], 4).flatten(3) for t in (ay, ax)]
        pe, km = torch.cat([ay, ax], 3).flatten(1, 2), pm.flatten(1)
        h = f.flatten(2).transpose(1, 2)
        for e in enc:
            h = e(h + pe, src_key_padding_mask=km)
        q, outs = torch.zeros(b, Q, d, device=dev), []
        for e in dec:
            q = e(q + qe, h + pe, memory_key_padding_mask=km)
            y = norm(q)
            outs.append((cls(y), box(y).sigmoid()))
        loss = 0.0
        nb = sum(len(t) for t, _ in tg)
        for lg, bx in outs:
            with torch.no_grad():
                pr = lg.flatten(0, 1).softmax(-1)
                tl, tb = torch.cat([t for t, _ in tg]), torch.cat([t for _, t in tg])
                fb = bx.flatten(0, 1)
                gi = generalized_box_iou(box_convert(fb, "cxcywh", "xyxy"), box_convert(tb, "cxcywh", "xyxy"))
                cost = (5 * torch.cdist(fb, tb, p=1) - pr[:, tl] - 2 * gi).view(b, Q, -1).nan_to_num(1e3).cpu()
            bi, qi, k = [], [], 0
            for j, (t, _) in enumerate(tg):
                qi += _hungarian(cost[j, :, k:k + len(t)].t().tolist())
                bi += [j] * len(t)
                k += len(t)
            bi, qi = torch.tensor(bi, device=dev), torch.tensor(qi, device=dev)
            tc = torch.full((b, Q), C, device=dev)
            tc[bi, qi] = tl
            sb = bx[bi, qi]
            g = torch.diag(generalized_box_iou(box_convert(sb, "cxcywh", "xyxy"), box_convert(tb, "cxcywh", "xyxy")))
            loss = loss + F.cross_entropy(lg.transpose(1, 2), tc, w) + 5 * F.l1_loss(sb, tb, reduction="sum") / nb \
                + 2 * (1 - g).sum() / nb
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rest, 0.1)
        opt.step()
        loss.item()


class _UNet(nn.Module):
    def __init__(self, cin, cout, chs):
        super().__init__()

        def dc(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                                 nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.down = nn.ModuleList([dc(i, o) for i, o in zip([cin] + chs[:-1], chs)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(chs[:0:-1], chs[-2::-1])])
        self.conv = nn.ModuleList([dc(2 * b, b) for b in chs[-2::-1]])
        self.out = nn.Conv2d(chs[0], cout, 1)

    def forward(self, x):
        sk = []
        for i, f in enumerate(self.down):
            x = f(x if i == 0 else F.max_pool2d(x, 2))
            sk.append(x)
        for u, c, s in zip(self.up, self.conv, sk[-2::-1]):
            x = c(torch.cat([s, u(x)], 1))
        return self.out(x)


@prog
def unet_random_crops():
    """Crops of large slides, dice and cross entropy; then whole slides by overlapping tiles, the outputs kept for figures."""
    m = _UNet(3, 6, [64, 128, 256, 512, 1024]).to(dev).train()
    opt = torch.optim.Adam(m.parameters(), lr=3e-4)
    sched = torch.optim.lr_scheduler.StepLR(opt, 10, 0.5)
    slides = [torch.randint(0, 256, (3, R.randint(900, 2600), R.randint(900, 2600)), dtype=torch.uint8) for _ in range(6)]
    labels = [torch.randint(0, 6, s.shape[1:], dtype=torch.uint8) for s in slides]
    for _ep in loop(4):
        m.train()
        for i in loop(10):
            b, c = (8 if i < 9 else 3), 384
            xs, ys = [], []
            for _k in range(b):
                j = R.randrange(6)
                h, w = slides[j].shape[1:]
                y0, x0 = R.randint(0, h - c), R.randint(0, w - c)
                xs.append(slides[j][:, y0:y0 + c, x0:x0 + c])
                ys.append(labels[j][y0:y0 + c, x0:x0 + c])
            x, y = torch.stack(xs).to(dev).float() / 255, torch.stack(ys).to(dev).long()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                o = m(x)
            o = o.float()
            p, t = o.softmax(1), F.one_hot(y, 6).permute(0, 3, 1, 2).float()
            dice = 1 - ((2 * (p * t).sum((2, 3)) + 1) / (p.sum((2, 3)) + t.sum((2, 3)) + 1)).mean()
            step(opt, F.cross_entropy(o, y) + dice)
        sched.step()
        m.eval()
        preds, tgts = [], []
        with torch.no_grad():
            for j in R.sample(range(6), 2):
                s = slides[j].to(dev).float() / 255
                h, w = s.shape[1:]
                acc, cnt = torch.zeros(6, h, w, device=dev), torch.zeros(1, h, w, device=dev)
                pos = [(y0, x0) for y0 in sorted({*range(0, h - 512, 384), h - 512})
                       for x0 in sorted({*range(0, w - 512, 384), w - 512})]
                for a in range(0, len(pos), 6):
                    part = pos[a:a + 6]
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        o = m(torch.stack([s[:, y0:y0 + 512, x0:x0 + 512] for y0, x0 in part])).float()
                    for q, (y0, x0) in zip(o, part):
                        acc[:, y0:y0 + 512, x0:x0 + 512] += q
                        cnt[:, y0:y0 + 512, x0:x0 + 512] += 1
                preds.append((acc / cnt).argmax(0).flatten())
                tgts.append(labels[j].to(dev).long().flatten())
            cm = torch.bincount(torch.cat(tgts) * 6 + torch.cat(preds), minlength=36).view(6, 6).float()
            (cm.diag() / (cm.sum(0) + cm.sum(1) - cm.diag() + 1e-6)).mean().item()
        del preds, tgts


@prog
def yolo_multiscale():
    """One-stage detector; the size changes every few steps; SGD with momentum, fp16, weights averaged."""
    def cv(i, o, k=1, s=1):
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU(inplace=True))

    class C3(nn.Module):
        def __init__(self, i, o, n, short=True):
            super().__init__()
            h = o // 2
            self.a, self.b, self.c, self.short = cv(i, h), cv(i, h), cv(2 * h, o), short
            self.m = nn.ModuleList([nn.Sequential(cv(h, h), cv(h, h, 3)) for _ in range(n)])

        def forward(self, x):
            y = self.a(x)
            for f in self.m:
                y = y + f(y) if self.short else f(y)
            return self.c(torch.cat([y, self.b(x)], 1))

    class Net(nn.Module):
        def __init__(self, w=48, nc=80):
            super().__init__()
            self.no = 5 + nc
            self.stem = nn.Sequential(cv(3, w, 6, 2), cv(w, 2 * w, 3, 2), C3(2 * w, 2 * w, 2))
            self.p3 = nn.Sequential(cv(2 * w, 4 * w, 3, 2), C3(4 * w, 4 * w, 4))
            self.p4 = nn.Sequential(cv(4 * w, 8 * w, 3, 2), C3(8 * w, 8 * w, 6))
            self.p5 = nn.Sequential(cv(8 * w, 16 * w, 3, 2), C3(16 * w, 16 * w, 2))
            self.l5, self.l4 = cv(16 * w, 8 * w), cv(8 * w, 4 * w)
            self.u4, self.u3 = C3(16 * w, 8 * w, 2, False), C3(8 * w, 4 * w, 2, False)
            self.d4, self.d5 = cv(4 * w, 4 * w, 3, 2), cv(8 * w, 8 * w, 3, 2)
            self.n4, self.n5 = C3(8 * w, 8 * w, 2, False), C3(16 * w, 16 * w, 2, False)
            self.h = nn.ModuleList([nn.Conv2d(c, 3 * self.no, 1) for c in (4 * w, 8 * w, 16 * w)])

        def forward(self, x):
            a = self.p3(self.stem(x))
            b = self.p4(a)
            c = self.l5(self.p5(b))
            y4 = self.l4(self.u4(torch.cat([F.interpolate(c, size=b.shape[2:], mode="nearest"), b], 1)))
            o3 = self.u3(torch.cat([F.interpolate(y4, size=a.shape[2:], mode="nearest"), a], 1))
            o4 = self.n4(torch.cat([self.d4(o3), y4], 1))
            o5 = self.n5(torch.cat([self.d5(o4), c], 1))
            r = []
            for f, o in zip(self.h, (o3, o4, o5)):
                n, _, h, w = o.shape
                r.append(f(o).view(n, 3, self.no, h, w).permute(0, 1, 3, 4, 2).contiguous())
            return r

    m = Net().to(dev).train()
    ema = _freeze(copy.deepcopy(m))
    opt = torch.optim.SGD(_groups(m, 5e-4), lr=0.01, momentum=0.937, nesterov=True)
    sc = torch.amp.GradScaler("cuda", init_scale=1024.0)
    anc = torch.tensor([[[1.2, 1.6], [2, 3.7], [4.1, 2.9]]] * 3, device=dev)
    size = 640
    for i in loop(60):
        if i % 4 == 0:
            size = 32 * R.randint(10, 26)
        b = 12
        x = torch.randint(0, 256, (b, 3, 640, 640), dtype=torch.uint8).to(dev, non_blocking=True).float() / 255
        if size != 640:
            x = F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
        n = sum(R.randint(0, 15) for _ in range(b)) + 1
        t = torch.cat([torch.randint(0, b, (n, 1)).float(), torch.randint(0, 80, (n, 1)).float(),
                       0.05 + 0.9 * torch.rand(n, 2), 0.02 + 0.4 * torch.rand(n, 2)], 1).to(dev)
        with torch.autocast("cuda", dtype=torch.float16):
            ps = m(x)
        loss = torch.zeros(1, device=dev)
        for k, p in enumerate(ps):
            p = p.float()
            h, w = p.shape[2:4]
            gain = torch.tensor([w, h, w, h], device=dev).float()
            tb = t[:, 2:] * gain
            rr = tb[:, None, 2:] / anc[k][None]
            ok = torch.max(rr, 1 / rr).amax(2) < 4
            ti, ai = ok.nonzero(as_tuple=True)
            obj = torch.zeros_like(p[..., 0])
            if ti.numel():
                g = tb[ti]
                gi, gj = g[:, 0].long().clamp(0, w - 1), g[:, 1].long().clamp(0, h - 1)
                bi = t[ti, 0].long()
                s = p[bi, ai, gj, gi]
                xy, wh = s[:, :2].sigmoid() * 2 - 0.5, (s[:, 2:4].sigmoid() * 2) ** 2 * anc[k][ai]
                gxy = g[:, :2] - torch.stack([gi, gj], 1)
                lt = torch.max(xy - wh / 2, gxy - g[:, 2:] / 2)
                rb = torch.min(xy + wh / 2, gxy + g[:, 2:] / 2)
                inter = (rb - lt).clamp(min=0).prod(1)
                iou = inter / (wh.prod(1) + g[:, 2:].prod(1) - inter + 1e-9)
                loss = loss + 0.05 * (1 - iou).mean()
                obj[bi, ai, gj, gi] = iou.detach().clamp(0)
                tc = torch.zeros_like(s[:, 5:])
                tc[torch.arange(len(ti), device=dev), t[ti, 1].long()] = 1.0
                loss = loss + 0.5 * F.binary_cross_entropy_with_logits(s[:, 5:], tc)
            loss = loss + F.binary_cross_entropy_with_logits(p[..., 4], obj)
        sc.scale(loss.sum() * b).backward()
        if i % 2 == 1:
            sc.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(m.parameters(), 10.0)
            sc.step(opt)
            sc.update()
            opt.zero_grad(set_to_none=True)
            with torch.no_grad():
                ms = m.state_dict()
                for key, v in ema.state_dict().items():
                    if v.dtype.is_floating_point:
                        v.mul_(0.999).add_(ms[key].detach(), alpha=0.001)


@prog
def unet3d_medical():
    """Patches of volumes, losses at three depths, then a whole volume by a weighted sliding window."""
    chs = [32, 64, 128, 256, 320]

    def cb(i, o, s=1):
        return nn.Sequential(nn.Conv3d(i, o, 3, s, 1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, inplace=True),
                             nn.Conv3d(o, o, 3, 1, 1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, inplace=True))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.d = nn.ModuleList([cb(i, o, 1 if k == 0 else 2) for k, (i, o) in enumerate(zip([4] + chs[:-1], chs))])
            self.u = nn.ModuleList([nn.ConvTranspose3d(a, b, 2, 2) for a, b in zip(chs[:0:-1], chs[-2::-1])])
            self.c = nn.ModuleList([cb(2 * b, b) for b in chs[-2::-1]])
            self.o = nn.ModuleList([nn.Conv3d(b, 4, 1) for b in chs[-2::-1]])

        def forward(self, x):
            sk, os = [], []
            for f in self.d:
                x = f(x)
                sk.append(x)
            for u, c, o, s in zip(self.u, self.c, self.o, sk[-2::-1]):
                x = c(torch.cat([u(x), s], 1))
                os.append(o(x))
            return os[::-1]

    m = Net().to(dev).train()
    opt = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5)
    sc = torch.amp.GradScaler("cuda", init_scale=1024.0)
    P = (112, 128, 96)
    vols = [(torch.randn(4, *s), torch.randint(0, 4, s, dtype=torch.uint8))
            for s in [tuple(R.randint(130, 180) for _ in range(3)) for _ in range(3)]]
    for i in loop(30):
        xs, ys = [], []
        for _k in range(2):
            v, l = R.choice(vols)
            z = [R.randint(0, v.shape[1 + k] - P[k]) for k in range(3)]
            sl = tuple(slice(z[k], z[k] + P[k]) for k in range(3))
            xs.append(v[(slice(None), *sl)])
            ys.append(l[sl])
        x, y = torch.stack(xs).to(dev), torch.stack(ys)[:, None].to(dev).float()
        if R.random() < 0.3:
            x = x + 0.1 * torch.randn_like(x)
        if R.random() < 0.5:
            x, y = x.flip(2), y.flip(2)
        with torch.autocast("cuda", dtype=torch.float16):
            os = m(x)
            loss = 0.0
            for k, o in enumerate(os[:3]):
                t = y if k == 0 else F.interpolate(y, size=o.shape[2:], mode="nearest")
                t = t[:, 0].long()
                o = o.float()
                p, h = o.softmax(1), F.one_hot(t, 4).movedim(-1, 1).float()
                dc = (2 * (p * h).sum((0, 2, 3, 4)) + 1e-5) / (p.sum((0, 2, 3, 4)) + h.sum((0, 2, 3, 4)) + 1e-5)
                loss = loss + 0.5 ** k * (F.cross_entropy(o, t) - dc[1:].mean())
        opt.zero_grad(set_to_none=True)
        sc.scale(loss).backward()
        sc.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 12)
        sc.step(opt)
        sc.update()
        del os, loss, o, p, h, t
        if i % 10 == 9:
            m.eval()
            with torch.no_grad():
                v, l = R.choice(vols)
                g = [torch.exp(-0.5 * ((torch.arange(n, device=dev) - n / 2) / (n / 8)) ** 2) for n in P]
                gw = (g[0][:, None, None] * g[1][None, :, None] * g[2][None, None]).clamp(min=1e-4)
                v = v.to(dev)
                acc, cnt = torch.zeros(4, *v.shape[1:], device=dev), torch.zeros(v.shape[1:], device=dev)
                at = [sorted({0, (v.shape[1 + k] - P[k]) // 2, v.shape[1 + k] - P[k]}) for k in range(3)]
                for a in at[0]:
                    for b in at[1]:
                        for c in at[2]:
                            sl = (slice(a, a + P[0]), slice(b, b + P[1]), slice(c, c + P[2]))
                            with torch.autocast("cuda", dtype=torch.float16):
                                o = m(v[(slice(None), *sl)][None])[0][0]
                            acc[(slice(None), *sl)] += o.float() * gw
                            cnt[sl] += gw
                seg = (acc / cnt).argmax(0)
                [(2 * ((seg == k) & (l.to(dev) == k)).sum() / ((seg == k).sum() + (l.to(dev) == k).sum())).item()
                 for k in range(1, 4)]
                del acc, cnt, seg, v, o
            m.train()
