"use strict";
/* node trace_processor.js FOLDER: runs the WebAssembly build of Perfetto's trace processor that lies in FOLDER, in the
 * surroundings of a web worker. Requests come from standard input, and responses go to standard output; both are messages
 * of TraceProcessorRpcStream. */
const fs = require("fs"), path = require("path"), vm = require("vm");
const folder = process.argv[2];

process.on("uncaughtException", error => { /* not with the source line, which is all of the bundle */
    console.error(String(error.message || error).slice(0, 500));
    process.exit(1);
});

class XMLHttpRequest {
    open(method, url) {
        this.url = url;
    }

    send() {
        this.response = fs.readFileSync(path.join(folder, path.basename(this.url)));
    }
}

const port = {postMessage: data => fs.writeSync(1, Buffer.from(data))};
const self = {location: {href: "http://localhost/"}};
/* The context brings its own WebAssembly: one of another realm throws errors that the bundle does not know. */
const context = vm.createContext({self, location: self.location, WorkerGlobalScope: Object, XMLHttpRequest, TextDecoder, performance,
                                  console: {log() {}, warn() {}, error: console.error}});
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), context);
self.onmessage({data: port});
const ask = vm.runInContext("(port, data) => port.onmessage({data: new Uint8Array(data)})", context);
setImmediate(() => ask(port, fs.readFileSync(0))); /* after the module's promises */
