
"use strict";
/* What happened on a device: columns of the page's data as levels over time, and as the memory's state at any moment. */

const SMALL_SEGMENT = 2 << 20;

function bytesText(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0, value = bytes;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) {
        value /= 1024;
        unit++;
    }
    return (unit === 0 || Number.isInteger(value) ? value : value.toPrecision(value >= 1000 ? 4 : 3)) + " " + units[unit];
}

function timeText(seconds, hasTime) {
    if (!hasTime)
        return "operation " + Math.round(seconds).toLocaleString("en");
    if (seconds < 1)
        return (seconds * 1000).toPrecision(3) + " ms";
    return seconds < 120 ? seconds.toFixed(seconds < 10 ? 3 : 2) + " s" : (seconds / 60).toFixed(1) + " min";
}

/* Ranges as their edges: how many more begin than end there. Below 0 the range goes; what touches is one. */
function shift(edges, address, size) {
    for (const [edge, by] of [[address, Math.sign(size)], [address + Math.abs(size), -Math.sign(size)]]) {
        const now = (edges.get(edge) || 0) + by;
        if (now)
            edges.set(edge, now);
        else
            edges.delete(edge);
    }
}

function runsOf(edges) {
    const runs = new Map();
    let depth = 0, begin = 0;
    for (const [edge, by] of [...edges].sort((a, b) => a[0] - b[0])) {
        if (!depth)
            begin = edge;
        depth += by;
        if (!depth)
            runs.set(begin, {size: edge - begin, pool: "large"});
    }
    return runs;
}

class History {
    /* actions: [name, [what it adds to allocated, active and reserved, in its size]], as the columns number them. */
    constructor(device, hasTime, actions) {
        this.actions = actions;
        this.timeOf = time => hasTime ? time / 1e9 : time;
        const columns = device.events;
        this.count = columns.time.length;
        this.action = columns.action;
        this.time = new Float64Array(this.count);
        this.address = new Float64Array(this.count);
        let now = columns.begin;
        for (let i = 0; i < this.count; i++) {
            now += columns.time[i];
            this.time[i] = this.timeOf(now);
            this.address[i] = columns.base + columns.address[i];
        }
        this.size = columns.size;
        this.waste = columns.waste;
        this.site = columns.site;
        this.segments = device.segments;
        this.steps = device.steps;
        this.levels = this.cumulate(device.levels);
        if (this.segments)
            this.first = this.undoAll();
    }

    /* Allocated, active and reserved after each event; [0] is before the first. */
    cumulate(begin) {
        const levels = begin.map(() => new Float64Array(this.count + 1));
        levels.forEach((level, k) => {
            let now = level[0] = begin[k];
            for (let i = 0; i < this.count; i++)
                level[i + 1] = now += this.actions[this.action[i]][1][k] * this.size[i];
        });
        return levels;
    }

    /* A level as the chart wants it, up to the time `end`. */
    points(level, end) {
        const points = this.count ? [{x: this.time[0], y: level[0]}] : [];
        for (let i = 0; i < this.count; i++)
            points.push({x: this.time[i], y: level[i + 1]});
        points.push({x: end, y: level[this.count]});
        return points;
    }

    /* The index after whose event `level` is highest. */
    peak(level) {
        let best = 0;
        for (let i = 1; i < level.length; i++)
            if (level[i] > level[best])
                best = i;
        return best;
    }

    /* The index after whose event most was reserved, and of those where most was allocated. */
    top() {
        const [allocated, , reserved] = this.levels;
        let best = 0;
        for (let i = 1; i <= this.count; i++)
            if (reserved[i] > reserved[best] || (reserved[i] === reserved[best] && allocated[i] > allocated[best]))
                best = i;
        return best;
    }

    /* How many events have happened until `time`. */
    indexAt(time) {
        let low = 0, high = this.count;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (this.time[middle] <= time)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    /* What was there before the first event, from what was there after the last. */
    undoAll() {
        const segments = new Map(), blocks = new Map(), mapped = new Map();
        for (const segment of this.segments) {
            if (segment.mapped)
                shift(mapped, segment.address, segment.size);
            else
                segments.set(segment.address, {size: segment.size, pool: segment.pool});
            for (const [address, size, requested, state, site] of segment.blocks)
                if (state !== "inactive")
                    blocks.set(address, {size, requested, state, site, time: null});
        }
        for (let i = this.count - 1; i >= 0; i--) {
            const [action] = this.actions[this.action[i]], address = this.address[i], size = this.size[i];
            if (action === "alloc")
                blocks.delete(address);
            else if (action === "free" || action === "free_requested")
                blocks.set(address, {size, requested: size - this.waste[i], state: "active", site: null, time: null});
            else if (action === "free_completed")
                blocks.set(address, {size, requested: size - this.waste[i], state: "pending", site: null, time: null});
            else if (action === "segment_alloc")
                segments.delete(address);
            else if (action === "segment_free")
                segments.set(address, {size, pool: size <= SMALL_SEGMENT ? "small" : "large"});
        }
        for (const [, address, size] of this.steps)
            shift(mapped, address, -size);
        return {segments, blocks, mapped};
    }

    /* Segments and blocks after `index` events; `untold` bytes lie nobody knows where. */
    stateAt(index) {
        const segments = new Map(this.first.segments), blocks = new Map(this.first.blocks), mapped = new Map(this.first.mapped);
        for (const [before, address, size] of this.steps)
            if (before < index || index === this.count)
                shift(mapped, address, size);
        for (let i = 0; i < index; i++) {
            const [action] = this.actions[this.action[i]], address = this.address[i], size = this.size[i];
            if (action === "alloc")
                blocks.set(address, {size, requested: size - this.waste[i], state: "active", site: this.site[i], time: this.time[i]});
            else if (action === "free" || action === "free_completed")
                blocks.delete(address);
            else if (action === "free_requested" && blocks.has(address))
                blocks.set(address, {...blocks.get(address), state: "pending"});
            else if (action === "segment_alloc")
                segments.set(address, {size, pool: size <= SMALL_SEGMENT ? "small" : "large"});
            else if (action === "segment_free")
                segments.delete(address);
        }
        runsOf(mapped).forEach((run, address) => segments.set(address, run));
        const known = [...segments.values()].reduce((sum, s) => sum + s.size, 0);
        return {segments, blocks, untold: this.levels[2][index] - known};
    }
}
