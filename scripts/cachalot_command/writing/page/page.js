
"use strict";
/* The page: charts, map and tables of one device at a time. Texts of the report only ever become text nodes. */

const page = JSON.parse(document.getElementById("data").textContent);
const LEVELS = [["Allocated", "allocated"], ["Active", "active"], ["Reserved", "reserved"]];
const OOMS_SHOWN = 5;
const charts = {};
let history = null, device = null, map = null, holders = null, moment = 0, drag = null;

const at = id => document.getElementById(id);
const style = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function element(tag, text, className) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className)
        made.className = className;
    return made;
}

/* A text in which `this` is code. */
function prose(tag, text) {
    const made = document.createElement(tag);
    text.split("`").forEach((part, i) => made.append(i % 2 ? element("code", part) : part));
    return made;
}

function fill(id, children) {
    at(id).replaceChildren(...children);
}

/* A round step for a scale of bytes: a power of two. */
function byteScale(most) {
    const step = Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(1, most) / 8)));
    return {stepSize: step, max: Math.ceil(most * 1.04 / step) * step};
}

/* A size as a label of an axis: not rounded, because the label stands where the value is. */
function exactBytes(bytes) {
    const [value, unit] = bytesText(bytes).split(" ");
    return Number((bytes / 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].indexOf(unit)).toFixed(6)) + " " + (unit ?? value);
}

/* Labels of an axis at round values only: Chart.js puts some at the ends, and rounds what it writes there. */
function roundTicks(scale) {
    const range = scale.max - scale.min, rough = range / Math.max(2, Math.floor((scale.right - scale.left) / 80));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max([1, 2, 5, 10].find(times => times * power >= rough * .999) * power, page.hasTime ? 0 : 1);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    scale.ticks = [];
    for (let i = Math.ceil(scale.min / step - 1e-9); i * step <= scale.max + step * 1e-9; i++)
        scale.ticks.push({value: i * step, label: (i * step || 0).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits})});
}

function axis(extra) {
    return {grid: {color: style("line")}, border: {color: style("line")}, ...extra,
        ticks: {color: style("quiet"), maxRotation: 0, ...extra.ticks},
        title: {display: Boolean(extra.name), text: extra.name, color: style("quiet")}};
}

/* From the first event to the last, or to the last time that memory ran out: that may be noted a little later. */
function wholeTime() {
    const ooms = device.ooms.map(oom => history.timeOf(oom.time));
    return [history.time[0], Math.max(history.time[history.count - 1], history.time[0] + 1e-9, ...ooms)];
}

/* Moments worth a line in the chart: the peaks, out of memory, and the one that the map shows. */
function marks() {
    const found = [];
    if (history.count)
        for (const [k, name] of [[2, "peak reserved"], [0, "peak allocated"]]) {
            const i = history.peak(history.levels[k]);
            if (history.levels[k][i] > 0)
                found.push({x: history.time[Math.max(0, i - 1)], text: `${name} ${bytesText(history.levels[k][i])}`, color: "quiet", dash: [5, 4]});
        }
    for (const moment of device.ooms)
        found.push({x: history.timeOf(moment.time), text: "out of memory", color: "alarm", dash: []});
    return found;
}

function drawLine(chart, mark, row) {
    const {ctx, chartArea, scales} = chart, x = scales.x.getPixelForValue(mark.x);
    if (!(x >= chartArea.left - 1 && x <= chartArea.right + 1))
        return;
    ctx.strokeStyle = ctx.fillStyle = style(mark.color);
    ctx.setLineDash(mark.dash);
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    ctx.moveTo(x, chartArea.top - (mark.text ? 4 : 0));
    ctx.lineTo(x, chartArea.bottom);
    ctx.stroke();
    if (row === null)
        return;
    ctx.font = "12px system-ui, sans-serif";
    ctx.textAlign = x > chartArea.right - 150 ? "right" : "left";
    ctx.fillText(mark.text, x + (ctx.textAlign === "right" ? -5 : 5), chartArea.top - 40 + 14 * row);
}

const marker = {
    id: "marker",
    afterDatasetsDraw(chart) {
        if (!chart.marks)
            return;
        const {ctx, chartArea} = chart;
        ctx.save();
        let alarms = 0;
        chart.marks.forEach((mark, i) => drawLine(chart, mark, mark.color !== "alarm" ? i : alarms++ ? null : 2));
        if (history.first && history.count) {
            const x = moment ? history.time[moment - 1] : history.time[0];
            drawLine(chart, {x, color: "moment", dash: [2, 2]}, null);
        }
        if (drag && drag.to !== null) {
            ctx.fillStyle = style("moment") + "33";
            ctx.fillRect(Math.min(drag.from, drag.to), chartArea.top, Math.abs(drag.to - drag.from), chartArea.height);
        }
        ctx.restore();
    },
};

function dataset([label, name], k) {
    return {label, data: history.points(history.levels[k], wholeTime()[1]), borderColor: style(name), backgroundColor: style(name) + (k === 1 ? "00" : "2e"),
        borderWidth: k === 1 ? 1.2 : 1.8, fill: k === 1 ? false : "origin", stepped: true, pointRadius: 0, pointHitRadius: 0};
}

function drawTimeline() {
    charts.timeline?.destroy();
    const allocated = history.levels[0];
    const shown = LEVELS.map(dataset).filter((_, k) => history.levels[k].some((v, i) => k === 1 ? v !== allocated[i] : v > 0));
    const most = Math.max(1, ...history.levels.map(level => level.reduce((a, b) => Math.max(a, b), 0)));
    const {stepSize, max} = byteScale(most);
    const lines = marks();
    charts.timeline = new Chart(at("timeline"), {
        type: "line", data: {datasets: shown}, plugins: [marker],
        options: {
            animation: false, parsing: false, normalized: true, maintainAspectRatio: false, layout: {padding: {top: 6}},
            interaction: {mode: "index", intersect: false, axis: "x"},
            scales: {
                x: axis({type: "linear", name: page.hasTime ? "seconds since the program began" : "operation",
                    min: wholeTime()[0], max: wholeTime()[1], afterBuildTicks: roundTicks,
                    ticks: {callback: (value, i, ticks) => ticks[i].label, autoSkip: false}}),
                y: axis({min: 0, max, ticks: {stepSize, callback: exactBytes}}),
            },
            plugins: {
                decimation: {enabled: true, algorithm: "min-max"},
                legend: {position: "bottom", labels: {color: style("text"), boxWidth: 14}},
                title: {display: true, text: "", padding: {top: 14, bottom: 14}},
                tooltip: {animation: false, callbacks: {
                    title: items => items.length ? timeText(items[0].parsed.x, page.hasTime) : "",
                    label: item => ` ${item.dataset.label}: ${bytesText(item.parsed.y)}`}},
            },
        },
    });
    charts.timeline.marks = lines;
    charts.timeline.draw();
}

/* The series that every report has. A point is the most, or the least free, until the next one. */
function drawLife() {
    const life = device.life;
    at("life-section").hidden = !life;
    charts.life?.destroy();
    if (!life)
        return;
    const [allocated, reserved, free] = life.levels, known = free.filter(bytes => bytes !== null);
    const points = values => [...values.map((y, i) => ({x: life.ms[i] / 1000, y})), {x: life.end / 1000, y: values.at(-1)}];
    const line = (label, values, color, fill) => ({label, data: points(values), borderColor: style(color), backgroundColor: style(color) + "2e",
        borderWidth: 1.6, fill: fill && "origin", stepped: true, pointRadius: 0, pointHitRadius: 0, spanGaps: false});
    const most = Math.max(1, ...allocated, ...reserved), {stepSize, max} = byteScale(most);
    at("life-hint").textContent = `Peaks between two points are kept: ${bytesText(Math.max(...allocated))} allocated, ` +
        `${bytesText(Math.max(...reserved))} reserved.` + (known.length ? ` Of the device, at least ${bytesText(Math.min(...known))} were free.` : "");
    charts.life = new Chart(at("life"), {
        type: "line", data: {datasets: [line("Allocated", allocated, "allocated", true), line("Reserved", reserved, "reserved", true)]},
        options: {
            animation: false, parsing: false, normalized: true, maintainAspectRatio: false,
            interaction: {mode: "index", intersect: false, axis: "x"},
            scales: {
                x: axis({type: "linear", name: "seconds since the program began", min: 0, max: life.end / 1000, afterBuildTicks: roundTicks,
                    ticks: {callback: (value, i, ticks) => ticks[i].label, autoSkip: false}}),
                y: axis({min: 0, max, ticks: {stepSize, callback: exactBytes}}),
            },
            plugins: {
                legend: {position: "bottom", labels: {color: style("text"), boxWidth: 14}},
                tooltip: {animation: false, callbacks: {
                    title: items => items.length ? timeText(items[0].parsed.x, true) : "",
                    label: item => ` ${item.dataset.label}: ${bytesText(item.parsed.y)}`,
                    footer: items => items.length && free[Math.min(items[0].dataIndex, free.length - 1)] !== null ?
                        `Free on the device: ${bytesText(free[Math.min(items[0].dataIndex, free.length - 1)])}` : ""}},
            },
        },
    });
}

function drawHolders() {
    const {rows} = device.holders.moments[at("holders-moment").value];
    holders.draw(rows, device.holders.texts);
}

function showHolders() {
    at("holders-section").hidden = !device.holders;
    if (!device.holders)
        return;
    at("holders-hint").textContent = device.holders.hint;
    fill("holders-moment", device.holders.moments.map((m, i) => Object.assign(element("option", m.name), {value: i})));
    drawHolders();
}

function zoom(from, to) {
    const x = charts.timeline.options.scales.x;
    [x.min, x.max] = from === undefined ? wholeTime() : [from, to];
    at("whole").hidden = from === undefined;
    charts.timeline.update("none");
}

/* A drag across the chart zooms in, a click shows that moment in the map. */
function listen() {
    const canvas = at("timeline"), time = pixel => charts.timeline.scales.x.getValueForPixel(pixel);
    canvas.addEventListener("mousedown", event => drag = {from: event.offsetX, to: null});
    canvas.addEventListener("mousemove", event => {
        if (!drag || (drag.to === null && Math.abs(event.offsetX - drag.from) < 5))
            return;
        drag.to = event.offsetX;
        charts.timeline.draw();
    });
    window.addEventListener("mouseup", () => {
        const done = drag;
        drag = null;
        if (done && done.to === null)
            showMoment(history.indexAt(time(done.from)));
        else if (done)
            zoom(time(Math.min(done.from, done.to)), time(Math.max(done.from, done.to)));
    });
    canvas.addEventListener("dblclick", () => zoom());
    at("whole").addEventListener("click", () => zoom());
    at("moment").addEventListener("input", event => showMoment(Number(event.target.value)));
    at("holders-moment").addEventListener("change", drawHolders);
    at("device").addEventListener("change", event => show(page.devices[event.target.value]));
    window.addEventListener("resize", () => drawMap());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(device));
}

function drawMap() {
    if (history && history.first)
        map.draw(history.stateAt(moment), device.sites ?? page.sites, page.hasTime);
}

function showMoment(index) {
    if (!history.first)
        return;
    moment = index;
    at("moment").value = index;
    const end = index === history.count ? "at the end" : "before the first event";
    at("moment-text").textContent = (index === history.top() ? "at the peak, " : "") +
        (index && index < history.count ? timeText(history.time[index - 1], page.hasTime) : end) +
        `: ${bytesText(history.levels[0][index])} allocated` +
        (history.levels[2].some(bytes => bytes > 0) ? ` of ${bytesText(history.levels[2][index])} reserved` : "");
    drawMap();
    charts.timeline?.draw();
}

function bars(id, values, name, color, options) {
    charts[id]?.destroy();
    charts[id] = new Chart(at(id), {
        type: "bar",
        data: {labels: device.histogram.map(bin => "≤ " + bytesText(bin[0])), datasets: [{label: name, data: values, backgroundColor: style(color)}]},
        options: {animation: false, maintainAspectRatio: false, plugins: {legend: {display: false}, tooltip: options.tooltip ?? {}},
            scales: {x: axis({grid: {display: false}}), y: axis(options.y)}},
    });
}

function drawSizes() {
    const live = device.histogram.map(bin => bin[3]), most = Math.max(...live, 0);
    at("sizes-section").hidden = !device.histogram.length;
    at("live-half").hidden = most === 0;
    if (!device.histogram.length)
        return;
    const counts = device.histogram.map(bin => bin[1]);
    bars("requests", counts, "Requests", "allocated", {y: Math.max(...counts) <= 100 ? {name: "requests", min: 0, ticks: {precision: 0}} : {
        name: "requests, on a logarithmic axis", type: "logarithmic", min: 0.8,
        ticks: {callback: v => Number.isInteger(Math.log10(v)) ? v.toLocaleString("en") : ""}}});
    if (most) {
        const {stepSize, max} = byteScale(most);
        bars("live", live, "Held", "active", {y: {max, ticks: {stepSize, callback: exactBytes}},
            tooltip: {callbacks: {label: item => ` ${bytesText(item.parsed.y)} in ${device.histogram[item.dataIndex][2]} blocks`}}});
    }
}

function row(cells, tag) {
    const made = document.createElement("tr");
    cells.forEach(([text, className]) => made.append(element(tag, text, className)));
    return made;
}

function fillTable(id, table) {
    const cells = row => row.map((text, i) => [text, table.kinds[i]]);
    fill(id, [row(cells(table.head), "th"), ...table.rows.map(values => row(cells(values), "td"))]);
}

function drawTable() {
    at("largest-title").textContent = device.largest.title;
    at("largest-section").hidden = !device.largest.rows.length;
    fillTable("largest", device.largest);
}

function drawHead() {
    at("title").textContent = page.title;
    document.title = page.title;
    at("facts").textContent = page.facts;
    at("footer").textContent = page.footer;
    at("choice").hidden = page.devices.length < 2;
    fill("device", page.devices.map((d, i) => Object.assign(element("option", d.label ?? `${d.index}: ${d.name}`), {value: i})));
    at("processes-section").hidden = !page.processes;
    if (page.processes)
        fillTable("processes", page.processes);
    at("warnings-section").hidden = !page.warnings.length;
    fill("warnings", page.warnings.map(text => element("li", text)));
}

function drawWords() {
    fill("tiles", device.tiles.map(([name, value, more, alarm]) => {
        const tile = element("div", "", alarm ? "tile alarm" : "tile");
        tile.append(element("span", name), element("b", value), element("span", more));
        return tile;
    }));
    fill("words", device.words.map(text => prose("li", text)));
    at("ooms-section").hidden = !device.ooms.length;
    const boxes = device.ooms.slice(0, OOMS_SHOWN).map(oom => {
        const box = element("div", "", "oom");
        box.append(element("b", oom.title), ...oom.lines.map(line => element("p", line)));
        return box;
    });
    const more = device.ooms.length - boxes.length;
    fill("ooms", more > 0 ? [...boxes, element("p", `and ${more} times more`)] : boxes);
}

function drawLegend() {
    const entry = (name, text) => {
        const box = element("i", "");
        box.style.background = style(name);
        return [box, document.createTextNode(text)];
    };
    fill("map-legend", [...entry("allocated", "in use (shades only tell neighbours apart)"),
        ...entry("active", "freed, waiting for the GPU"), ...entry("line", "reusable")]);
}

/* Everything of one device. */
function show(which) {
    device = which;
    at("facts").textContent = device.facts ?? page.facts;
    history = new History(device, page.hasTime, page.actions);
    moment = history.top();
    drawWords();
    fill("timeline-hint", [prose("span", device.timelineHint)]);
    fill("map-hint", [prose("span", device.mapHint)]);
    at("map-section").hidden = !device.mapHint;
    at("tiles").hidden = !device.tiles.length;
    for (const id of ["timeline-box", "timeline-tools"])
        at(id).hidden = !history.count;
    for (const id of ["moment-line", "map-legend", "map", "map-detail"])
        at(id).hidden = !history.first || (id === "moment-line" && !history.count);
    at("whole").hidden = true;
    if (history.count)
        drawTimeline();
    at("moment").max = history.count;
    drawLife();
    showHolders();
    drawLegend();
    showMoment(history.top());
    drawSizes();
    drawTable();
}

const begun = performance.now();
drawHead();
map = new MemoryMap(at("map"), at("map-detail"), style);
holders = new Holders(at("holders"), at("holders-path"), at("holders-detail"));
listen();
if (page.devices.length)
    show(page.devices[0]);
else
    ["tiles", "words-section", "life-section", "holders-section", "timeline-section", "map-section", "sizes-section", "largest-section"].forEach(id => at(id).hidden = true);
requestAnimationFrame(() => setTimeout(() => document.documentElement.dataset.drawnMs = Math.round(performance.now() - begun)));
