/* What two processes with us in front tell each other. All of it comes from outside: nothing in it
 * is believed. */
#ifndef CACHALOT_INTERPOSE_MEMORY_IPC_WIRE_H
#define CACHALOT_INTERPOSE_MEMORY_IPC_WIRE_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define IPC_MAGIC "cachalo2" /* the last one: version */

/* In place of a CUipcMemHandle. Whoever has it may have the memory, as natively. */
struct ipc_handle {
    char magic[8];
    uint32_t pid, namespace; /* of pids */
    uint64_t start_ticks;
    uint64_t door, secret; /* the door is in the socket's name, which all may see */
    uint64_t address, name, bytes;
};
_Static_assert(sizeof(struct ipc_handle) == 64, "as large as the driver's");

/* The answer to a handle; then a message for each piece of that memory, with its size (uint64_t) and
 * file descriptor, from the lowest on, until all `bytes` are there. No answer: no such block. The block
 * begins at `offset` of them. */
struct ipc_answer {
    uint64_t offset, bytes;
};

/* An abstract name: nothing is left of it when the process ends, however it does. */
socklen_t ipc_address(struct sockaddr_un *address, uint64_t door);

/* Is the other end of this socket a process of our user, and `pid` (0: any)? */
int ipc_peer_is(int socket, uint32_t pid);

/* Did this process make that handle? */
int ipc_is_own(const struct ipc_handle *handle);

#endif
