/* Executable graphs: which of them do something that the host may see without asking the driver. */
#ifndef CACHALOT_INTERPOSE_STREAM_GRAPH_CONTENTS_H
#define CACHALOT_INTERPOSE_STREAM_GRAPH_CONTENTS_H

#include "interpose/resolve/cuda_api.h"

/* Looks at `graph`, which `exec` was made of or updated from, and remembers what it has. */
void graphs_made(CUgraphExec exec, CUgraph graph);

/* Before it is destroyed, and when some node was given other parameters: it is unknown. */
void graphs_forget(CUgraphExec exec);

/* Has `exec` a node that runs on the host or may write to its memory? Yes if it is unknown. */
int graphs_to_host(CUgraphExec exec);

#endif
