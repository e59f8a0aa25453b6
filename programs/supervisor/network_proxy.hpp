// The policy proxy without a sandbox: for programs on this host that are told to use it. It confines nobody.
#pragma once

#include <absl/status/statusor.h>

#include <csignal>
#include <string>

#include "programs/supervisor/network_proxy_options.hpp"

namespace openshell::supervisor {

/// Serves until SIGTERM or SIGINT (exit code 0); SIGHUP reads the policy again, and a file with faults changes nothing. 1: it did not
/// start, or no connection can be taken any more. No gateway, no sandbox, no credentials, no child process (NP-12 to NP-16). Runs on the
/// main thread, with SIGTERM, SIGINT and SIGHUP blocked.
int run_network_proxy(const NetworkProxyOptions& options);

}  // namespace openshell::supervisor
