"""What is in pictures, videos and point clouds, served: objects, masks, lines of text, faults."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog
from serving_common import _load


@prog
def video_memory():
    """Objects followed through videos, frame by frame, with the features of earlier frames as a memory."""
    from torchvision.models import resnet50

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            r = resnet50(weights=None)
            self.stem = nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool)
            self.l1, self.l2, self.l3 = r.layer1, r.layer2, r.layer3
            self.key, self.shr = nn.Conv2d(1024, 64, 3, padding=1), nn.Conv2d(1024, 1, 3, padding=1)
            self.val = nn.Sequential(nn.Conv2d(1024 + 1, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 512, 3, padding=1))
            self.f16 = nn.Conv2d(512 + 1024, 512, 3, padding=1)
            self.f8, self.s8 = nn.Conv2d(512, 256, 3, padding=1), nn.Conv2d(512, 256, 1)
            self.f4, self.s4 = nn.Conv2d(256, 256, 3, padding=1), nn.Conv2d(256, 256, 1)
            self.o = nn.Conv2d(256, 1, 3, padding=1)

    m = _load(Net)

    def read(mk, ms, mv, q):
        # mk: 64 x THW, mv: objects x 512 x THW, q: 64 x HW
        s = (2 * (mk.t() @ q) - mk.pow(2).sum(0)[:, None]) * ms[:, None] / 8.0
        v, i = s.topk(30, dim=0)
        a = torch.zeros_like(s).scatter_(0, i, torch.softmax(v, 0))
        return mv @ a

    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=dev == "cuda"):
        for _ in loop(6):
            h, w = R.choice([(480, 854), (480, 640), (720, 1280), (720, 960), (1080, 1920)])
            n, keep = R.randint(1, 4), R.choice([5, 8])
            ph, pw = -h % 16, -w % 16
            keys, shr, vals, masks = [], [], [], []
            for t in loop(R.randint(15, 60)):
                x = torch.randint(0, 256, (1, 3, h, w), dtype=torch.uint8).to(dev).float() / 255
                x = F.pad(x, (0, pw, 0, ph))
                f4 = m.l1(m.stem(x))
                f8 = m.l2(f4)
                f16 = m.l3(f8)
                k, s = m.key(f16)[0].flatten(1), m.shr(f16)[0, 0].flatten().square() + 1
                if t == 0:
                    mask = (torch.rand(n, 1, h + ph, w + pw, device=dev) > 0.5).float()
                else:
                    z = read(torch.cat(keys, 1), torch.cat(shr), torch.cat(vals, 2), k)
                    z = z.view(n, 512, *f16.shape[2:])
                    z = F.relu(m.f16(torch.cat([z, f16.expand(n, -1, -1, -1)], 1)))
                    z = F.interpolate(m.f8(z), scale_factor=2, mode="bilinear") + m.s8(f8)
                    z = F.interpolate(m.f4(F.relu(z)), scale_factor=2, mode="bilinear") + m.s4(f4)
                    mask = F.interpolate(m.o(F.relu(z)), scale_factor=4, mode="bilinear").float().sigmoid()
                    full = torch.cat([(1 - mask).prod(0, keepdim=True), mask]).clamp(1e-6, 1 - 1e-6)
                    masks.append((full / full.sum(0, keepdim=True)).argmax(0)[0, :h, :w].to(torch.uint8).cpu())
                if t % 4 == 0:
                    small = F.interpolate(mask, size=f16.shape[2:], mode="area")
                    v = m.val(torch.cat([f16.expand(n, -1, -1, -1), small.to(f16.dtype)], 1))
                    keys.append(k)
                    shr.append(s)
                    vals.append(v.flatten(2))
                    if len(keys) > keep:  # the first frame stays
                        del keys[1], shr[1], vals[1]
            del keys, shr, vals


@prog
def fcos_any():
    """Detection in photographs of any size, resized to 800 by at most 1333."""
    from torchvision.models.detection import fcos_resnet50_fpn
    m = _load(lambda: fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, score_thresh=0.05))
    with torch.no_grad():
        for _ in loop(40):
            m.transform.min_size = (R.choice([640, 720, 800, 800]),)
            xs = []
            for _k in range(R.choice([1, 1, 2, 4])):
                img = torch.randint(0, 256, (3, R.randint(300, 2400), R.randint(300, 2400)), dtype=torch.uint8).to(dev)
                xs.append(img.float().div(255))
            for o in m(xs):
                keep = o["scores"] > 0.06
                o["boxes"][keep].cpu()


@prog
def masks_of_large():
    """Instance masks pasted into large pictures, and a class for each pixel from overlapping windows."""
    from torchvision.models.detection import maskrcnn_resnet50_fpn
    from torchvision.models.segmentation import deeplabv3_resnet50
    m = _load(lambda: maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91, min_size=1024,
                                            max_size=1600, box_score_thresh=0.02))
    seg = _load(lambda: deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=19))
    with torch.no_grad():
        for i in loop(12):
            h, w = R.randint(900, 2400), R.randint(900, 3000)
            img = torch.randint(0, 256, (3, h, w), dtype=torch.uint8).to(dev).float() / 255
            if i % 2 == 0:
                o = m([img])[0]
                full = o["masks"][:, 0] > 0.5
                full.flatten(1).sum(1).cpu()
                area = torch.zeros(h, w, dtype=torch.int16, device=dev)
                for j in range(len(full)):
                    area[full[j]] = j + 1
                area.cpu()
                del o, full
                continue
            t, st = 769, 513
            acc = torch.zeros(1, 19, h, w, device=dev)
            cnt = torch.zeros(1, 1, h, w, device=dev)
            x = ((img - 0.45) / 0.22)[None]
            for y0 in range(0, max(1, h - t + st), st):
                for x0 in range(0, max(1, w - t + st), st):
                    y1, x1 = min(h, y0 + t), min(w, x0 + t)
                    ya, xa = max(0, y1 - t), max(0, x1 - t)
                    p = x[:, :, ya:y1, xa:x1]
                    o = seg(p)["out"].softmax(1)
                    o = (o + seg(p.flip(3))["out"].softmax(1).flip(3)) / 2
                    acc[:, :, ya:y1, xa:x1] += o
                    cnt[:, :, ya:y1, xa:x1] += 1
            (acc / cnt).argmax(1).to(torch.uint8).cpu()
            del acc, cnt, o


@prog
def lidar_pillars():
    """Point clouds of several sweeps gathered into pillars, a bird's-eye picture, boxes."""
    from torchvision.ops import nms
    G = 512

    def cb(i, o, st=1):
        return [nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.n1 = nn.Linear(10, 64, bias=False), nn.BatchNorm1d(64)
            self.b1 = nn.Sequential(*cb(64, 64), *cb(64, 64), *cb(64, 64))
            self.b2 = nn.Sequential(*cb(64, 128, 2), *cb(128, 128), *cb(128, 128), *cb(128, 128))
            self.b3 = nn.Sequential(*cb(128, 256, 2), *cb(256, 256), *cb(256, 256), *cb(256, 256))
            self.u1, self.u2, self.u3 = nn.Conv2d(64, 128, 1), nn.ConvTranspose2d(128, 128, 2, 2), nn.ConvTranspose2d(256, 128, 4, 4)
            self.cls, self.box = nn.Conv2d(384, 6, 1), nn.Conv2d(384, 42, 1)

        def forward(self, pts, bi, b):
            ij = ((pts[:, :2] + 76.8) / 0.3).floor().long()
            ok = ((ij >= 0) & (ij < G)).all(1)
            pts, ij, bi = pts[ok], ij[ok], bi[ok]
            cell, inv, n = torch.unique(bi * G * G + ij[:, 1] * G + ij[:, 0], return_inverse=True, return_counts=True)
            mean = torch.zeros(len(cell), 3, device=pts.device).index_add_(0, inv, pts[:, :3]) / n[:, None]
            mid = (ij.float() + 0.5) * 0.3 - 76.8
            f = torch.cat([pts, pts[:, :3] - mean[inv], pts[:, :2] - mid, n[inv, None].float()], 1)
            f = F.relu(self.n1(self.l1(f)))
            p = torch.zeros(len(cell), 64, device=f.device).scatter_reduce(0, inv[:, None].expand(-1, 64), f, "amax")
            grid = torch.zeros(b * G * G, 64, device=f.device, dtype=f.dtype)
            grid[cell] = p
            x = grid.view(b, G, G, 64).permute(0, 3, 1, 2).contiguous()
            a = self.b1(x)
            c = self.b2(a)
            e = self.b3(c)
            y = torch.cat([self.u1(a), self.u2(c), self.u3(e)], 1)
            return self.cls(y), self.box(y)

    m = _load(Net)
    with torch.no_grad():
        for _ in loop(40):
            b = R.choice([1, 1, 2, 4])
            clouds = []
            for _k in range(b):
                n = R.randint(25_000, 180_000) * R.choice([1, 1, 3])
                p = torch.randn(n, 4) * torch.tensor([25.0, 25.0, 1.5, 0.3])
                clouds.append(p.to(dev))
            bi = torch.cat([torch.full((len(p),), i, device=dev) for i, p in enumerate(clouds)])
            cls, box = m(torch.cat(clouds), bi, b)
            for i in range(b):
                s, at = cls[i].permute(1, 2, 0).reshape(-1).sigmoid().topk(4096)
                q = box[i].view(6, 7, G, G).permute(2, 3, 0, 1).reshape(-1, 7)[at]
                cell = at // 6
                xy = torch.stack([cell % G, cell // G], 1).float() * 0.3 + q[:, :2].tanh()
                wl = q[:, 3:5].clamp(-3, 3).exp()
                keep = nms(torch.cat([xy - wl / 2, xy + wl / 2], 1), s, 0.2)[:500]
                torch.cat([xy[keep], q[keep, 2:], s[keep, None]], 1).cpu()


@prog
def ocr_lines():
    """Pages: text found by a pyramid, then its lines read as crops of any width, sorted into batches."""
    from torchvision.models import resnet18
    V = 6625

    class Det(nn.Module):
        def __init__(self):
            super().__init__()
            r = resnet18(weights=None)
            self.s = nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool)
            self.l = nn.ModuleList([r.layer1, r.layer2, r.layer3, r.layer4])
            self.i = nn.ModuleList([nn.Conv2d(c, 256, 1) for c in (64, 128, 256, 512)])
            self.o = nn.ModuleList([nn.Conv2d(256, 64, 3, padding=1) for _ in range(4)])
            self.h = nn.Sequential(nn.Conv2d(256, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(True),
                                   nn.ConvTranspose2d(64, 64, 2, 2), nn.BatchNorm2d(64), nn.ReLU(True),
                                   nn.ConvTranspose2d(64, 1, 2, 2), nn.Sigmoid())

        def forward(self, x):
            x, fs = self.s(x), []
            for l in self.l:
                x = l(x)
                fs.append(x)
            ps = [f(x) for f, x in zip(self.i, fs)]
            for k in (2, 1, 0):
                ps[k] = ps[k] + F.interpolate(ps[k + 1], size=ps[k].shape[2:], mode="nearest")
            ps = [F.interpolate(f(p), size=ps[0].shape[2:], mode="nearest") for f, p in zip(self.o, ps)]
            return self.h(torch.cat(ps[::-1], 1))

    class Rec(nn.Module):
        def __init__(self):
            super().__init__()
            ls, c = [], 3
            for o, pool in ((64, (2, 2)), (128, (2, 2)), (256, None), (256, (2, 1)), (512, None), (512, (2, 1))):
                ls += [nn.Conv2d(c, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True)]
                if pool:
                    ls.append(nn.MaxPool2d(pool))
                c = o
            self.c = nn.Sequential(*ls, nn.Conv2d(512, 512, (3, 1)), nn.ReLU(True))
            self.r = nn.LSTM(512, 256, 2, bidirectional=True, batch_first=True)
            self.o = nn.Linear(512, V)

        def forward(self, x):
            y = self.c(x).squeeze(2).transpose(1, 2).contiguous()
            return self.o(self.r(y)[0])

    det, rec = _load(Det), _load(Rec)
    with torch.no_grad():
        for _ in loop(20):
            h, w = 32 * R.randint(30, 84), 32 * R.randint(24, 70)
            page = torch.randint(0, 256, (1, 3, h, w), dtype=torch.uint8).to(dev).float() / 127.5 - 1
            (det(page) > 0.3).cpu()
            boxes = []
            for _k in range(R.randint(5, 120)):
                hh = R.randint(12, 60)
                ww = min(w - 1, int(hh * (1 + R.expovariate(1 / 9))))
                boxes.append((R.randint(0, h - hh), R.randint(0, w - ww), hh, ww))
            boxes.sort(key=lambda q: q[3] / q[2])
            crops = [F.interpolate(page[:, :, y:y + hh, x:x + ww], size=(48, max(16, round(48 * ww / hh))), mode="bilinear")
                     for y, x, hh, ww in boxes]
            read, size = [], R.choice([6, 16, 32])
            for a in range(0, len(crops), size):
                part = crops[a:a + size]
                m = max(c.shape[3] for c in part)
                x = torch.zeros(len(part), 3, 48, m, device=dev)
                for i, c in enumerate(part):
                    x[i, :, :, :c.shape[3]] = c[0]
                p, k = rec(x).softmax(-1).max(-1)
                read.append((k.cpu(), p.mean(1).cpu()))


@prog
def patch_bank():
    """Features of all good parts kept on the GPU until the end, a coreset of them, then tests against it."""
    from torchvision.models import wide_resnet50_2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            r = wide_resnet50_2(weights=None)
            self.a = nn.Sequential(r.conv1, r.bn1, r.relu, r.maxpool, r.layer1, r.layer2)
            self.b = r.layer3

        def forward(self, x):
            p = self.a(x)
            q = self.b(p)
            p, q = F.avg_pool2d(p, 3, 1, 1), F.avg_pool2d(q, 3, 1, 1)
            q = F.interpolate(q, size=p.shape[2:], mode="bilinear", align_corners=False)
            return torch.cat([p, q], 1).permute(0, 2, 3, 1).flatten(0, 2)

    m = _load(Net)
    with torch.inference_mode():
        for _ in loop(4):
            s, n, size = R.choice([224, 256, 320]), R.randint(60, 240), R.choice([8, 16, 32])
            feats = []
            for a in range(0, n, size):
                feats.append(m(torch.rand(min(size, n - a), 3, s, s).to(dev)))
            bank = torch.cat(feats)
            del feats
            z = bank @ (torch.randn(bank.shape[1], 128, device=dev) / 128 ** 0.5)
            far = (z - z[:1]).norm(dim=1)
            pick = [0]
            for _k in loop(min(300, len(bank) // 100)):
                i = int(far.argmax())
                pick.append(i)
                far = torch.minimum(far, (z - z[i:i + 1]).norm(dim=1))
            core = bank[torch.tensor(pick, device=dev)]
            del bank, z, far
            for _t in loop(R.randint(5, 20)):
                b = R.choice([1, 4, 16])
                f = m(torch.rand(b, 3, s, s).to(dev))
                v, _i = torch.cdist(f, core).topk(min(9, len(core)), largest=False, dim=1)
                side = s // 8
                v = F.interpolate(v[:, 0].view(b, 1, side, side), size=(s, s), mode="bilinear")
                v.flatten(1).amax(1).cpu()
