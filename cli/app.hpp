#pragma once

namespace openshell::cli {

/// The whole command line: parses, runs one command, answers its exit code. 0 done, 1 an error was printed, 2 wrong usage, else what the
/// command says (the code of a remote command, 124 for a wait that was not over in time).
int run(int argc, char** argv);

}  // namespace openshell::cli
