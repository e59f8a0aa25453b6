#!/bin/sh
# Runs its arguments below everything else of the machine: niceness counts within a session only where the kernel groups
# tasks by session (sched(7), "The autogroup feature"), so that the command has a session of its own.
if [ "$1" != --in-session ]; then exec setsid --wait "$0" --in-session "$@"; fi
shift
{ echo 19 >/proc/self/autogroup; } 2>/dev/null
exec nice -n 19 "$@"
