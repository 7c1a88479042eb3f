/* Runs `run` of a plugin that is loaded so that preloads do not reach it: `deep` (RTLD_DEEPBIND),
 * `lazy` (the same, resolved at the first call), `denied` (the same, where a sandbox forbids writes to
 * a place of a file) or `namespace` (dlmopen); with a third argument, of libcuda, after a look-up in
 * that. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "case.h"

static void deny(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof rules / sizeof *rules, .filter = rules};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

int main(int count, char **argument)
{
    CHECK(count == 3 || count == 4);
    const char *way = argument[1];
    int when = strcmp(way, "lazy") ? RTLD_NOW : RTLD_LAZY;
    if (count == 4)
        CHECK(dlsym(dlopen(argument[3], RTLD_NOW), "cuMemAlloc_v2"));
    if (strcmp(way, "denied") == 0)
        deny();
    void *plugin = strcmp(way, "namespace") ? dlopen(argument[2], when | RTLD_DEEPBIND)
                                            : dlmopen(LM_ID_NEWLM, argument[2], when);
    if (!plugin)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(plugin);
    SAY(((int (*)(void))dlsym(plugin, "run"))());
    return 0;
}
