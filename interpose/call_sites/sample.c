/* Each thread counts down an exponentially distributed number of bytes: then each byte is sampled
 * with the same chance, whatever the sizes of requests, and a new rate needs no history.
 *
 * The rate bounds the time that looks take. A thread saves one tick in SAMPLE_SHARE of those that
 * pass, and a look spends its own, except for its first SAMPLE_FREE looks: a short program has a
 * sample, too. A thread in debt for SAMPLE_LOOKS looks samples half as many
 * bytes from there on, one that has saved as much samples twice as many. */
#include "interpose/call_sites/sample.h"

#include "interpose/process/process.h"
#include "stats/os/ticks.h"

#define SAMPLE_SHARE 1024
#define SAMPLE_LOOKS 8
#define SAMPLE_FREE 256
#define SAMPLE_BLIND_RATE 7 /* 128 MiB: without a clock */

static _Thread_local struct {
    int begun_in; /* a life, as in memory.c */
    unsigned rate, looks;
    uint64_t requests, random, until; /* until: ticks for which the thread has saved */
    int64_t saved;
} own;

uint64_t sample_clock(void)
{
    static _Thread_local signed char readable;
    if (!readable)
        readable = ticks_are_readable() ? 1 : -1;
    return readable > 0 ? ticks_now() : 0;
}

/* xorshift64* */
static uint64_t draw(void)
{
    own.random ^= own.random >> 12;
    own.random ^= own.random << 25;
    own.random ^= own.random >> 27;
    return own.random * UINT64_C(0x2545f4914f6cdd1d);
}

/* Draws -ln(u) for an even u from 0 to 1, in 56 bits behind the point. Whole numbers only, since the
 * program may trap floating point. */
static uint64_t exponential(void)
{
    const uint64_t ln2 = 2977044472; /* in 32 bits */
    uint64_t drawn = draw() | 1, log2 = 0;
    int zeros = __builtin_clzll(drawn);
    unsigned __int128 mantissa = (unsigned __int128)drawn << zeros; /* 1 to 2, in 63 bits */
    for (int i = 0; i < 24; i++) {
        mantissa = mantissa * mantissa >> 63;
        log2 = log2 << 1 | (uint64_t)(mantissa >> 64);
        mantissa >>= mantissa >> 64;
    }
    return ((((uint64_t)zeros + 1) << 24) - log2) * ln2;
}

static void draw_distance(void)
{
    asked_by.left = (int64_t)((unsigned __int128)site_mean(own.rate) * exponential() >> 56);
}

static void begin(void)
{
    own.begun_in = process.life;
    own.until = sample_clock();
    own.rate = own.until ? 1 : SAMPLE_BLIND_RATE;
    own.saved = 0;
    own.looks = 0;
    own.random = (own.until ^ process_thread_id() << 32 ^ (uintptr_t)&own) | 1;
    for (int i = 0; i < 8; i++)
        draw();
    draw_distance();
}

static void note_rate(void)
{
    stat_value *coarsest = &process.sites->rate;
    uint64_t known = stat_get(coarsest);
    while (known < own.rate && !atomic_compare_exchange_weak(coarsest, &known, own.rate))
        ;
}

int sample_takes(uint64_t bytes, unsigned *rate)
{
    *rate = 0;
    if (process.config.sites != SITES_BY_BYTES) {
        asked_by.left = -1; /* each request is counted here */
        return own.requests++ % process.config.sites == 0;
    }
    if (own.begun_in != process.life)
        begin();
    if (bytes > ASKED_NEVER || asked_pass(bytes))
        return 0;
    note_rate();
    *rate = own.rate;
    return 1;
}

void sample_taken(uint64_t begun)
{
    uint64_t now = sample_clock();
    if (process.config.sites != SITES_BY_BYTES)
        return;
    if (own.looks < SAMPLE_FREE) {
        own.looks++;
        own.until = now;
    } else if (begun && begun >= own.until && now > begun) {
        int64_t took = (int64_t)(now - begun), bound = SAMPLE_LOOKS * took;
        own.saved += (int64_t)(now - own.until) / SAMPLE_SHARE - took;
        if (own.saved < -bound && own.rate < SITE_RATES)
            own.rate++;
        else if (own.saved > bound && own.rate > 1)
            own.rate--;
        if (own.saved < -bound || own.saved > bound)
            own.saved = 0;
        own.until = now;
    }
    draw_distance();
}
