"""Published experiments 1 to 4 in PyTorch. usage: torch_seeds.py 1|2|2-held|3|3-one|4a|4b"""

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


RUNS = {"1": seed1, "2": lambda: seed2(False), "2-held": lambda: seed2(True),
        "3": lambda: seed3(False), "3-one": lambda: seed3(True), "4a": seed4a, "4b": seed4b}
RUNS[sys.argv[1]]()
