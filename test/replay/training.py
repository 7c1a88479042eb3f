"""Traces of training as PyTorch does it, step by step (workloads.py): sizes come again, and the first step differs from the others."""

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
        turned = trace.take(sizes[0])
        trace.drop(turned)
        kept += [normed, *inside]
    return trace.take(width)


def backward(trace, width, weights):
    """Of a layer, whose forward pass is made again. Returns the weights' gradients."""
    kept = []
    out, gradient = layer(trace, kept, width), trace.take(width)
    gradients = []
    for size in reversed(weights):
        passing = trace.take(width)
        gradients.append(trace.take(size))
        trace.drop(passing, kept.pop())
    trace.drop(out, gradient, *kept)
    return gradients


def optimizer(trace, sizes, states):
    """A step of one that makes its states in the first, with what it takes for a group of weights for a moment."""
    for at in range(0, len(sizes), 8):
        if len(states) < 2 * len(sizes):
            states += [trace.take(size) for size in sizes[at:at + 8] for _ in range(2)]
        passing = [trace.take(size) for size in sizes[at:at + 8]]
        trace.drop(*passing)


def decoder_with_checkpoints(layers=16, steps=4, width=4 * MIB, logits=125 * MIB):
    """A language model, of which each layer keeps its input alone, and has the rest made again."""
    trace, states, weights = Trace(), [], [size * MIB for size in WEIGHTS]
    sizes = [62.5 * MIB, *weights * layers, 62.5 * MIB]
    for size in sizes:
        trace.take(size)
    for _ in range(steps):
        inputs, passing = [trace.take(width)], []
        for _ in range(layers):
            inputs.append(layer(trace, passing, width))
            trace.drop(*passing)
            passing.clear()
        narrow, wide = trace.take(logits), trace.take(2 * logits)
        softmax = trace.take(2 * logits)
        trace.drop(wide)
        gradient = trace.take(logits)
        trace.drop(softmax, narrow)
        gradients = [trace.take(sizes[-1])]
        trace.drop(gradient)
        for _ in range(layers):
            gradients += backward(trace, width, weights)
            trace.drop(inputs.pop())
        gradients.append(trace.take(sizes[0]))
        trace.drop(*inputs)
        optimizer(trace, sizes, states)
        trace.drop(*gradients)
    return trace
