"""Bugs to plant, one line or so each, and what must find them. `changes`: texts of the file and what stands there instead; each
must be there exactly once. `found` by: "mapped" (random work on memory that moves), "stress" (random work: an abort, or an error that the program does not expect), "hang" and
"spin_in_stream" (an order of calls that ends natively does not), "stream_of_each", "stream_race", "model" (test_model's of mapped memory), or "unit" (test_lane): what random work cannot
see, or meets too rarely."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Bug:
    name: str
    what: str
    file: str
    found: str
    changes: tuple
    runs: tuple = ("1 1 200000", "2 1 400000", "3 3 60000", "4 1 500000", "5 1 500000")  # of the stress, until one finds it
    delay: str = ""  # CACHALOT_SIM_DELAY: threads meet in rare ways


LANE, ENDS, FENCE, MARK = (f"allocator/{name}.c" for name in ("lane", "lane_ends", "fence", "mark"))
RELEASE, WINDOW, CLAIM, ARENA = (f"allocator/{name}.c" for name in ("arena_release", "window", "arena_claim", "arena"))
MOVES = ("1 1 6000", "2 1 6000", "3 3 4000", *(f"{seed} {1 + seed % 4 // 3} 6000" for seed in range(4, 40)))  # of mapped_stress
SUBMIT, CAPTURE, CONTEXT, LAUNCH = (f"interpose/{name}.c" for name in ("submit", "capture", "exports_context", "exports_launch"))
MEMORY, SHARE = "interpose/memory.c", "allocator/share.c"
CACHE, CACHES = "allocator/thread_cache.c", "allocator/thread_caches.c"
THREADS = ("1 3 200000", "2 8 60000", "3 3 400000", "4 8 100000", "5 3 400000", "6 4 400000")

BUGS = (
    Bug("release_at_once", "idle chunks are unmapped under work that a lane's reuse has overtaken", RELEASE, "mapped",
        (("int over = is_over(a, timeout_ns);", "int over = 1;\n    (void)is_over, (void)timeout_ns;"),), MOVES),
    Bug("remap_at_once", "what was mapped at a slot is taken down although work may still use it", WINDOW, "mapped",
        (("if (s->since > arena->safe ||", "if (0 ||"),
         ("if (arena->slot[slot].since > arena->safe ||", "if (0 ||")), MOVES),
    Bug("idle_in_part", "a chunk counts as idle when part of it is", ARENA, "mapped",
        (("uint64_t last = (offset + block_size(block)) / chunk_bytes;",
          "uint64_t last = (offset + block_size(block) + chunk_bytes / 2) / chunk_bytes;"),), MOVES),
    Bug("two_owners", "a chunk that is called back stays in the hole where it was", CLAIM, "mapped",
        (("        if (arena->chunk[chunk].owner)\n            arena_evict(arena, arena->chunk[chunk].owner - 1);\n        else\n"
          "            arena->spares--;", "        if (!arena->chunk[chunk].owner)\n            arena->spares--;"),), MOVES),
    Bug("grows_beside_idle", "a second slot of a window gets a new chunk though one is idle", CLAIM, "model",
        (("uint32_t chunk = take_idle(arena);", "uint32_t chunk = *moves == 1 ? 0 : take_idle(arena);"),)),
    Bug("access_in_part", "the last slot of a run is mapped without access", CLAIM, "model",
        (("(end - slot) * bytes);\n    }\n    return code;", "(end - slot - (end > slot + 1)) * bytes);\n    }\n    return code;"),)),
    Bug("idle_for_a_moment", "chunks count as in use while their hole is merged: others never get them", ARENA, "model",
        (("arena->idle_slots += (uint32_t)(reusable ? last - first : first - last);",
          "arena->idle_slots += (uint32_t)(reusable ? last - first : first - last);\n    arena_note_idle(arena);"),)),
    Bug("no_join", "no stream waits for the mark", LANE, "stress",
        (("lane->owed && asked->joined != lane->era", "0"),)),
    Bug("join_lost", "the mark is forgotten when a candidate is made, not when it has passed", LANE, "stress",
        (("        lane->candidate = fence;\n}", "        lane->candidate = fence;\n    lane->owed = NULL;\n}"),)),
    Bug("mark_at_join", "the mark is recorded at the join, and stands for later work", LANE, "hang",
        (("uint64_t word = lane_settled(domain), key", "uint64_t word = load(lane), key"),
         ("        leave(domain, word);\n        return 0;", "        lane_leave_for_good(domain);\n        return 0;"))),
    Bug("first_only", "only the first stream joins", LANE, "stress",
        (("await(domain, lane->owed, stream);", "await(domain, lane->owed, stream);\n        lane->owed = NULL;"),)),
    Bug("many_without_mark", "the lane is left before the newest frees have their mark", LANE, "stress",
        (("uint64_t word = lane_settled(domain), key",
          "uint64_t word = load(lane), key"),
         ("    if (mode == LANE_SINGLE && key == lane->key)\n        return 1;",
          "    if (mode != LANE_SINGLE || key == lane->key)\n        word = lane_settled(domain);\n"
          "    if (mode == LANE_SINGLE && key == lane->key)\n        return 1;"))),
    Bug("dirty_until_marked", "a free while the mark is recorded counts as covered", LANE, "unit",
        (("lane_next(word, LANE_SINGLE) | LANE_EARLY | LANE_MARKING",
          "lane_next(word, LANE_SINGLE) | LANE_EARLY | LANE_DIRTY | LANE_MARKING"),
         ("~(uint64_t)LANE_MARKING)", "~(uint64_t)(LANE_MARKING | LANE_DIRTY))"))),
    Bug("mark_no_news", "a mark is no new generation: other threads of the lane may overtake", LANE, "unit",
        (("lane_next(word, LANE_SINGLE) | LANE_EARLY | LANE_MARKING",
          "(word & ~(uint64_t)LANE_DIRTY) | LANE_MARKING"),)),
    Bug("no_epochs", "no look for submissions in flight", LANE, "unit",
        (("if (epoch && epoch < lane->counting)", "if (epoch && epoch < lane->counting && 0)"),)),
    Bug("epochs_at_passing", "they are looked for when the candidate has passed", LANE, "unit",
        (("if (!is_outrun(lane) && !lane->mixed)", "if (!lane->mixed)"),
         ("    if (!passed)\n        return;", "    if (!passed)\n        return;\n    lane->counting = atomic_load(&lane->state.epoch);\n"
          "    if (is_outrun(lane))\n        return;\n    lane->counting = 0;"))),
    Bug("any_fence", "any fence counts as the candidate", LANE, "stress",
        (("if (lane->candidate != fence)", "if (!lane->candidate)"),)),
    Bug("candidate_shared", "the books begin anew with another fence, and the candidate stays", LANE, "stress",
        (("lane->candidate || lane->capturing", "lane->capturing"), ("    if (!lane->counting) {\n", "    {\n"),
         ("        lane->candidate = fence;\n}", "        lane->candidate = lane->candidate ? lane->candidate : fence;\n}"))),
    Bug("used_not_emptied", "streams used before the candidate still count: no lane comes back", LANE, "unit",
        (("        lane->used = 0;\n        lane->used_key = 0;\n        /* The word", "        /* The word"),)),
    Bug("used_emptied_late", "they are emptied when the candidate is recorded", FENCE, "unit",
        (("    fence->state = FENCE_PENDING;\n    fence->number", "    if (a->domain->lane.candidate == fence)\n        a->domain->lane.used = 0;\n"
          "    fence->state = FENCE_PENDING;\n    fence->number"),)),
    Bug("seal_late", "frees join a fence until its record has come back", FENCE, "stress",
        (("    append(&fence->blocks, &a->deferred); /* seal: from here on nothing joins */\n", ""),
         ("        fence_recorded(a, fence);\n", "        append(&fence->blocks, &a->deferred);\n        fence_recorded(a, fence);\n")),
        THREADS, "cuCtxRecordEvent:10"),
    Bug("fence_unasked", "a block is reusable once its fence is recorded", FENCE, "stress",
        (("        fence_recorded(a, fence);\n", "        fence_recorded(a, fence);\n        retire(a, fence);\n"),)),
    Bug("shared_on_lane", "what another process may touch is reusable at once", FENCE, "unit",
        (("!block->shared && !async && !a->no_events && lane_free(a)", "!async && !a->no_events && lane_free(a)"),)),
    Bug("destroy_unseen", "a stream's end is not noticed: its handle comes back", SUBMIT, "stress",
        (("    if (process_serving())\n        lane_stream_ends(process->domain, (uint64_t)(uintptr_t)stream);",
          "    (void)stream;"),)),
    Bug("destroy_late", "it is noticed after the driver has destroyed it", CONTEXT, "stream_race",
        (("    submit_stream_ends(stream);\n    int capturing", "    int capturing"),
         ("    CUresult result = call(stream);\n    capture_after_destroy", "    CUresult result = call(stream);\n    submit_stream_ends(stream);\n    capture_after_destroy"))),
    Bug("capture_of_another", "a destroyed stream's capture is looked for when its handle may be another's", CONTEXT, "stream_race",
        (("    int capturing = capture_before_destroy(stream);\n    CUresult result = call(stream);",
          "    CUresult result = call(stream);\n    int capturing = capture_before_destroy(stream);"),)),
    Bug("capture_uncounted", "a capture has begun before it is counted", CONTEXT, "stress",
        (("        capture_before_begin();                                                                    \\\n"
          "        CUresult result = real()->name arguments;                                                  \\\n",
          "        CUresult result = real()->name arguments;                                                  \\\n"
          "        capture_before_begin();                                                                    \\\n"),)),
    Bug("capture_joined", "a stream that captures joins like any other", LANE, "stress",
        (("lane->ops->is_capturing(stream)", "0"),)),
    Bug("graph_uncounted", "launching a graph is no submission", LAUNCH, "stress",
        (("SUBMIT_TWINS_TO_HOST(graphs, cuGraphLaunch, graphs_to_host(exec),\n"
          "                     (CUgraphExec exec, CUstream stream), (exec, stream))\n",
          "CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)\n{\n    return real()->cuGraphLaunch(exec, stream);\n}\n"
          "CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)\n{\n    return real()->cuGraphLaunch_ptsz(exec, stream);\n}\n"),),
        ("2 1 400000", "1 1 400000", "6 1 400000", "7 1 1000000", "8 1 1000000")),
    Bug("restored_in_capture", "a lane comes back while a capture is active", LANE, "unit",
        (("lane->candidate || lane->capturing ||", "lane->candidate ||"),)),
    Bug("candidate_in_capture", "a candidate is kept when a capture begins", ENDS, "unit",
        (("    }\n    lane_spoil(lane);\n    domain_unlock", "    }\n    domain_unlock"),)),
    Bug("thread_is_legacy", "a per-thread stream is taken for the legacy one", SUBMIT, "stream_of_each",
        (("    return key;", "    return (uint64_t)(uintptr_t)context | 1;"),)),
    Bug("thread_is_shared", "the per-thread streams of all threads are one", SUBMIT, "stream_of_each",
        (("THREAD_KEYS | ++last", "THREAD_KEYS | 1"),)),
    Bug("context_ignored", "work of a second context is taken for the first one's", LANE, "unit",
        (("    else if (lane->context != context)\n        lane->mixed = 1;\n", ""),)),
    Bug("context_unjoined", "work of another context joins nothing", LANE, "unit",
        (("lane->owed && asked->joined != lane->era", "lane->owed && !lane->mixed && asked->joined != lane->era && asked->context == lane->context"),)),
    Bug("other_fence", "a fence of another context leads back to the lane", LANE, "unit",
        (("        (lane->context && lane->context != a->context) || ++lane->seals", "        ++lane->seals"),)),
    Bug("other_free", "a free of another context's block takes the lane", LANE, "unit",
        (("mode == LANE_MANY || lane->context != a->context", "mode == LANE_MANY"),)),
    Bug("context_end", "the end of another context leaves what is known of its streams", ENDS, "unit",
        (("        if ((load(lane) & LANE_MODE) == LANE_MANY)\n", "        if (0)\n"),)),
    Bug("programmatic", "a programmatic launch may always overtake", LAUNCH, "stress",
        (("in_order ? attributes_to_copy(config) : 0", "0 && in_order ? attributes_to_copy(config) : 0"),)),
    Bug("programmatic_after_nothing", "it may overtake after a submission that came to nothing", LANE, "stress",
        ((".in_order = 1}", ".in_order = 0}"),)),
    Bug("export_unwaited", "a block is exported while its last owner's work goes on", SHARE, "stress",
        (("    lane_finish(domain);\n", ""),)),
    Bug("free_in_stream", "cuMemFreeAsync of a block is taken for cuMemFree", MEMORY, "spin_in_stream",
        (("code = free_block(pointer, state, FREED_ASYNC);", "code = free_block(pointer, state, FREED_NATIVE);"),)),
    Bug("host_work_unwaited", "a free does not wait for what the host may see", SUBMIT, "stress",
        (("        note_host_work(&(struct lane_stream){.handle = stream, .per_thread = per_thread});",
          "        (void)note_host_work;"),)),
    Bug("host_work_older", "the mark that comes back last is taken for the newest", MARK, "unit",
        (("int newest = fence && a->host_works == before;", "int newest = fence && before + 1;"),)),
    Bug("host_work_settled", "a wait settles host work that came after it began", MARK, "unit",
        (("if (code >= 0 && a->host_work_settled < unmarked)", "if (code >= 0)"),
         ("a->host_work_settled = unmarked;", "a->host_work_settled = a->host_work_unmarked;"))),
    Bug("cached_anyway", "a block goes into its thread's cache whatever the lane says", CACHE, "stress",
        (("relaxed) && lane_free(a) &&", "relaxed) &&"),)),
    Bug("cached_unmarked", "it does when the lane was clean, and the lane stays clean", CACHE, "stress",
        (("relaxed) && lane_free(a) &&",
          "relaxed) && (atomic_load(&a->domain->lane.state.word) & LANE_MODE) != LANE_MANY &&"),)),
    Bug("cached_before_host", "it does though the host may still look at what is written", CACHE, "stress",
        (("        !atomic_load_explicit(&a->slow, memory_order_relaxed) && lane_free", "        lane_free"),)),
    Bug("cached_exported", "it does when another process may use it", SHARE, "unit",
        (("            block_claim(block, CLAIM_HELD);\n", ""),)),
    Bug("cached_of_another", "it does when it is another context's", CACHE, "unit",
        (("if (block->owner == cache->number &&", "if ("),)),
    Bug("cached_twice", "of two frees of one block both win", CACHE, "unit",
        (("atomic_load_explicit(&block->claim, memory_order_relaxed) == easy &&", "atomic_load(&block->claim) / 4 == easy / 4 &&"),
         ("atomic_compare_exchange_strong(&block->claim, &easy, address | CLAIM_CACHED)",
          "(atomic_store(&block->claim, address | CLAIM_CACHED), 1)"))),
    Bug("kit_shared", "what a claim has in reserve, others use up while the driver is called", CLAIM, "unit",
        (("    a->arena->kit = NULL;\n", ""), ("    arena_put_kit(a, kit);\n", "    (void)kit;\n"))),
    Bug("cached_at_growth", "caches keep what they have when a segment is taken from the driver", "allocator/allocator.c", "unit",
        (("pool_for(a, size) == POOL_SMALL && thread_caches_make(a, size) &&", "0 &&"),)),
    Bug("spare_unbounded", "what spills out of caches has no limit", "allocator/spare.c", "unit",
        (("return atomic_load_explicit(&a->spare_weight, memory_order_relaxed) + more >", "return more >"),)),
    Bug("looks_often", "all threads' caches are stopped and looked through at each miss", "allocator/thread_caches_make.c", "unit",
        (("    if (!is_due(a))\n        return 0;\n", "    is_due(a);\n"),)),
    Bug("looks_seldom", "what one thread has is not looked through at each miss", "allocator/thread_caches_make.c", "unit",
        (("if (spare_is_shared(a) && more", "if (more"),)),
    Bug("asked_never", "sizes in demand make room for others", "allocator/spare.c", "unit", (("    list->asked = 1;\n", ""),)),
    Bug("batch_lost", "a full list forgets a batch", "allocator/spare.c", "unit",
        (("first->node.left = &list->batch[--count]->node;", "--count;"),)),
    Bug("counted_late", "a thread counts alone whatever goes through its cache", CACHE, "unit",
        (("- bytes - least(ALONE_LIMIT, below_bytes)", "- bytes - below_bytes"),)),
    Bug("limits_stay", "a batch comes in, and the limits stay where they were", CACHE, "unit",
        (("    cache->least_bytes += bytes;\n    cache->least_count += blocks;\n", ""),)),
    Bug("cached_peak", "a thread passes peaks alone", CACHE, "unit",
        (("return cache->bytes - (int64_t)size >= cache->least_bytes &&\n           cache->count > cache->least_count &&", "return"),)),
    Bug("cached_pinned", "what lies in a cache is handed out though its segment is pinned", SHARE, "unit",
        (("            thread_caches_pool(segment->allocator);", "            (void)0;"),)),
    Bug("ended_thread", "what an ending thread has cached is lost", CACHES, "unit",
        (("    thread_cache_own = NULL;\n    unbind(cache, NULL);", "    thread_cache_own = NULL;"),)),
)
