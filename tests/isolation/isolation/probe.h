/* Shared by the two halves of the probe program: probe_rows.c (acts of the bypass tables) and probe.c (connects, signals, processes). */
#pragma once
#include <sys/socket.h>

static inline int tcp(void) { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

/* One act by its name, or all of them in the way `how`: child, daemon, exec, thread. Prints `name=errno`, 0 for success, 1000 + n for death
 * by signal n. */
int (*find_row(const char* name))(void);
int rows(const char* how);
