/* Files and directories that their owner can use whatever the program's umask is. */
#ifndef CACHALOT_STATS_OS_CREATE_H
#define CACHALOT_STATS_OS_CREATE_H

/* Creates the directory `name` below the descriptor `at`, as the umask allows, but with all rights of
 * its owner. Returns 0 or -errno. */
int create_directory(int at, const char *name, unsigned mode);

/* Gives the owner all rights in a directory that belongs to this user. */
void create_rights_of_owner(int at, const char *name);

/* Creates the new file `name`, open for reading and writing, which its owner can read and write.
 * Returns the descriptor or -errno. */
int create_new_file(int at, const char *name, unsigned mode);

/* Writes 16 random hexadecimal digits and a NUL into `text`. */
void create_random_name(char text[17]);

#endif
