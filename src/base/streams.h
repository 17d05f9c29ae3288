// The three descriptors that every process is given, and may be without.
// Convention: nobody has to read what we say. A message that cannot be delivered is dropped;
// results on stdout that cannot are an error of whoever ends the process (cannot_write_stdout).
#pragma once

namespace tessera {

// Puts /dev/null in the place of each of 0, 1 and 2 that is closed, or the next file that is opened
// would get what is meant for people. Of stdout it is a place that cannot be written: results are
// not dropped silently. Must come before anything is opened.
void occupy_standard_streams();

// A reader that goes away is no reason to end: writes fail from now on, they do not kill.
void survive_closed_pipes();

// Flushes stdout. Whether something of it is lost: not when it is a pipe and its reader has gone,
// who wanted no more.
bool cannot_write_stdout();

// Columns of the terminal that stderr is, and stdout; 0: it is none. A process that was started by
// one of ours through pipes is told by variables of its environment, which hand_terminal_on() sets.
int terminal_columns();
int stdout_columns();
void hand_terminal_on();

}  // namespace tessera
