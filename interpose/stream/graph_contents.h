/* Executable graphs: which of them have effects that the host may see without asking the driver. */
#ifndef CACHALOT_INTERPOSE_STREAM_GRAPH_CONTENTS_H
#define CACHALOT_INTERPOSE_STREAM_GRAPH_CONTENTS_H

#include "interpose/resolve/cuda_api.h"
#include "stats/os/direct.h"

/* Examines `graph`, from which `exec` was made or updated, and remembers the answer. */
void graphs_made(CUgraphExec exec, CUgraph graph);

/* Called before `exec` is destroyed, and when a node got other parameters: `exec` is unknown
 * then. */
void graphs_forget(CUgraphExec exec);

/* Does `exec` have a node that runs on the host or may write to its memory? 1 if `exec` is
 * unknown. */
DIRECT int graphs_to_host(CUgraphExec exec);

#endif
