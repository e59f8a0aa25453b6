#include "cli/merge_words.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <map>
#include <set>

#include "openshell.pb.h"
#include "policy/mapper.hpp"

namespace openshell::cli {
namespace {

using sandbox::v1::NetworkEndpoint;

constexpr const char* kEndpointForm = "--add-endpoint expects host:port[:access[:protocol[:enforcement[:options]]]], got '";
constexpr std::size_t kMaxSegments = 6;

std::vector<std::string> split(const std::string& text, char separator) { return absl::StrSplit(text, separator); }
std::string trimmed(const std::string& text) { return std::string{absl::StripAsciiWhitespace(text)}; }

absl::StatusOr<std::uint32_t> port_of(const std::string& flag, const std::string& text, const std::string& word) {
  std::uint32_t port = 0;
  if (!absl::SimpleAtoi(text, &port) || port < 1 || port > 65'535)
    return absl::InvalidArgumentError(absl::StrCat(flag, " port must be in the range 1-65535, got '", text, "' in '", word, "'"));
  return port;
}

absl::Status set_access(NetworkEndpoint& endpoint, const std::string& access, bool may_be_empty, const std::string& word) {
  static const std::map<std::string, sandbox::v1::NetworkAccessPreset> kNames{{"read-only", sandbox::v1::NETWORK_ACCESS_PRESET_READ_ONLY},
                                                                              {"read-write", sandbox::v1::NETWORK_ACCESS_PRESET_READ_WRITE},
                                                                              {"full", sandbox::v1::NETWORK_ACCESS_PRESET_FULL}};
  if (access.empty() && may_be_empty) return absl::OkStatus();
  const auto found = kNames.find(access);
  if (found == kNames.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--add-endpoint access segment must be one of read-only, read-write, or full; got '", access, "' in '", word, "'"));
  }
  endpoint.set_access(found->second);
  return absl::OkStatus();
}

absl::Status set_protocol(NetworkEndpoint& endpoint, const std::string& protocol, const std::string& word) {
  static const std::set<std::string> kNames{"", "tcp", "rest", "websocket", "sql"};
  if (!kNames.contains(protocol)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--add-endpoint protocol segment must be 'tcp', 'rest', 'websocket', or 'sql'; got '", protocol, "' in '", word, "'"));
  }
  endpoint.set_protocol(protocol);
  return absl::OkStatus();
}

absl::Status set_enforcement(NetworkEndpoint& endpoint, const std::string& enforcement, const std::string& word) {
  if (enforcement.empty()) return absl::OkStatus();
  if (enforcement != "enforce" && enforcement != "audit") {
    return absl::InvalidArgumentError(
        absl::StrCat("--add-endpoint enforcement segment must be 'enforce' or 'audit'; got '", enforcement, "' in '", word, "'"));
  }
  if (endpoint.protocol().empty())
    return absl::InvalidArgumentError(absl::StrCat("--add-endpoint enforcement requires a protocol segment in '", word, "'"));
  endpoint.set_enforcement(enforcement == "audit" ? sandbox::v1::NETWORK_ENFORCEMENT_MODE_AUDIT
                                                  : sandbox::v1::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  return absl::OkStatus();
}

absl::Status set_option(NetworkEndpoint& endpoint, const std::string& option, const std::string& word) {
  const auto& protocol = endpoint.protocol();
  const auto needs = [&](bool holds, std::string_view protocols) {
    if (holds) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--add-endpoint option '", option, "' requires protocol ",
                                                   absl::string_view{protocols.data(), protocols.size()}, " in '", word, "'"));
  };
  constexpr std::string_view kAddress = "allowed-ip=";
  if (option == "allow-uninspected-credentials") {
    endpoint.set_allow_uninspected_credentials(true);
  } else if (option == "websocket-credential-rewrite") {
    endpoint.set_websocket_credential_rewrite(true);
    return needs(protocol == "rest" || protocol == "websocket", "rest or websocket");
  } else if (option == "request-body-credential-rewrite") {
    endpoint.set_request_body_credential_rewrite(true);
    return needs(protocol == "rest", "rest");
  } else if (option.starts_with(kAddress)) {
    const auto address = option.substr(kAddress.size());
    if (std::find(endpoint.allowed_ips().begin(), endpoint.allowed_ips().end(), address) == endpoint.allowed_ips().end())
      endpoint.add_allowed_ips(address);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("--add-endpoint option '", option,
                                                   "' is not known; expected allow-uninspected-credentials, websocket-credential-rewrite, "
                                                   "request-body-credential-rewrite or allowed-ip=<CIDR-or-IP> in '",
                                                   word, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NetworkEndpoint> endpoint_of(const std::string& word) {
  const std::vector<std::string> parts = absl::StrSplit(word, ':');
  if (parts.size() < 2 || parts.size() > kMaxSegments) return absl::InvalidArgumentError(absl::StrCat(kEndpointForm, word, "'"));
  NetworkEndpoint endpoint;
  endpoint.set_host(trimmed(parts[0]));
  if (endpoint.host().empty()) return absl::InvalidArgumentError(absl::StrCat("--add-endpoint has an empty host segment in '", word, "'"));
  auto port = port_of("--add-endpoint", parts[1], word);
  if (!port.ok()) return port.status();
  endpoint.set_port(*port);
  endpoint.add_ports(*port);
  absl::Status status;
  if (parts.size() > 2) status.Update(set_access(endpoint, parts[2], parts.size() > 3, word));
  if (parts.size() > 3) status.Update(set_protocol(endpoint, parts[3], word));
  if (parts.size() > 4) status.Update(set_enforcement(endpoint, parts[4], word));
  if (!status.ok()) return status;
  const bool bare = endpoint.access() == sandbox::v1::NETWORK_ACCESS_PRESET_UNSPECIFIED &&
                    endpoint.enforcement() == sandbox::v1::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED;
  if (endpoint.protocol() == "tcp" && !bare)
    return absl::InvalidArgumentError(absl::StrCat("--add-endpoint protocol 'tcp' takes neither access nor enforcement in '", word, "'"));
  if (parts.size() > 5) {
    for (const auto& option : split(parts[5], ',')) {
      if (auto fault = set_option(endpoint, option, word); !fault.ok()) return fault;
    }
  }
  return endpoint;
}

struct RequestWord {
  std::string host, method, path;
  std::set<std::uint32_t> ports;
};

absl::StatusOr<RequestWord> request_of(const std::string& flag, const std::string& word) {
  const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits(':', 3));
  if (parts.size() != 4)
    return absl::InvalidArgumentError(absl::StrCat(flag, " expects host:port[,port...]:METHOD:path, got '", word, "'"));
  RequestWord out{absl::AsciiStrToLower(trimmed(parts[0])), absl::AsciiStrToUpper(parts[2]), parts[3], {}};
  if (out.host.empty()) return absl::InvalidArgumentError(absl::StrCat(flag, " has an empty host segment in '", word, "'"));
  for (const auto& text : split(parts[1], ',')) {
    auto port = port_of(flag, text, word);
    if (!port.ok()) return port.status();
    out.ports.insert(*port);
  }
  if (out.method.empty() || out.method.find_first_of(" \t") != std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(flag, " method must not be empty or hold blanks in '", word, "'"));
  if (!out.path.starts_with('/') && out.path != "**" && !out.path.starts_with("**/")) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " path must start with '/' or be '**', got '", out.path, "' in '", word, "'"));
  }
  return out;
}

/// The words of one flag by the endpoint that they are for.
using Grouped = std::map<std::pair<std::string, std::set<std::uint32_t>>, std::vector<RequestWord>>;
absl::StatusOr<Grouped> grouped(const std::string& flag, const std::vector<std::string>& words) {
  Grouped out;
  for (const auto& word : words) {
    auto request = request_of(flag, word);
    if (!request.ok()) return request.status();
    out[{request->host, request->ports}].push_back(*request);
  }
  return out;
}

absl::Status check_combination(const MergeWords& words, const std::set<std::string>& binaries) {
  const bool requests = !words.add_allow.empty() || !words.add_deny.empty();
  if (words.add_endpoints.empty() && words.remove_endpoints.empty() && words.remove_rules.empty() && !requests)
    return absl::InvalidArgumentError("policy update requires at least one operation flag");
  if (requests && !words.add_endpoints.empty())
    return absl::InvalidArgumentError("--add-allow and --add-deny cannot be combined with --add-endpoint; use two commands");
  if (requests && (words.rule_name.empty() || binaries.empty() == !words.any_binary)) {
    return absl::InvalidArgumentError(
        "--add-allow and --add-deny require --rule-name and either the complete --binary list or --any-binary");
  }
  if (!requests && words.any_binary) return absl::InvalidArgumentError("--any-binary is only supported with --add-allow or --add-deny");
  if (!requests && words.endpoint_path)
    return absl::InvalidArgumentError("--endpoint-path is only supported with --add-allow or --add-deny");
  if (!binaries.empty() && !requests && words.add_endpoints.empty())
    return absl::InvalidArgumentError("--binary goes with --add-endpoint, --add-allow or --add-deny");
  if (!words.rule_name.empty() && !requests && words.add_endpoints.size() != 1)
    return absl::InvalidArgumentError("--rule-name is only supported when exactly one --add-endpoint is provided");
  return absl::OkStatus();
}

template <class Operation>
void set_target(Operation& operation, const MergeWords& words, const std::set<std::string>& binaries, const Grouped::key_type& place) {
  auto& target = *operation.mutable_target();
  target.set_rule_name(words.rule_name);
  target.set_host(place.first);
  for (const auto port : place.second) target.add_ports(port);
  if (words.endpoint_path) target.set_path(*words.endpoint_path);
  target.set_any_binary(words.any_binary);
  for (const auto& binary : binaries) target.add_binaries()->set_path(binary);
}

absl::Status add_endpoint_rules(const MergeWords& words, const std::vector<std::string>& binaries, policy::MergeOperations& out) {
  for (const auto& word : words.add_endpoints) {
    auto endpoint = endpoint_of(word);
    if (!endpoint.ok()) return endpoint.status();
    auto& operation = *out.Add()->mutable_add_rule();
    operation.set_rule_name(words.rule_name.empty() ? policy::proposal_name(endpoint->host(), static_cast<std::uint16_t>(endpoint->port()))
                                                    : words.rule_name);
    operation.mutable_rule()->set_name(operation.rule_name());
    *operation.mutable_rule()->add_endpoints() = *endpoint;
    for (const auto& binary : binaries) operation.mutable_rule()->add_binaries()->set_path(binary);
  }
  return absl::OkStatus();
}

absl::Status add_removals(const MergeWords& words, policy::MergeOperations& out) {
  for (const auto& word : words.remove_endpoints) {
    const std::vector<std::string> parts = absl::StrSplit(word, ':');
    if (parts.size() != 2) return absl::InvalidArgumentError(absl::StrCat("--remove-endpoint expects host:port, got '", word, "'"));
    if (trimmed(parts[0]).empty())
      return absl::InvalidArgumentError(absl::StrCat("--remove-endpoint has an empty host segment in '", word, "'"));
    auto port = port_of("--remove-endpoint", parts[1], word);
    if (!port.ok()) return port.status();
    auto& operation = *out.Add()->mutable_remove_endpoint();
    operation.set_host(trimmed(parts[0]));
    operation.set_port(*port);
  }
  for (const auto& name : words.remove_rules) {
    if (trimmed(name).empty()) return absl::InvalidArgumentError("--remove-rule values must not be empty");
    out.Add()->mutable_remove_rule()->set_rule_name(trimmed(name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status add_operations(const MergeWords& words, policy::MergeOperations& out) {
  std::vector<std::string> binaries;  // in the order of the words, each once
  for (const auto& binary : words.binaries) {
    const auto path = trimmed(binary);
    if (path.empty()) return absl::InvalidArgumentError("--binary values must not be empty");
    if (std::find(binaries.begin(), binaries.end(), path) == binaries.end()) binaries.push_back(path);
  }
  const std::set<std::string> scope{binaries.begin(), binaries.end()};
  if (auto status = check_combination(words, scope); !status.ok()) return status;
  if (auto status = add_endpoint_rules(words, binaries, out); !status.ok()) return status;
  if (auto status = add_removals(words, out); !status.ok()) return status;
  auto allow = grouped("--add-allow", words.add_allow);
  if (!allow.ok()) return allow.status();
  for (const auto& [place, requests] : *allow) {
    auto& operation = *out.Add()->mutable_add_allow_rules();
    set_target(operation, words, scope, place);
    for (const auto& request : requests) {
      auto& rule = *operation.add_rules()->mutable_allow();
      rule.set_method(request.method);
      rule.set_path(request.path);
    }
  }
  auto deny = grouped("--add-deny", words.add_deny);
  if (!deny.ok()) return deny.status();
  for (const auto& [place, requests] : *deny) {
    auto& operation = *out.Add()->mutable_add_deny_rules();
    set_target(operation, words, scope, place);
    for (const auto& request : requests) {
      auto& rule = *operation.add_deny_rules();
      rule.set_method(request.method);
      rule.set_path(request.path);
    }
  }
  return absl::OkStatus();
}

}  // namespace openshell::cli
