
"use strict";
/* The map: every segment a bar, its blocks in their places; one scale for each pool. */

class MemoryMap {
    constructor(canvas, detail, style) {
        Object.assign(this, {canvas, detail, style, bars: []});
        canvas.addEventListener("mousemove", event => this.point(event.offsetX, event.offsetY));
        canvas.addEventListener("mouseleave", () => this.say(""));
    }

    say(text) {
        this.detail.textContent = text;
    }

    /* Bars of one pool, packed into rows of equal scale. Returns where the next pool may begin. */
    layOut(title, segments, top, width) {
        if (!segments.length)
            return top;
        const total = segments.reduce((sum, s) => sum + s.size, 0), most = Math.max(...segments.map(s => s.size));
        const perRow = Math.max(most, total / Math.min(24, Math.ceil(Math.sqrt(segments.length))));
        const height = 22, gap = 3, scale = (width - 1) / perRow;
        this.titles.push({text: `${title}: ${bytesText(total)} in ${segments.length} segment${segments.length > 1 ? "s" : ""}; ` +
            `a full row is ${bytesText(perRow)}`, y: top + 12});
        let x = 0, y = top + 20;
        for (const segment of segments) {
            const wide = Math.max(2, segment.size * scale);
            if (x > 0 && x + wide > width + .5) {
                x = 0;
                y += height + gap;
            }
            this.bars.push({...segment, x, y, wide: wide - (wide > 6 ? 2 : 1), height});
            x += wide;
        }
        return y + height + 18;
    }

    draw(state, sites, hasTime) {
        Object.assign(this, {bars: [], titles: [], sites, hasTime});
        const segments = [...state.segments].map(([address, s]) => ({address, ...s}))
            .sort((a, b) => b.size - a.size || a.address - b.address);
        const width = this.canvas.parentElement.clientWidth;
        let bottom = this.layOut("Large pool", segments.filter(s => s.pool === "large"), 0, width);
        bottom = this.layOut("Small pool", segments.filter(s => s.pool !== "large"), bottom, width);
        const outside = this.place(state.blocks), size = outside.reduce((sum, b) => sum + b.size, 0);
        for (const text of [!this.bars.length && "No segments at this moment.",
            state.untold > 0 && `${bytesText(state.untold)} more were reserved; where they lay is not told.`,
            size > 0 && `${outside.length} block${outside.length > 1 ? "s" : ""} of ${bytesText(size)} lay where nothing is known to have been reserved.`])
            if (text)
                this.titles.push({text, y: (bottom += 18) - 4});
        this.paint(width, Math.max(bottom, 24));
        this.say("");
    }

    /* Gives each bar its blocks, in the order of their addresses. Returns those that lie in none. */
    place(blocks) {
        const bars = [...this.bars].sort((a, b) => a.address - b.address);
        const sorted = [...blocks].map(([address, b]) => ({address, ...b})).sort((a, b) => a.address - b.address);
        const outside = [];
        let at = 0;
        for (const bar of bars)
            bar.blocks = [];
        for (const block of sorted) {
            while (at < bars.length && bars[at].address + bars[at].size <= block.address)
                at++;
            const into = at < bars.length && block.address >= bars[at].address ? bars[at].blocks : outside;
            into.push(block);
        }
        return outside;
    }

    paint(width, height) {
        const ratio = window.devicePixelRatio || 1, context = this.canvas.getContext("2d");
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
        this.canvas.style.height = height + "px";
        context.scale(ratio, ratio);
        context.font = "13px system-ui, sans-serif";
        context.fillStyle = this.style("quiet");
        for (const title of this.titles)
            context.fillText(title.text, 0, title.y);
        for (const bar of this.bars)
            this.paintBar(context, bar);
    }

    paintBar(context, bar) {
        context.fillStyle = this.style("line");
        context.fillRect(bar.x, bar.y, bar.wide, bar.height);
        const scale = bar.wide / bar.size, shades = ["allocated", "allocated-2", "allocated-3"].map(this.style);
        const pending = this.style("active");
        bar.blocks.forEach((block, i) => {
            const x = bar.x + (block.address - bar.address) * scale, wide = block.size * scale;
            context.fillStyle = block.state === "pending" ? pending : shades[i % 3];
            context.fillRect(x, bar.y, Math.max(.5, wide > 4 ? wide - 1 : wide), bar.height);
        });
    }

    point(x, y) {
        const bar = this.bars.find(b => x >= b.x && x < b.x + b.wide + 2 && y >= b.y && y < b.y + b.height);
        if (!bar)
            return this.say("");
        const address = bar.address + Math.min(bar.size - 1, (x - bar.x) / bar.wide * bar.size);
        const block = bar.blocks.find(b => address >= b.address && address < b.address + b.size);
        const used = bar.blocks.reduce((sum, b) => sum + b.size, 0);
        const segment = `Segment 0x${bar.address.toString(16)} of ${bytesText(bar.size)}, ${bytesText(bar.size - used)} idle in it. `;
        this.say(segment + (block ? this.blockText(block) : this.gapText(bar, address)));
    }

    blockText(block) {
        const state = block.state === "pending" ? "freed, waiting for work on the GPU" : "in use";
        const since = block.time === null ? "" : `, since ${timeText(block.time, this.hasTime)}`;
        const site = block.site === null ? [] : this.sites[block.site] || [];
        return `Block 0x${block.address.toString(16)} of ${bytesText(block.size)} (${block.requested.toLocaleString("en")} bytes asked for), ` +
            state + since + (site.length ? `, taken at ${site.join(" < ")}` : "");
    }

    gapText(bar, address) {
        const before = bar.blocks.filter(b => b.address <= address).pop(), after = bar.blocks.find(b => b.address > address);
        const begin = before ? before.address + before.size : bar.address, end = after ? after.address : bar.address + bar.size;
        return `Reusable: ${bytesText(end - begin)} in one piece.`;
    }
}
