/* The numbers of a device. These lists feed the structs in the live page, the page's table of fields,
 * the JSON report, PyTorch's flat `memory_stats` names and the documents: adding a number is adding a
 * line. The meaning of each statistic is PyTorch's (torch.cuda.memory_stats).
 */
#ifndef CACHALOT_STATS_COUNTERS_LISTS_H
#define CACHALOT_STATS_COUNTERS_LISTS_H

/* Each has current, peak, allocated and freed, for small_pool, large_pool and all.  X(name, unit) */
#define STAT_LIST(X)                                                                               \
    X(allocation, "count")                                                                         \
    X(allocated_bytes, "bytes")                                                                    \
    X(requested_bytes, "bytes")                                                                    \
    X(active, "count")                                                                             \
    X(active_bytes, "bytes")                                                                       \
    X(segment, "count")                                                                            \
    X(reserved_bytes, "bytes")                                                                     \
    X(inactive_split, "count")                                                                     \
    X(inactive_split_bytes, "bytes")

/* Plain counters and gauges of a device.  X(name, unit, meaning) */
#define COUNTER_LIST(X)                                                                            \
    X(num_hits, "count", "requests served without a driver allocation")                            \
    X(num_alloc_retries, "count", "driver asked once more after the cache was released")           \
    X(num_ooms, "count", "requests answered with out of memory")                                   \
    X(num_device_alloc, "count", "segments obtained from the driver")                              \
    X(num_device_free, "count", "segments given back to the driver")                               \
    X(given_bytes, "bytes", "idle memory given back since another process asked for it")           \
    X(asked_bytes, "bytes", "memory that other processes were asked for")                          \
    X(idle_returned_bytes, "bytes", "memory given back since it was idle (option idle_return_s)")  \
    X(num_maps, "count", "times that memory was mapped at an address")                             \
    X(num_unmaps, "count", "times that such a mapping was taken down")                             \
    X(map_ns, "ns", "time spent in the driver to map memory where a request needed it")            \
    X(native_since_request, "count", "request from which on large blocks are the driver's own")    \
    X(num_fences, "count", "fences recorded")                                                      \
    X(num_fence_waits, "count", "waits of the host for a fence")                                   \
    X(fence_wait_ns, "ns", "time spent in those waits")                                            \
    X(num_fence_frees, "count", "freed blocks that were reusable when a fence had passed")         \
    X(num_wait_frees, "count", "freed blocks that were reusable after a wait in the free")         \
    X(num_lane_frees, "count", "freed blocks that were reusable at once, on a lane")               \
    X(num_lane_marks, "count", "lane marks recorded")                                              \
    X(num_lane_joins, "count", "times that a stream waited for a lane's mark")                     \
    X(num_lane_leaves, "count", "times that a lane was left for work on another stream")           \
    X(num_thread_hits, "count", "requests served by a cache of their thread, without a lock")      \
    X(peak_uncertainty_bytes, "bytes", "most by which peaks may be wrong; 0: exact")               \
    X(num_late_frees, "count", "frees of our blocks after exit began")                             \
    X(num_double_frees, "count", "frees of a block that was free already")                         \
    X(num_pinned_blocks, "count", "blocks never recycled (SYNC_MEMOPS)")                           \
    X(num_exports, "count", "IPC exports of our blocks")                                           \
    X(num_offset_exports, "count", "IPC exports of a block that does not begin its segment")       \
    X(reusable_bytes, "bytes", "bytes of reusable blocks")                                         \
    X(largest_allocatable_bytes, "bytes", "largest request served without new memory")             \
    X(max_split_size_bytes, "bytes", "option max_split_size_mb; 0: unlimited")                     \
    X(memory_limit_bytes, "bytes", "most that may be reserved; 0: the device's memory")            \
    X(group_limit_bytes, "bytes", "most that the group of processes may reserve; 0: no limit")     \
    X(asked_ns, "ns", "time that requests waited for other processes")                             \
    X(movable_bytes, "bytes", "idle mapped memory that one block can be made of")

/* The numbers behind the fragmentation ratios, copied at the moment of a peak.  X(name) */
#define MOMENT_LIST(X)                                                                             \
    X(requested_bytes)                                                                             \
    X(allocated_bytes)                                                                             \
    X(active_bytes)                                                                                \
    X(reserved_bytes)                                                                              \
    X(inactive_split_bytes)                                                                        \
    X(reusable_bytes)                                                                              \
    X(largest_allocatable_bytes)

#endif
