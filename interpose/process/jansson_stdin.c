/* Debian's static jansson is not built for shared objects: its json_loadf compares a stream with
 * libc's `stdin` in a way that only an executable can link. Nobody loads from standard input here,
 * so it compares with this one. */
extern void *stdin __attribute__((visibility("hidden")));
void *stdin;
