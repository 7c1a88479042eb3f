/* The messages between two processes with this library. They come from outside: every field is
 * checked before use. */
#ifndef CACHALOT_INTERPOSE_MEMORY_IPC_WIRE_H
#define CACHALOT_INTERPOSE_MEMORY_IPC_WIRE_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define IPC_MAGIC "cachalo2" /* the last character is the version */

/* In place of a CUipcMemHandle. As natively, any process with the handle may open the memory. */
struct ipc_handle {
    char magic[8];
    uint32_t pid, namespace; /* the namespace of the pid */
    uint64_t start_ticks;
    uint64_t door, secret; /* the door is part of the socket's public name */
    uint64_t address, name, bytes;
};
_Static_assert(sizeof(struct ipc_handle) == 64, "as large as the driver's");

/* The answer to a handle: the block begins at `offset` of `bytes`. A message for each piece of that
 * memory follows, from the lowest address on, with its size (uint64_t) and a file descriptor. No
 * answer: there is no such block. */
struct ipc_answer {
    uint64_t offset, bytes;
};

/* The abstract address of a door. Nothing of it is left when the process ends, however it ends. */
socklen_t ipc_address(struct sockaddr_un *address, uint64_t door);

/* Is the other end of this socket a process of our user, and of this `pid` (0: any)? */
int ipc_peer_is(int socket, uint32_t pid);

/* Did this process make the handle? */
int ipc_is_own(const struct ipc_handle *handle);

#endif
