/* What a page says of sleep (see layout.h). */
#ifndef CACHALOT_STATS_PAGE_LAYOUT_SLEEP_H
#define CACHALOT_STATS_PAGE_LAYOUT_SLEEP_H

/* Sleep: the device memory of the process is on the host (interpose/sleep).  X(name, unit, meaning) */
#define SLEEP_LIST(X)                                                                              \
    X(state, "count", "0 awake, 1 being put to sleep, 2 asleep, 3 waking")                         \
    X(stored_bytes, "bytes", "live bytes that are on the host now")                                \
    X(away_bytes, "bytes", "device memory that is given back now")                                 \
    X(sleeps, "count", "times that the process was put to sleep")                                  \
    X(wakes, "count", "times that it woke")                                                        \
    X(refused, "count", "times that it was not put to sleep")                                      \
    X(out_bytes, "bytes", "moved to the host so far")                                              \
    X(in_bytes, "bytes", "moved back so far")                                                      \
    X(out_ns, "ns", "spent on the way to sleep so far")                                            \
    X(in_ns, "ns", "spent on waking so far")
enum sleep_number {
#define X(name, unit, meaning) SLEEP_##name,
    SLEEP_LIST(X)
#undef X
        SLEEP_NUMBERS
};

#endif
