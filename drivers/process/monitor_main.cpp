// openshell-sandbox-monitor: started by the process driver with its end of a socket pair on descriptor 3. Nobody else has a use for it.
#include <fcntl.h>
#include <stdio.h>

#include "drivers/process/monitor.hpp"

int main() {
  constexpr int kControl = 3;
  if (fcntl(kControl, F_SETFD, FD_CLOEXEC) != 0) {
    fputs("openshell-sandbox-monitor is started by openshell-gateway only\n", stderr);
    return 2;
  }
  return openshell::drivers::process::run_monitor(kControl);
}
