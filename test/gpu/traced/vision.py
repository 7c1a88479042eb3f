"""Pictures."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import R, dev, loop, prog, step


@prog
def resnet18_cifar():
    from torchvision.models import resnet18
    m = resnet18(weights=None, num_classes=10)
    m.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    m.maxpool = nn.Identity()
    m = m.to(dev).train()
    opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    data = torch.randint(0, 256, (8000, 3, 32, 32), dtype=torch.uint8).to(dev)
    lab = torch.randint(0, 10, (8000,)).to(dev)
    for _ep in loop(4):
        m.train()
        perm = torch.randperm(8000, device=dev)
        for i in loop(16):
            k = perm[i * 300:(i + 1) * 300] if i < 15 else perm[4500:4500 + 77]
            x = F.pad(data[k].float() / 255, (4, 4, 4, 4), mode="reflect")
            a, c = R.randint(0, 8), R.randint(0, 8)
            step(opt, F.cross_entropy(m(x[..., a:a + 32, c:c + 32]), lab[k]))
        m.eval()
        with torch.no_grad():
            for i in loop(3):
                (m(data[i * 1000:(i + 1) * 1000].float() / 255).argmax(1)).cpu()


@prog
def resnet50_infer():
    from torchvision.models import resnet50
    m = resnet50(weights=None).to(dev).half().eval()
    with torch.no_grad():
        for _ in loop(45):
            b, h, w = R.choice([1, 1, 2, 4, 8, 16]), R.randint(140, 700), R.randint(140, 700)
            x = torch.randint(0, 256, (b, 3, h, w), dtype=torch.uint8).to(dev).half() / 255
            if R.random() < 0.4:
                x = F.interpolate(x, size=(224, 224), mode="bilinear", antialias=False)
            torch.softmax(m(x).float(), 1).topk(5).values.cpu()


@prog
def fasterrcnn_infer():
    from torchvision.models.detection import fasterrcnn_resnet50_fpn
    m = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21,
                                min_size=480, max_size=800).to(dev).eval()
    with torch.no_grad():
        for _ in loop(18):
            xs = [torch.rand(3, R.randint(200, 900), R.randint(200, 900)).to(dev) for _ in range(R.choice([1, 1, 2, 4]))]
            [o["boxes"].cpu() for o in m(xs)]


@prog
def fasterrcnn_train():
    from torchvision.models.detection import fasterrcnn_resnet50_fpn
    m = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21,
                                min_size=400, max_size=640).to(dev).train()
    opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=1e-5, momentum=0.9)
    for _ in loop(10):
        xs, ts = [], []
        for _k in range(R.choice([2, 3, 4])):
            h, w = R.randint(300, 700), R.randint(300, 700)
            n = R.randint(1, 20)
            xy = torch.rand(n, 2) * torch.tensor([w * 0.6, h * 0.6])
            wh = 10 + torch.rand(n, 2) * torch.tensor([w * 0.3, h * 0.3])
            xs.append(torch.rand(3, h, w).to(dev))
            ts.append({"boxes": torch.cat([xy, xy + wh], 1).to(dev), "labels": torch.randint(1, 21, (n,)).to(dev)})
        step(opt, sum(m(xs, ts).values()))


@prog
def retinanet_infer():
    from torchvision.models.detection import retinanet_resnet50_fpn
    m = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21,
                               min_size=400, max_size=700).to(dev).eval()
    with torch.no_grad():
        for _ in loop(14):
            xs = [torch.rand(3, R.randint(200, 700), R.randint(200, 700)).to(dev) for _ in range(R.choice([1, 2, 3]))]
            [o["scores"].cpu() for o in m(xs)]


@prog
def deeplab_train():
    from torchvision.models.segmentation import deeplabv3_resnet50
    m = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21, aux_loss=True).to(dev).train()
    opt = torch.optim.SGD(m.parameters(), lr=1e-3, momentum=0.9)
    for _ in loop(10):
        b, s = R.choice([4, 6, 8]), R.choice([257, 321, 385])
        x = torch.randn(b, 3, s, s, device=dev)
        y = torch.randint(0, 21, (b, s, s), device=dev)
        o = m(x)
        step(opt, F.cross_entropy(o["out"], y) + 0.4 * F.cross_entropy(o["aux"], y))


@prog
def fcn_eval_train():
    from torchvision.models.segmentation import fcn_resnet50
    m = fcn_resnet50(weights=None, weights_backbone=None, num_classes=12).to(dev)
    opt = torch.optim.Adam(m.parameters(), lr=1e-4)
    for i in loop(14):
        if i % 3 == 2:
            m.eval()
            cm = torch.zeros(12 * 12, device=dev)
            with torch.no_grad():
                h, w = R.randint(200, 800), R.randint(200, 1000)
                p = m(torch.randn(1, 3, h, w, device=dev))["out"].argmax(1)
                y = torch.randint(0, 12, (1, h, w), device=dev)
                cm += torch.bincount((y * 12 + p).flatten(), minlength=144).float()
        else:
            m.train()
            x = torch.randn(3, 3, 240, 240, device=dev)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(m(x)["out"].float(), torch.randint(0, 12, (3, 240, 240), device=dev))
            step(opt, loss)


@prog
def mobilenet_train():
    from torchvision.models import mobilenet_v3_large
    m = mobilenet_v3_large(weights=None, num_classes=50).to(dev).train()
    opt = torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.9)
    for i in loop(18):
        s = R.choice([128, 160, 192, 224])
        b = 48 if i % 6 != 5 else 19
        x = torch.rand(b, 3, 224, 224).to(dev)
        x = F.interpolate(x, size=(s, s), mode="bilinear")
        step(opt, F.cross_entropy(m(x), torch.randint(0, 50, (b,), device=dev)))


@prog
def efficientnet_amp():
    from torchvision.models import efficientnet_b0
    m = efficientnet_b0(weights=None, num_classes=100).to(dev, memory_format=torch.channels_last).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    sc = torch.amp.GradScaler("cuda")
    for _ in loop(13):
        b = R.choice([32, 48, 64])
        x = torch.randn(b, 3, 224, 224, device=dev).contiguous(memory_format=torch.channels_last)
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(m(x), torch.randint(0, 100, (b,), device=dev))
        sc.scale(loss).backward()
        sc.step(opt)
        sc.update()


@prog
def ema_train():
    from torchvision.models import resnet34
    m = resnet34(weights=None, num_classes=100).to(dev).train()
    ema = copy.deepcopy(m).eval()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    for i in loop(24):
        b, s = 64, R.choice([96, 128, 160])
        step(opt, F.cross_entropy(m(torch.randn(b, 3, s, s, device=dev)), torch.randint(0, 100, (b,), device=dev)))
        with torch.no_grad():
            for a, p in zip(ema.parameters(), m.parameters()):
                a.mul_(0.99).add_(p.detach() * 0.01)
            for a, p in zip(ema.buffers(), m.buffers()):
                a.copy_(p)
            if i % 8 == 7:
                keep = {k: v.clone() for k, v in m.state_dict().items()}
                m.load_state_dict(ema.state_dict())
                m.eval()
                for _ in range(3):
                    m(torch.randn(R.randint(32, 200), 3, 128, 128, device=dev)).argmax(1).cpu()
                m.train()
                m.load_state_dict(keep)
                del keep


@prog
def conv3d_train():
    def cb(i, o):
        return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o), nn.LeakyReLU(0.01),
                             nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o), nn.LeakyReLU(0.01))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.d = nn.ModuleList([cb(1, 16), cb(16, 32), cb(32, 64)])
            self.u = nn.ModuleList([cb(96, 32), cb(48, 16)])
            self.o = nn.Conv3d(16, 4, 1)

        def forward(self, x):
            sk = []
            for i, f in enumerate(self.d):
                x = f(x if i == 0 else F.max_pool3d(x, 2))
                sk.append(x)
            for f, s in zip(self.u, (sk[1], sk[0])):
                x = f(torch.cat([F.interpolate(x, size=s.shape[2:], mode="trilinear"), s], 1))
            return self.o(x)

    m = Net().to(dev)
    opt = torch.optim.Adam(m.parameters(), lr=1e-3)
    for _ in loop(24):
        b = R.choice([1, 2])
        s = [R.choice([32, 48, 64, 80, 96]) for _ in range(3)]
        x = torch.randn(b, 1, *s, device=dev)
        y = torch.randint(0, 4, (b, *s), device=dev)
        o = m(x)
        p, t = o.softmax(1), F.one_hot(y, 4).movedim(-1, 1).float()
        dice = 1 - (2 * (p * t).sum((2, 3, 4)) / (p.sum((2, 3, 4)) + t.sum((2, 3, 4)))).mean()
        step(opt, F.cross_entropy(o, y) + dice)


@prog
def corr_volume():
    from torchvision.models.optical_flow import raft_small
    m = raft_small(weights=None).to(dev).eval()
    with torch.no_grad():
        for _ in loop(12):
            b = R.choice([1, 1, 2])
            h, w = 8 * R.randint(20, 60), 8 * R.randint(20, 100)
            a, c = torch.rand(b, 3, h, w, device=dev) * 2 - 1, torch.rand(b, 3, h, w, device=dev) * 2 - 1
            m(a, c, num_flow_updates=R.choice([6, 8, 12]))[-1].cpu()


@prog
def esrgan_tiles():
    class RDB(nn.Module):
        def __init__(self, nf=64, gc=32):
            super().__init__()
            self.c = nn.ModuleList([nn.Conv2d(nf + i * gc, gc if i < 4 else nf, 3, padding=1) for i in range(5)])

        def forward(self, x):
            fs = [x]
            for i, c in enumerate(self.c):
                y = c(torch.cat(fs, 1))
                if i < 4:
                    fs.append(F.leaky_relu(y, 0.2))
            return x + 0.2 * y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(3, 64, 3, padding=1)
            self.body = nn.Sequential(*[RDB() for _ in range(9)])
            self.u1 = nn.Conv2d(64, 64, 3, padding=1)
            self.u2 = nn.Conv2d(64, 64, 3, padding=1)
            self.o = nn.Conv2d(64, 3, 3, padding=1)

        def forward(self, x):
            x = self.a(x)
            x = x + self.body(x)
            for u in (self.u1, self.u2):
                x = F.leaky_relu(u(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
            return self.o(x)

    m = Net().to(dev).half().eval()
    with torch.no_grad():
        for _ in loop(8):
            h, w, t = R.randint(100, 700), R.randint(100, 700), R.choice([128, 192, 256])
            img = torch.rand(1, 3, h, w, device=dev, dtype=torch.float16)
            out = torch.zeros(1, 3, 4 * h, 4 * w, device=dev, dtype=torch.float16)
            for y in range(0, h, t):
                for x in range(0, w, t):
                    for _k in loop(1):
                        y0, x0, y1, x1 = max(0, y - 8), max(0, x - 8), min(h, y + t + 8), min(w, x + t + 8)
                        o = m(img[:, :, y0:y1, x0:x1])
                        hh, ww = min(t, h - y), min(t, w - x)
                        oy, ox = 4 * (y - y0), 4 * (x - x0)
                        out[:, :, 4 * y:4 * (y + hh), 4 * x:4 * (x + ww)] = o[:, :, oy:oy + 4 * hh, ox:ox + 4 * ww]
            (out.clamp(0, 1) * 255).to(torch.uint8).cpu()
