/* Frameworks that serve their memory from a cache of their own: what they ask for is then that
 * cache's, not the program's. */
#ifndef CACHALOT_INTERPOSE_LIFECYCLE_OWN_CACHES_H
#define CACHALOT_INTERPOSE_LIFECYCLE_OWN_CACHES_H

/* Notes what the environment switches off, when service begins. */
void own_caches_note(void);

/* Gives one warning for each cache that is on, with what to set. Called before each report, since
 * frameworks are loaded late. */
void own_caches_warn(void);

#endif
