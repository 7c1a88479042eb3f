/* cachalot-page: the pages of other processes, dead or alive, with the report code of the library.
 *
 * scripts/cachalot calls it; it is not meant to be typed, but can be.
 */
#include "scripts/page_tool/page_tool.h"

#include "stats/events/events.h"
#include "stats/os/proc.h"
#include "stats/output/report_file.h"
#include "stats/output/trace.h"
#include "stats/report/document.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: cachalot-page report PAGE [--output FILE] [--below FOLDER] [--reason TEXT]\n"
    "                            [--code N] [--signal N]\n"
    "       cachalot-page json PAGE\n"
    "       cachalot-page request PAGE report|empty-cache [--blocks] [--timeout SECONDS]\n"
    "       cachalot-page list [DIRECTORY]\n"
    "       cachalot-page remove PAGE\n"
    "       cachalot-page conf OPTIONS\n"
    "       cachalot-page options\n"
    "       cachalot-page --version\n";

/* What can be known of an end that nobody saw. */
static const char *guess_reason(const struct page *page)
{
    if (page->exit_code >= 0)
        return "exit";
    if (page_is_here(page) && proc_is_alive(page->pid, page->start_ticks))
        return "exec";
    return "unknown";
}

static struct report_options report_options_of(const struct page *page,
                                               const struct tool_options *options, int alive)
{
    struct report_options report = {
        .kind = alive ? REPORT_REQUEST : REPORT_HARVEST,
        .exit_reason = alive ? "running" : guess_reason(page),
        .exit_code = options->code >= 0 ? options->code : page->exit_code,
        .exit_signal = options->signal,
        .output = options->output,
    };
    if (options->reason != NULL)
        report.exit_reason = options->reason;
    return report;
}

/* What threads of a killed process had noted, to the events; their ring is a copy of our own. */
static void take_events(struct page *page)
{
    struct events *events = page_events(page);
    if (!events)
        return;
    events->trace = TRACE_ENDED; /* nothing waits for it any more */
    events_take_over(events);
    events_take(events, 1);
}

/* Is it no use to try once more? A file that is not there may lie where nothing is mounted just now. */
static int is_final(int error, const char *trace)
{
    char folder[sizeof((struct page *)NULL)->trace];
    char *end;
    if (error != -ENOENT)
        return error == -ESTALE || error == -EINVAL || error == -ETIME || error == -ELOOP;
    snprintf(folder, sizeof folder, "%s", trace);
    if (!(end = strrchr(folder, '/')))
        return 1;
    end[end == folder] = '\0';
    return access(folder, F_OK) == 0;
}

/* One line: a newline or a terminal's escape in it would be another's. */
static void print_line(FILE *to, const char *text, char after)
{
    for (; *text != '\0'; text++)
        putc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
    putc(after, to);
}

static void announce(const char *path)
{
    fputs("cachalot-page: writes ", stderr);
    print_line(stderr, path, '\n');
}

/* What a killed process had not written to its trace any more. Returns 1 if its page has to stay, since
 * that may be written another time. */
static int end_trace(struct page *page)
{
    const struct events *events = page_events(page);
    int more = events && page->trace[0] && events->trace == TRACE_ON;
    if (more)
        announce(page->trace);
    int error = more ? trace_write(page, TRACE_ENDED, 1) : 0;
    int again = error && !is_final(error, page->trace);
    if (again)
        fprintf(stderr,
                "cachalot-page: the end of the trace %s cannot be written: %s; the page keeps it: "
                "`cachalot harvest` once that is mended, or remove the page\n",
                page->trace, trace_problem(error));
    else if (error)
        fprintf(stderr, "cachalot-page: the end of the trace %s is lost: %s\n", page->trace,
                trace_problem(error));
    take_events(page);
    return again;
}

static int write_report(struct page *page, const struct tool_options *options)
{
    char path[2048] = "", place[2048];
    int again = end_trace(page);
    page->sequence++; /* as the process itself would have: it is no earlier report */
    struct snapshot snapshot = {.page = page};
    struct report_options report = report_options_of(page, options, 0);
    report.announce = announce;
    int error = 0;
    if (options->output == NULL && strcmp(page->output, "/dev/null") != 0) {
        error = tool_place(page, options, &report, place, sizeof place);
        report.output = place;
    }
    if (error == 0)
        error = report_write(&snapshot, &report, path, sizeof path);
    if (error == 0)
        printf("%s\n", path);
    else
        fprintf(stderr, "cachalot-page: %s: its report cannot be written to %s: %s\n",
                options->path, path[0] ? path : "a place that it did not know (--output names one)",
                strerror(-error));
    return error == 0 && !again ? TOOL_DONE : TOOL_FAILED;
}

static int tool_report(const struct tool_options *options)
{
    struct page *page = tool_open(options->path, NULL);
    if (page == NULL)
        return TOOL_BAD_PAGE;
    int code = TOOL_FAILED;
    enum tool_life life = tool_life(page, options->path);
    if (life == TOOL_ELSEWHERE)
        fprintf(stderr, "cachalot-page: %s: written in another container, it may be in use\n",
                options->path);
    else if (life == TOOL_ALIVE)
        fprintf(stderr, "cachalot-page: %s: process %llu still runs; ask it for a report\n",
                options->path, (unsigned long long)page->pid);
    else
        code = write_report(page, options);
    page_close(page, 0);
    return code;
}

static int tool_json(const struct tool_options *options)
{
    struct page *page = tool_open(options->path, NULL);
    if (page == NULL)
        return TOOL_BAD_PAGE;
    int alive = tool_life(page, options->path) != TOOL_DEAD;
    struct snapshot snapshot = {.page = page};
    struct report_options report = report_options_of(page, options, alive);
    if (!alive)
        take_events(page);
    char *text = report_text(&snapshot, &report);
    int code = text != NULL && puts(text) >= 0 && fflush(stdout) == 0 ? TOOL_DONE : TOOL_FAILED;
    if (code != TOOL_DONE)
        fprintf(stderr, "cachalot-page: no report for %s: %s\n", options->path, strerror(errno));
    free(text);
    page_close(page, 0);
    return code;
}

static void list_page(const char *path)
{
    static const char *const states[] = {"making", "running", "exiting", "reported"};
    static const char *const lives[] = {"alive", "dead", "elsewhere"};
    const char *problem;
    struct page *page = page_open(path, NULL, &problem);
    print_line(stdout, path, '\t');
    if (page == NULL) {
        const char *life = page_is_unmade(AT_FDCWD, path) ? "dead\tmaking" : "bad\t-";
        printf("0\t%s\t-\t%s\n", life, problem);
        return;
    }
    uint32_t state = page->state;
    printf("%llu\t%s\t%s\t", (unsigned long long)page->pid, lives[tool_life(page, path)],
           state < 4 ? states[state] : "unknown");
    print_line(stdout, page->session[0] != '\0' ? page->session : "-", '\t');
    print_line(stdout, page->program, '\n');
    page_close(page, 0);
}

static int has_page_suffix(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".page") == 0;
}

/* Columns: path, pid, alive|dead|elsewhere|bad, state, session, program (or what is bad). */
static int tool_list(const struct tool_options *options)
{
    char own[PAGE_DIRECTORY_SIZE], path[4096];
    const char *name = options->path ? options->path : page_directory(own, sizeof own);
    DIR *directory = opendir(name);
    if (directory == NULL && errno != ENOENT) {
        fprintf(stderr, "cachalot-page: %s: %s\n", name, strerror(errno));
        return TOOL_FAILED;
    }
    for (const struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        if (!has_page_suffix(entry->d_name))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", name, entry->d_name) < (int)sizeof path)
            list_page(path);
    }
    if (directory != NULL)
        closedir(directory);
    return TOOL_DONE;
}

/* A damaged page may go too, anything else may not. */
static int may_remove(const char *path)
{
    struct stat status;
    const char *problem;
    if (lstat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        !has_page_suffix(path)) {
        fprintf(stderr, "cachalot-page: %s: is not a page of this user\n", path);
        return TOOL_BAD_PAGE;
    }
    struct page *page = page_open(path, NULL, &problem);
    int alive = tool_life(page, path) == TOOL_ALIVE;
    if (page != NULL)
        page_close(page, 0);
    if (alive)
        fprintf(stderr, "cachalot-page: %s: its process still runs\n", path);
    return alive ? TOOL_FAILED : TOOL_DONE;
}

static int tool_remove(const struct tool_options *options)
{
    int code = may_remove(options->path);
    if (code == TOOL_DONE && unlink(options->path) != 0) {
        fprintf(stderr, "cachalot-page: %s: %s\n", options->path, strerror(errno));
        code = TOOL_FAILED;
    }
    return code;
}

/* The whole text as a number from 0 to `most`, or -1. */
static double number(const char *text, double most)
{
    char *end;
    double value = strtod(text, &end);
    return end != text && *end == '\0' && value >= 0 && value <= most ? value : -1;
}

static int parse_options(int argc, char **argv, struct tool_options *options)
{
    static const struct option known[] = {
        {"output", required_argument, NULL, 'o'},  {"below", required_argument, NULL, 'w'},
        {"reason", required_argument, NULL, 'r'},  {"code", required_argument, NULL, 'c'},
        {"signal", required_argument, NULL, 's'},  {"blocks", no_argument, NULL, 'b'},
        {"timeout", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    int bad = 0;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'o':
            options->output = optarg;
            break;
        case 'w':
            options->below = optarg;
            break;
        case 'r':
            options->reason = optarg;
            break;
        case 'c':
            bad |= (options->code = (int)number(optarg, 255)) < 0;
            break;
        case 's':
            bad |= (options->signal = (int)number(optarg, 64)) < 0;
            break;
        case 'b':
            options->blocks = 1;
            break;
        case 't':
            bad |= (options->timeout = number(optarg, 1e6)) < 0;
            break;
        default:
            bad = 1;
        }
    }
    options->path = argv[optind];
    options->action = options->path != NULL ? argv[optind + 1] : NULL;
    int words = argc - optind;
    return bad || words > 2 ? -1 : 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct tool_options *options);
        int words; /* arguments that must, and may, follow */
    } commands[] = {{"report", tool_report, 1},       {"json", tool_json, 1},
                    {"request", tool_request, 2},     {"list", tool_list, 0},
                    {"remove", tool_remove, 1},       {"conf", tool_conf, 1},
                    {"options", tool_list_options, 0}};
    signal(SIGIO, SIG_IGN); /* tool_life */
    struct tool_options options = {.code = -1, .signal = -1, .timeout = 10};
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return printf("cachalot %s\n", CACHALOT_VERSION) > 0 ? TOOL_DONE : TOOL_FAILED;
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) >= 0 ? TOOL_DONE : TOOL_FAILED;
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (parse_options(argc - 1, argv + 1, &options) != 0 ||
            (commands[i].words > 0 && options.path == NULL) ||
            (commands[i].words < 2 && options.action != NULL))
            break;
        return commands[i].run(&options);
    }
    fputs(usage, stderr);
    return TOOL_USAGE;
}
