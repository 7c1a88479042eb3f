"""Published experiments 1 to 5 and 7 in PyTorch. usage: torch_seeds.py 1|2|2-held|3|3-one|4a|4b|5|7"""

import gc
import sys

from point import say, torch_on_gpu, torch_point

torch = torch_on_gpu()
MIB = 1 << 20
GIB = 1 << 30


def at(name):
    torch_point(torch, name)


def room(size):
    """`size` bytes of device memory."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def network():
    widths = [3, 300, 300, 400, 300, 100]
    return torch.nn.Sequential(*(torch.nn.Linear(a, b, device="cuda")
                                 for a, b in zip(widths, widths[1:])))


def seed1():
    """Activations of a five-layer network."""
    x = torch.ones(10, 3, device="cuda")
    network()(x)  # the libraries' own workspaces come first
    gc.collect()
    before = room(4608)
    at("before")
    net = network()
    at("parameters")
    y = net(x)
    at("forward")
    say(shape=list(y.shape), before=before.numel())


def seed2(held):
    """Allocated against reserved; with `held` a second reference keeps both."""
    a = torch.empty(1024, 1024, device="cuda")
    b = torch.empty(2048, 2048, device="cuda")
    others = [a, b] if held else []
    at("both made")
    del a
    at("first freed")
    del b
    at("both freed")
    torch.cuda.empty_cache()  # in front of us the cache is emptied from outside, at the next point
    at("emptied")
    say(held=len(others))


def seed3(one_expression):
    """Where the fourth 3 GiB come from."""
    x = torch.ones(3, 1024, 1024, 256, device="cuda", requires_grad=True)
    at("x")
    if one_expression:
        torch.mean(5 * x).backward()
    else:
        y = 5 * x
        at("y")
        torch.mean(y).backward()
    at("backward")
    say(gradient=float(x.grad[0, 0, 0, 0]).hex())


def seed4a():
    """Fragmentation: no hole serves 64 MiB."""
    tensors = [room(4 * MIB) for _ in range(10)]
    at("ten")
    del tensors[::2]
    at("five")
    tensors.append(room(64 * MIB))
    at("64 MiB")


def limit_natively(limit):
    """PyTorch's limit is a fraction: a little more, so that rounding does not count."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (limit + MIB) / total))


def seed4b():
    """Two tenants within 8 GiB."""
    limit_natively(8 * GIB)
    keep, brief = room(GIB), room(4 * GIB)
    del brief
    tenant = room(GIB)
    at("B came")
    del keep
    keep = room(GIB)
    try:
        brief = room(4 * GIB)
        served = True
    except RuntimeError as error:
        served = False
        if "out of memory" not in str(error):
            raise
    at("end")
    say(served=served, tenant=tenant.numel())


def vgg16():
    """The network without torchvision: its formula."""
    layers, depth = [], 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers += [torch.nn.Conv2d(depth, width, 3, padding=1, device="cuda"), torch.nn.ReLU(True)] \
            if width else [torch.nn.MaxPool2d(2)]
        depth = width or depth
    layers.append(torch.nn.Flatten())
    for before, after in ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)):
        layers += [torch.nn.Linear(before, after, device="cuda"), torch.nn.ReLU(True)]
    return torch.nn.Sequential(*layers[:-1])


def seed5():
    """VGG16: parameters, activations, gradients, momentum."""
    torch.nn.Linear(64, 64, device="cuda")(torch.ones(64, 64, device="cuda")).sum().backward()
    gc.collect()
    at("before")
    net = vgg16()
    at("parameters")
    optimizer = torch.optim.SGD(net.parameters(), 1e-6, momentum=0.9)
    x = torch.ones(1, 3, 224, 224, device="cuda")
    at("image")
    y = net(x)
    at("forward")
    y.sum().backward()
    del y
    at("backward")
    optimizer.step()
    at("momentum")
    say(parameters=sum(p.numel() for p in net.parameters()), image=x.numel())


def seed7():
    """Growth that is not cache: what is kept stays when the cache is emptied."""
    kept = []
    at("before")
    for number in range(1, 41):
        scratch = room(8 * MIB)
        kept.append(room(3000001))
        if number % 5 == 0:
            kept.append(room(4096))
        del scratch
        if number % 20 == 0:
            torch.cuda.empty_cache()  # in front of us it is emptied from outside
            at(f"{number} steps")
    say(kept=len(kept))


RUNS = {"1": seed1, "2": lambda: seed2(False), "2-held": lambda: seed2(True),
        "3": lambda: seed3(False), "3-one": lambda: seed3(True), "4a": seed4a, "4b": seed4b,
        "5": seed5, "7": seed7}
RUNS[sys.argv[1]]()
