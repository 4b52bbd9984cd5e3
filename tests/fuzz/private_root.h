/* Puts a fuzz target into a root directory of its own, where it may do anything: as a VM's supervisor, but with nothing of the host in reach. */
#ifndef PRIVATE_ROOT_H
#define PRIVATE_ROOT_H

/* Namespaces, an empty tmpfs of 16 MiB as "/" (with the host's /proc, read-only, on "/proc"), a user without any right. Ends the process on failure.
 * The working directory stays where it was, out of reach of every path but the relative ones of this process. */
void private_root_enter(void);

#endif
