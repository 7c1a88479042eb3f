
"use strict";
/* Who held memory: an icicle. Each bar is a line of code, as wide as what was asked for below it; callers stand above what they called.
 * A click, or Enter, on a bar makes it the whole width. */

const LEAST_SHARE = 0.002, LEVELS_MOST = 40;

/* The tree of stacks that are given outermost first. Children are sorted by size. */
function treeOf(rows, texts) {
    const root = {text: "all", bytes: 0, children: new Map(), up: null};
    for (const [bytes, , stack] of rows) {
        let node = root;
        node.bytes += bytes;
        for (const place of stack.slice(-LEVELS_MOST)) {
            const text = texts[place] ?? "unknown";
            if (!node.children.has(text))
                node.children.set(text, {text, bytes: 0, children: new Map(), up: node});
            node = node.children.get(text);
            node.bytes += bytes;
        }
    }
    return root;
}

class Holders {
    constructor(box, path, detail) {
        Object.assign(this, {box, path, detail, root: null, shown: null});
    }

    draw(rows, texts) {
        this.error = Math.sqrt(rows.reduce((sum, [, error]) => sum + error ** 2, 0));
        this.show(this.root = treeOf(rows, texts));
    }

    words(node) {
        const error = this.error ? ` ± ${bytesText(Math.round(this.error))} in all` : "";
        return `${node.text}: ${bytesText(node.bytes)}, ${(100 * node.bytes / Math.max(1, this.root.bytes)).toFixed(1)} %${error}`;
    }

    bar(node, left, width, level) {
        const made = document.createElement("button");
        made.type = "button";
        made.textContent = made.title = node.text;
        made.style.left = `${100 * left}%`;
        made.style.width = `${100 * width}%`;
        made.style.top = `${1.5 * level}rem`;
        made.setAttribute("aria-label", this.words(node));
        made.addEventListener("click", () => this.show(node));
        for (const name of ["mouseenter", "focus"])
            made.addEventListener(name, () => this.detail.textContent = this.words(node));
        return made;
    }

    /* The bars at and below a node. Bars too narrow to be seen are left out with all below them. */
    barsOf(node, left, width, level, made) {
        made.push(this.bar(node, left, width, level));
        let deepest = level;
        for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
            const share = width * child.bytes / Math.max(1, node.bytes);
            if (share >= LEAST_SHARE)
                deepest = Math.max(deepest, this.barsOf(child, left, share, level + 1, made));
            left += share;
        }
        return deepest;
    }

    show(node) {
        this.shown = node;
        const made = [], deepest = this.barsOf(node, 0, 1, 0, made);
        this.box.style.height = `${1.5 * (deepest + 1)}rem`;
        this.box.replaceChildren(...made);
        this.detail.textContent = this.words(node);
        const callers = [];
        for (let up = node.up; up; up = up.up)
            callers.unshift(up);
        this.path.replaceChildren(...callers.map(up => {
            const button = document.createElement("button");
            button.type = "button";
            button.textContent = up.text;
            button.addEventListener("click", () => this.show(up));
            return button;
        }));
    }
}
