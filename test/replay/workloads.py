"""Traces of other kinds than those that were recorded, made from what such programs allocate: a decoder whose key-value cache
grows, a U-Net, an LSTM over sequences of any length, random sizes, and tenants with a limit each. The same text every time."""

import random

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Trace:
    """Lines of a trace, and what is live."""

    def __init__(self):
        self.lines, self.size, self.live, self.peak, self.next = ["op,id,bytes,stream"], {}, 0, 0, 0

    def take(self, size):
        self.lines.append(f"a,{self.next},{int(size)},0")
        self.size[self.next] = int(size)
        self.live += int(size)
        self.peak = max(self.peak, self.live)
        self.next += 1
        return self.next - 1

    def drop(self, *numbers):
        for number in numbers:
            self.live -= self.size.pop(number)
            self.lines.append(f"f,{number},,0")

    def feed_forward(self, size):
        """That of a decoder's layer, four times as wide inside: takes its output."""
        normed, up = self.take(size), self.take(4 * size)
        self.drop(normed)
        curved = self.take(4 * size)
        self.drop(up)
        down = self.take(size)
        self.drop(curved)
        return down

    def text(self):
        return "\n".join(self.lines) + "\n"


def decoder(steps=600, layers=24, width=2048, heads=16, seed=1):
    """Requests of any length come and go; each step every layer makes a longer key-value cache out of the old one."""
    trace, dice = Trace(), random.Random(seed)
    for _ in range(layers):
        for rows in (3, 1, 4, 4):  # weights: qkv, out, up, down
            trace.take(rows * width * width * 2)
    batch = []
    for _ in range(steps):
        while len(batch) < 6:
            length = dice.randint(64, 2000)
            batch.append([length, length + dice.randint(8, 120), [trace.take(4 * length * width) for _ in range(layers)]])
        for request in batch:
            request[0] += 1
            for layer in range(layers):
                scores = trace.take(heads * request[0] * 4)
                grown = trace.take(4 * request[0] * width)
                hidden = [trace.take(8 * width) for _ in range(2)]
                trace.drop(request[2][layer], scores, *hidden)
                request[2][layer] = grown
        logits = trace.take(len(batch) * 50304 * 4)
        trace.drop(logits)
        for request in [r for r in batch if r[0] >= r[1]]:
            trace.drop(*request[2])
            batch.remove(request)
    return trace


def prompts(steps=15, layers=12, width=768, heads=12, batch=16, words=32000, seed=3):
    """A small decoder as PyTorch runs it: each step a prompt of another length and 47 tokens behind it, with few blocks, and those large."""
    trace, dice = Trace(), random.Random(seed)
    trace.take(2 * words * width)
    for _ in range(layers):
        for rows in (3, 1, 4, 4):
            trace.take(rows * width * width * 2)
    for _ in range(2):
        trace.take(2 * words * width)

    def layer(x, length, cache):
        """The layer's output, and (keys and values, their length): those of a prompt are views of what it made at once."""
        n = batch * length * width * 2
        normed = trace.take(n)
        made = trace.take(3 * n)
        trace.drop(normed)
        if cache:
            seen = cache[1] + length
            kept = [trace.take(batch * seen * width * 2) for _ in range(2)], seen
        else:
            kept = [made], length
        attended, sums = trace.take(n), trace.take(batch * heads * length * 4)
        shaped = trace.take(n)
        out = trace.take(n)
        trace.drop(sums, shaped)
        middle = trace.take(n)
        trace.drop(out, x, attended, *([made] if cache else []))
        down = trace.feed_forward(n)
        x = trace.take(n)
        trace.drop(down, middle, *(cache[0] if cache else []))
        return x, kept

    for _ in range(steps):
        length, caches = dice.randrange(64, 1024), [None] * layers
        for _ in range(48):
            x = trace.take(batch * length * width * 2)
            for number in range(layers):
                x, caches[number] = layer(x, length, caches[number])
            logits = trace.take(batch * words * 2)
            trace.drop(x, logits)
            length = 1
        trace.drop(*[block for cache in caches for block in cache[0]])
    return trace


def chat(seed, steps=90, layers=4, width=768, words=32000, most=8):
    """Small decoders' requests in turns: each layer's keys and values are two blocks of 1 to 5 MiB, made anew, a little larger, for each
    token (torch.cat). Hardly anything lives long or comes again, and the driver's granule is as large as the blocks: the worst case."""
    trace, dice, running = Trace(), random.Random(seed), []
    for _ in range(layers):
        for rows in (3, 1, 4, 4):
            made = trace.take(4 * rows * width * width)
            trace.take(2 * rows * width * width)  # in half precision
            trace.drop(made)
    trace.take(2 * words * width)

    def run(request, tokens):
        n = 2 * tokens * width
        x = trace.take(n)
        for cache in request["cache"]:
            normed, old = trace.take(n), list(cache)
            made = trace.take(3 * n)
            trace.drop(normed)
            cache[:] = [trace.take(request["length"] * 2 * width + n) for _ in range(2)]
            trace.drop(*old)
            attended = trace.take(n)
            out = trace.take(n)
            middle = trace.take(n)
            trace.drop(out, x, attended, made)
            down = trace.feed_forward(n)
            x = trace.take(n)
            trace.drop(middle, down)
        logits = trace.take(4 * words)
        trace.drop(logits, x)
        request["length"] += tokens

    for _ in range(steps):
        if len(running) < most and dice.random() < 0.35:
            running.append({"cache": [[] for _ in range(layers)], "length": 0, "left": dice.randint(4, 60)})
            run(running[-1], dice.randint(20, 2500))
        for request in running:
            run(request, 1)
            request["left"] -= 1
        for request in [r for r in running if not r["left"]]:
            trace.drop(*[block for cache in request["cache"] for block in cache])
            running.remove(request)
    return trace


def unet(steps=40, seed=2):
    """Training at changing resolutions: activations kept on the way down, used on the way up."""
    trace, dice = Trace(), random.Random(seed)
    channels = [64, 128, 256, 512, 1024]
    weights = [trace.take(9 * a * b * 4) for a, b in zip([3, *channels], [*channels, 1024])]
    trace.peak, moments = trace.live, [trace.take(trace.size[w]) for w in weights for _ in range(2)]
    for _ in range(steps):
        side = dice.choice([256, 288, 320, 352, 384])
        kept = []
        for level, depth in enumerate(channels):
            cell = 8 * depth * (side >> level) ** 2 * 4
            work = trace.take(9 * cell // 4)
            kept += [trace.take(cell), trace.take(cell)]
            trace.drop(work)
        gradients = []
        for level in reversed(range(len(channels))):
            cell = 8 * channels[level] * (side >> level) ** 2 * 4
            both = trace.take(2 * cell)
            work = trace.take(cell)
            trace.drop(both, work, kept.pop(), kept.pop())
            gradients.append(trace.take(trace.size[weights[level]]))
        trace.drop(*gradients)
    trace.drop(*moments)
    return trace


def lstm(steps=60, seed=3):
    """Batches of sequences of any length: gates kept for each step in time, freed in reverse."""
    trace, dice = Trace(), random.Random(seed)
    for _ in range(4):
        trace.take(8 * 1536 * 1536 * 4)
    for _ in range(steps):
        batch, length = dice.choice([32, 48, 64]), dice.randint(30, 180)
        inputs = trace.take(batch * length * 1536 * 4)
        gates = [trace.take(batch * 4 * 1536 * 4 * 2) for _ in range(2 * length)]
        output = trace.take(batch * length * 1536 * 4)
        logits = trace.take(batch * length * 10000 * 4)
        slope = trace.take(batch * length * 10000 * 4)
        trace.drop(logits)
        for gate in reversed(gates):
            work = trace.take(batch * 1536 * 4)
            trace.drop(gate, work)
        trace.drop(slope, output, inputs)
    return trace


def storm(operations=100000, cap=16 * GIB, seed=4, most=GIB):
    """Sizes of 1 B to `most`, all alike likely; 73 of 100 operations allocate, where natively there is room below the cap."""
    trace, dice, live, used = Trace(), random.Random(seed), [], 0
    granules = lambda size: -(-size // (2 * MIB)) * 2 * MIB  # noqa: E731  (what the driver takes for it)
    for _ in range(operations):
        size = dice.randint(1, most)
        if dice.random() < 0.73 or not live:
            if used + granules(size) <= cap:
                used += granules(size)
                live.append(trace.take(size))
        else:
            i = dice.randrange(len(live))
            live[i], live[-1] = live[-1], live[i]
            used -= granules(trace.size[live[-1]])
            trace.drop(live.pop())
    return trace


def features(images=2000, shards=3, seed=1):
    """Images of any size: temporaries of a size that does not come again, and an output that is kept until the shard is done."""
    trace, dice = Trace(), random.Random(seed)
    for _ in range(shards):
        kept = []
        for _ in range(images):
            part = dice.uniform(0.1, 1)
            image, wide = trace.take(200 * MIB * part), trace.take(600 * MIB * part)
            kept.append(trace.take((0.5 + 2.5 * part) * MIB))
            trace.drop(image)
            pooled = trace.take(100 * MIB * part)
            trace.drop(wide, pooled)
        trace.drop(*kept)
    return trace


def replaced(count=200, operations=2000, seed=1):
    """So many blocks of 12 to 30 MiB, no two alike; again and again a random one makes place for another."""
    trace, dice, kept = Trace(), random.Random(seed), []
    for _ in range(operations):
        kept.append(trace.take(dice.uniform(12, 30) * MIB))
        if len(kept) > count:
            trace.drop(kept.pop(dice.randrange(count)))
    return trace


def results(layers=1, wide=1, kept=300, steps=1500, seed=1):
    """Results of 4 to 60 MiB, as keys and values of prompts or hidden states of texts, a random one of which goes for each new one. Each
    layer that makes one takes as many bytes twice, and `wide` times as many, for a moment."""
    trace, dice, store = Trace(), random.Random(seed), []
    for _ in range(40):
        trace.take(32 * MIB)
    for _ in range(steps):
        size = dice.randint(4 * MIB, 60 * MIB) // 8192 * 8192
        for _ in range(layers):
            trace.drop(trace.take(size), trace.take(size))
            trace.drop(trace.take(wide * size))
        store.append(trace.take(size))
        if len(store) > kept:
            trace.drop(store.pop(dice.randrange(len(store))))
    return trace


def kept_prompts(layers=16, most=6 * GIB, count=100, seed=1):
    """A decoder's keys and values of prompts, a block each a layer, until they are `most` bytes; then the oldest or a random one goes. Beside
    them what each layer takes for a moment. All sizes of a prompt are new, and come again in its next layers."""
    trace, dice, kept, held = Trace(), random.Random(seed), [], 0
    for _ in range(layers):
        for weight in (32, 8, 8, 32, 112, 112, 112):
            trace.take(weight * MIB)
    for _ in range(count):
        length = 20 + min(32000, int(2500 * dice.lognormvariate(0, 0.9)))
        wide, narrow, deep = 8192 * length, 2048 * length, 28672 * length
        state, cache = trace.take(wide), []
        for _ in range(layers):
            hidden, query, key, value = trace.take(wide), trace.take(wide), trace.take(narrow), trace.take(narrow)
            trace.drop(hidden)
            turned = trace.take(wide)
            cache += [trace.take(narrow), value]
            trace.drop(query, key)
            seen = trace.take(wide)
            trace.drop(turned)
            out = trace.take(wide)
            trace.drop(seen)
            added = trace.take(wide)
            trace.drop(state, out)
            hidden, gate, up, active = trace.take(wide), trace.take(deep), trace.take(deep), trace.take(deep)
            trace.drop(gate)
            product = trace.take(deep)
            trace.drop(active, up, hidden)
            down = trace.take(wide)
            trace.drop(product)
            state = trace.take(wide)
            trace.drop(down, added)
        trace.drop(state)
        kept.append((2 * narrow * layers, cache))
        held += 2 * narrow * layers
        while held > most:
            size, gone = kept.pop(0 if dice.random() < 0.5 else dice.randrange(len(kept)))
            held -= size
            trace.drop(*gone)
    return trace


def sessions(layers=10, places=30, turns=800, width=5120, seed=1):
    """Conversations that keep their keys and values, of 0.2 to 20 MiB a layer; a turn makes all of one's anew, a little longer."""
    trace, dice, kept = Trace(), random.Random(seed), []
    for _ in range(layers):
        for rows in (4, 3):  # weights
            trace.take(rows * width * width * 2)
    for _ in range(turns):
        if len(kept) < places:
            length = dice.randint(20, 600)
            kept.append([length, [trace.take(length * width * 2) for _ in range(2 * layers)]])
            continue
        session, more = dice.choice(kept), dice.randint(20, 300)
        session[0] += more
        for i, old in enumerate(session[1]):
            hidden, session[1][i] = trace.take(more * width * 2), trace.take(session[0] * width * 2)
            trace.drop(old, hidden)
        if session[0] > 2048:
            trace.drop(*session[1])
            kept.remove(session)
    return trace


def tenants():
    """Published: A keeps 1 GiB and frees 4; B takes 1 GiB; A's 1 GiB is freed, and A wants 1 + 4 GiB again."""
    trace = Trace()
    kept, passing = trace.take(GIB), trace.take(4 * GIB)
    trace.drop(passing)
    trace.take(GIB)
    trace.drop(kept)
    trace.take(GIB)
    trace.take(4 * GIB)
    return trace


def corners():
    """Blocks across the ends of chunks, every second one freed: of what is left no call of the driver makes one of 6 MiB."""
    trace = Trace()
    blocks = [trace.take(3 * MIB // 2)] + [trace.take(2 * MIB) for _ in range(5)]
    trace.drop(*blocks[::2])
    trace.take(6 * MIB)
    return trace


ALL = {"decoder": decoder, "prompts": prompts, "unet": unet, "lstm": lstm}
