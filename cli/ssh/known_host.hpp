#pragma once

#include <string>

namespace openshell::cli {

/// The known_hosts line for a server's key where its SHA-256 is the fingerprint that the gateway told of; else "", and ssh refuses the
/// server. `key` is base64, as ssh's `%K`.
std::string known_host_line(const std::string& fingerprint, const std::string& host, const std::string& type, const std::string& key);

}  // namespace openshell::cli
