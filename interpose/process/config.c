#include "interpose/process/config.h"

#include <fnmatch.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "stats/output/path_pattern.h"
#include "stats/page/program.h"

static char directory[sizeof((struct page *)NULL)->cwd];
/* The CACHALOT_ variables, each with its terminating zero; an empty string ends them. */
static char began_with[8192];

void config_note_start(void)
{
    size_t used = 0;
    if (!getcwd(directory, sizeof directory))
        directory[0] = 0; /* the directory is deleted, or its name is too long */
    for (char **entry = environ; entry && *entry; entry++) {
        size_t size = strlen(*entry) + 1;
        if (strncmp(*entry, "CACHALOT_", 9) || used + size >= sizeof began_with)
            continue;
        memcpy(began_with + used, *entry, size);
        used += size;
    }
}

/* The variables as the program has them. A program that cleans its environment drops LD_PRELOAD
 * too: then the values at the start of the process count. */
static const char *given(const char *name)
{
    const char *value = getenv(name);
    size_t length = strlen(name);
    if (value || getenv("LD_PRELOAD"))
        return value;
    for (const char *entry = began_with; *entry; entry += strlen(entry) + 1)
        if (strncmp(entry, name, length) == 0 && entry[length] == '=')
            return entry + length + 1;
    return NULL;
}

static const char *value_of(const char *name)
{
    const char *value = given(name);
    return value && *value ? value : NULL;
}

/* Stops at the object of this library. Returns 1, and sets *data if another object of the same name
 * is loaded before it. */
static int look_before_us(struct dl_phdr_info *object, size_t size, void *data)
{
    const char *slash = strrchr(object->dlpi_name, '/');
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type == PT_LOAD &&
            (uintptr_t)directory - object->dlpi_addr - header->p_vaddr < header->p_memsz)
            return 1;
    }
    return *(int *)data = slash && strcmp(slash, "/libcachalot.so") == 0;
}

/* Is this the second copy of the library in the process (an operator's and a user's own)? Only the
 * first one serves and reports. */
static int is_second_copy(void)
{
    int before = 0;
    dl_iterate_phdr(look_before_us, &before);
    return before;
}

int config_enabled(void)
{
    const char *only = value_of("CACHALOT_ONLY"), *disable = value_of("CACHALOT_DISABLE");
    if (getauxval(AT_SECURE) || (disable && strcmp(disable, "0")) || is_second_copy())
        return 0;
    return !only || fnmatch(only, program_invocation_short_name, 0) == 0;
}

static void complain(void *context, const char *message)
{
    struct config *config = context;
    if (config->problems < MOST_PROBLEMS)
        snprintf(config->problem[config->problems], sizeof *config->problem, "%s", message);
    config->problems++;
}

static void complain_of_option(void *context, const char *message)
{
    char text[sizeof((struct config *)NULL)->problem[0]];
    snprintf(text, sizeof text, "%.220s; the default stands", message);
    complain(context, text);
}

static const struct {
    const char *variable;
    int pytorch;
} sources[] = {{"CACHALOT_CONF", 0},
               {"PYTORCH_CUDA_ALLOC_CONF", 1},
               {"PYTORCH_HIP_ALLOC_CONF", 1},
               {"PYTORCH_ALLOC_CONF", 1}};

/* The index of the variable that the options come from: ours, else PyTorch's for the keys that mean
 * the same; -1: none is set. An empty one counts as set. The order of PyTorch's variables is that
 * of PyTorch 2.15. */
static int source(void)
{
    for (int i = 0; i < (int)(sizeof sources / sizeof *sources); i++)
        if (given(sources[i].variable))
            return i;
    return -1;
}

/* -1: CACHALOT_SIGNAL is not understood. */
static int signal_given(void)
{
    static const struct {
        const char *name;
        int number;
    } names[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2},   {"HUP", SIGHUP},
                 {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"URG", SIGURG},
                 {"IO", SIGIO},     {"none", 0},         {"0", 0}};
    const char *wanted = value_of("CACHALOT_SIGNAL");
    if (!wanted)
        return SIGUSR1;
    if (strncmp(wanted, "SIG", 3) == 0)
        wanted += 3;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(wanted, names[i].name) == 0)
            return names[i].number;
    int number = atoi(wanted);
    return number >= SIGRTMIN && number <= SIGRTMAX ? number : -1;
}

int config_signal(void)
{
    int number = signal_given();
    return number < 0 ? SIGUSR1 : number;
}

static void read_signal(struct config *config)
{
    config->signal = config_signal();
    if (signal_given() < 0)
        complain(config,
                 "CACHALOT_SIGNAL is not understood: USR1, USR2, HUP, PROF, WINCH, URG, IO, a "
                 "real-time number, "
                 "or none; USR1 stands");
}

/* A number of events, rounded up to a power of two. */
static unsigned read_events(struct config *config)
{
    const char *wanted = value_of("CACHALOT_EVENTS");
    char *end;
    unsigned events = EVENTS_LEAST;
    if (!wanted)
        return 0;
    errno = 0;
    unsigned long long number = strtoull(wanted, &end, 10);
    if (*end || *wanted < '0' || *wanted > '9' || errno || number > EVENTS_MOST) {
        complain(config, "CACHALOT_EVENTS is not understood: a number of events up to 524288; none "
                         "are recorded");
        return 0;
    }
    while (events < number)
        events *= 2;
    return number ? events : 0;
}

static unsigned read_sites(struct config *config)
{
    const char *wanted = value_of("CACHALOT_SITES");
    if (!wanted)
        return SITES_BY_BYTES;
    if (strcmp(wanted, "0") == 0)
        return 0;
    if (strspn(wanted, "0123456789") == strlen(wanted) && strlen(wanted) < 10 && atoi(wanted))
        return (unsigned)atoi(wanted);
    complain(config,
             "CACHALOT_SITES is not understood: 0, 1, or N for one request of N; call sites "
             "are sampled");
    return SITES_BY_BYTES;
}

/* An unknown value hides the arguments too: a secret that was shown cannot be taken back. */
static int read_redact(struct config *config)
{
    const char *wanted = value_of("CACHALOT_REDACT");
    if (!wanted || strcmp(wanted, "0") == 0)
        return 0;
    if (strcmp(wanted, "argv") != 0)
        complain(config, "CACHALOT_REDACT is not understood: argv; arguments are left out");
    return 1;
}

/* Reads a path from the environment and makes it absolute. A pattern (`relative`) stays as it is:
 * it becomes absolute later. */
static void read_path(struct config *config, const char *name, int relative, char path[PATH_MAX])
{
    const char *value = value_of(name), *from = "", *slash = "";
    char message[sizeof config->problem[0]];
    if (value && !relative && *value != '/' && *directory) {
        from = directory;
        slash = "/";
    }
    if (snprintf(path, PATH_MAX, "%s%s%s", from, slash, value ? value : "") < PATH_MAX)
        return;
    path[0] = '\0';
    snprintf(message, sizeof message, "%s is too long; it is as if it were not set", name);
    complain(config, message);
}

const char *config_page_dir(const struct config *config)
{
    return *config->page_dir ? config->page_dir : NULL;
}

/* The C locale, which glibc has ready. The program's locale may have a decimal comma, or map `I` to
 * another letter. */
static locale_t plain_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* A longer name counts as far as it goes. */
static void read_group(struct config *config)
{
    const char *name = value_of("CACHALOT_GROUP"), *job = value_of("SLURM_JOB_ID");
    if (name)
        snprintf(config->group, sizeof config->group, "group %s", name);
    else if (job)
        snprintf(config->group, sizeof config->group, "Slurm job %s", job);
}

void config_read(struct config *config)
{
    int from = source();
    options_default(&config->options);
    config->options.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    locale_t program = uselocale(plain_locale());
    if (from >= 0)
        options_parse(&config->options, given(sources[from].variable),
                      sources[from].pytorch ? options_pytorch_keys() : OPTIONS_ALL,
                      complain_of_option, config);
    uselocale(program);
    if (config->options.fill.kind != FILL_NONE && config->options.free_mode == FREE_ASYNC)
        config->options.free_mode = FREE_FENCE; /* fill.c */
    if (config->options.slack)
        config->options.free_mode = FREE_STRICT; /* slack.c */
    const char *log = value_of("CACHALOT_LOG");
    read_path(config, "CACHALOT_PAGE_DIR", 0, config->page_dir);
    read_path(config, "CACHALOT_LOG", log && strcmp(log, "stderr") == 0, config->log);
    read_path(config, "CACHALOT_TRACE", 1, config->trace);
    config->redact_argv = read_redact(config);
    read_group(config);
    config->events = read_events(config);
    config->sites = read_sites(config);
    if ((!config->sites || config->sites == SITES_BY_BYTES) && *config->options.fail_alloc.site)
        config->sites = 1;
    read_signal(config);
}

static void publish_rank(struct page *page)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = value_of(names[i]);
        if (rank) {
            snprintf(page->rank, sizeof page->rank, "%s", rank);
            snprintf(page->rank_source, sizeof page->rank_source, "%s", names[i]);
            return;
        }
    }
}

static const char *lookup(const char *name)
{
    return getenv(name);
}

void config_trace_path(const struct config *config, const struct page *page, char *path,
                       size_t size, config_warn *warn)
{
    const char *problem = NULL;
    size_t to = 0;
    if (report_expand(page, config->trace, lookup, path, size, &problem)) {
        warn("CACHALOT_TRACE is not usable: %s; nothing is traced", problem ? problem : "?");
        path[0] = '\0';
    }
    for (size_t i = 0; path[i]; i++, to++) { /* %n numbers reports; a trace has no number */
        path[to] = path[i] == '%' && path[i + 1] == 'n' ? '0' : path[i];
        i += path[i] == '%';
    }
    path[to] = '\0';
}

static void publish_output(struct page *page, config_warn *warn)
{
    static const char standard[] = "cachalot.%e.%p.json";
    const char *pattern = value_of("CACHALOT_OUTPUT"), *problem = NULL;
    if (pattern &&
        report_expand(page, pattern, lookup, page->output, sizeof page->output, &problem)) {
        warn("CACHALOT_OUTPUT is not usable: %s; %s stands", problem ? problem : "?", standard);
        pattern = NULL;
    }
    if (pattern ||
        !report_expand(page, standard, lookup, page->output, sizeof page->output, &problem))
        return;
    page->output[0] = 0; /* a truncated path might name somebody else's file */
    warn("there will be no report: %s; CACHALOT_OUTPUT may name another place", problem);
}

void config_publish(const struct config *config, struct page *page, config_warn *warn)
{
    int from = source();
    const char *session = value_of("CACHALOT_SESSION");
    memcpy(page->cwd, directory, sizeof page->cwd);
    locale_t program = uselocale(plain_locale());
    for (unsigned i = 0; options_name(i) && i < PAGE_CONFIGS; i++) {
        struct page_config *row = &page->config[i];
        snprintf(row->name, sizeof row->name, "%s", options_name(i));
        options_value(&config->options, i, row->value, sizeof row->value);
        snprintf(row->source, sizeof row->source, "%s",
                 config->options.given >> i & 1 ? sources[from].variable : "default");
        page->config_count = i + 1;
    }
    uselocale(program);
    if (session)
        snprintf(page->session, sizeof page->session, "%s", session);
    if (config->redact_argv) {
        memset(page->argv, 0, sizeof page->argv);
        page->argv_bytes = 0;
        page_name_program(page);
    }
    publish_rank(page);
    publish_output(page, warn);
    for (unsigned i = 0; i < config->problems && i < MOST_PROBLEMS; i++)
        warn("%s", config->problem[i]);
    if (config->problems > MOST_PROBLEMS)
        warn("%u more settings are not understood", config->problems - MOST_PROBLEMS);
}
