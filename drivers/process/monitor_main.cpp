// openshell-sandbox-monitor: started by the process driver with its end of a socket pair on descriptor 3. Nobody else has a use for it.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "drivers/process/mapped_files.hpp"
#include "drivers/process/monitor.hpp"

int main(int argc, char** argv) {
  constexpr int kControl = 3;
  if (fcntl(kControl, F_SETFD, FD_CLOEXEC) != 0) {
    fputs("openshell-sandbox-monitor is started by openshell-gateway only\n", stderr);
    return 2;
  }
  if (argc == 2 && strcmp(argv[1], "files") == 0) return openshell::drivers::process::run_files_helper(kControl);
  return openshell::drivers::process::run_monitor(kControl);
}
