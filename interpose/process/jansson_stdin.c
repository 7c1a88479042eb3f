/* Debian's static jansson is not built for shared objects: its json_loadf compares a stream with
 * libc's `stdin` in a way that only an executable can link. The library never loads JSON from
 * standard input, so json_loadf compares with this variable instead. */
extern void *stdin __attribute__((visibility("hidden")));
void *stdin;
