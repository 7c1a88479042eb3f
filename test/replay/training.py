"""Traces of language models in training as PyTorch does it (workloads.py): sizes come again, and the first step differs from the others."""

import random

from workloads import MIB, Trace

WEIGHTS = (2, 0.5, 0.5, 2, 5.5, 5.5, 5.5)  # MiB, of a layer: query, key, value, output, gate, up, down


def layer(trace, kept, width):
    """One of a decoder; what its backward pass wants is added to `kept`. Returns its output."""
    for sizes in ((width, width / 4, width / 4, width), (2.75 * width, 2.75 * width, 2.75 * width)):
        wide, square = trace.take(2 * width), trace.take(2 * width)
        trace.drop(square)
        normed = trace.take(width)
        trace.drop(wide)
        inside = [trace.take(size) for size in sizes]
        trace.drop(trace.take(sizes[0]))
        kept += [normed, *inside]
    return trace.take(width)


def loss(trace, size):
    """Of the logits, in half and in full precision. Returns their gradient."""
    narrow, wide = trace.take(size), trace.take(2 * size)
    softmax = trace.take(2 * size)
    trace.drop(wide)
    gradient = trace.take(size)
    trace.drop(softmax, narrow)
    return gradient


def optimizer(trace, sizes, states):
    """A step of one that makes its states in the first, with what it takes for a group of weights for a moment."""
    for at in range(0, len(sizes), 8):
        if len(states) < 2 * len(sizes):
            states += [trace.take(size) for size in sizes[at:at + 8] for _ in range(2)]
        trace.drop(*[trace.take(size) for size in sizes[at:at + 8]])


class Model:
    """Its weights are there. `checkpoints`: each layer keeps its input alone, and has the rest made again."""

    def __init__(self, layers, scale, embedding, copies, checkpoints):
        self.trace, self.layers, self.checkpoints = Trace(), layers, checkpoints
        self.weights = [size * scale * MIB for size in WEIGHTS]
        self.sizes, self.gradients = [embedding, *self.weights * layers, embedding], []
        for size in self.sizes + [2 * size for size in self.sizes if copies]:
            self.trace.take(size)

    def add_gradient(self, size, is_first):
        """Adds to the one that is there, which it is in the first pass of a step."""
        gradient = self.trace.take(size)
        if is_first:
            self.gradients.append(gradient)
        else:
            self.trace.drop(gradient)

    def forward(self, width, keeps):
        """(what each layer keeps, the states between them)."""
        kept, states = [], [self.trace.take(width)]
        for _ in range(self.layers):
            inside = []
            states.append(layer(self.trace, inside, width))
            if not keeps:
                self.trace.drop(*inside)
            kept.append(inside if keeps else [])
        return kept, states

    def train(self, width, logits):
        """A forward pass and a backward pass."""
        trace, first = self.trace, not self.gradients
        kept, states = self.forward(width, not self.checkpoints)
        gradient = loss(trace, logits)
        self.add_gradient(self.sizes[-1], first)
        trace.drop(gradient)
        for inside in reversed(kept):
            if self.checkpoints:
                trace.drop(layer(trace, inside, width))
            gradient = trace.take(width)
            for size in reversed(self.weights):
                passing = trace.take(width)
                self.add_gradient(size, first)
                trace.drop(passing, inside.pop())
            trace.drop(gradient, *inside, states.pop())
        self.add_gradient(self.sizes[0], first)
        trace.drop(*states)

    def evaluate(self, width, logits):
        _, states = self.forward(width, False)
        narrow, wide = self.trace.take(logits), self.trace.take(2 * logits)
        self.trace.drop(narrow, wide, *states)


def language_model(layers=16, steps=4, width=4 * MIB, logits=125 * MIB, scale=1, embedding=62.5 * MIB, copies=False, checkpoints=True,
                   passes=1, shortest=1, often=0, seed=1):
    """`passes` of texts of any length for a step of the optimizer, the shortest of them that part of the longest; evaluated `often` or never.
    copies: of the weights, in full precision."""
    dice, model, states = random.Random(seed), Model(layers, scale, embedding, copies, checkpoints), []
    for step in range(steps):
        for _ in range(passes):
            length = int(256 * dice.uniform(shortest, 1)) / 256
            model.train(length * width, length * logits)
        optimizer(model.trace, model.sizes, states)
        model.trace.drop(*model.gradients)
        model.gradients.clear()
        for _ in range(3 if often and step % often == often - 1 else 0):
            length = 2 * dice.uniform(shortest, 1)
            model.evaluate(int(length * width), int(length * logits))
    return model.trace


def any_language_model(seed):
    dice = random.Random(seed)
    return language_model(dice.choice((6, 12, 16, 24, 32)), dice.choice((6, 10, 16)), dice.choice((1, 2, 4, 8, 16)) * MIB, dice.choice((60, 125, 250, 500, 1000)) * MIB,
                          dice.choice((0.3, 0.5, 1, 2, 4, 8)), dice.choice((10, 40, 62.5, 150, 300)) * MIB, dice.random() < 0.4, dice.random() < 0.6,
                          dice.choice((1, 1, 1, 2, 4)), dice.choice((0.2, 0.5, 0.9, 1, 1, 1)), dice.choice((0, 0, 0, 2, 5)), seed)
