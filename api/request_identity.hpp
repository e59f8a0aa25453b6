// What makes a request the same as an earlier one: which methods take a `request_id`, where it stands, and the fingerprint of all the rest.
// Pure.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/call_context.hpp"
#include "messages/secret.hpp"

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf

namespace openshell::api {

/// A method whose request (of ExecSandboxInteractive: its `start`) has a `request_id`.
struct CoveredMethod {
  std::string name;
  bool unary = true;  ///< false: an exec, whose output is not kept
  const google::protobuf::Descriptor* answer = nullptr;
  bool secret = true;  ///< its request may hold secrets, so its fingerprint takes a key
};
/// All of `openshell.v1.OpenShell`, by name.
std::map<std::string, CoveredMethod, std::less<>> covered_methods();

/// The message with the id: the request itself or its `start`; null where an input message has none.
google::protobuf::Message* identified_part(google::protobuf::Message& request);
std::string request_id_of(const google::protobuf::Message& part);

/// Where the request works.
struct RequestScope {
  std::string workspace;  ///< part of the admission's key; empty: platform
  std::string role_in;    ///< workspace in which the method's role is asked for, and which has to exist; empty: none
  bool platform_admin = false;
};
/// INVALID_ARGUMENT naming `workspace_scope` where one is needed and missing.
absl::StatusOr<RequestScope> scope_of(std::string_view method, const google::protobuf::Message& part);
/// Name of the sandbox that a replay needs to find again; empty: none.
std::string sandbox_of(std::string_view method, const google::protobuf::Message& part);

/// Lower-case hex SHA-256 over identity provider, issuer and subject.
std::string caller_hash(const Identity& identity);
/// Lower-case hex SHA-256 over caller, method, workspace and the id in lower case: one admission each.
std::string admission_key(std::string_view caller, std::string_view method, std::string_view workspace, std::string_view request_id);

/// Derived from a private key of the gateway, so that a stolen database tells nothing about short secrets in requests.
class FingerprintKey {
 public:
  /// `private_key`: the bytes of the key's file.
  explicit FingerprintKey(const Secret& private_key);
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] std::string_view bytes() const { return key_.reveal(); }

 private:
  Secret key_;
  std::string id_;
};

/// 32 bytes over everything in `part` but its request_id; order of map entries does not count, absent and present-but-default differ.
/// Leaves `part` as it was. `key` null: plain SHA-256.
std::string fingerprint(google::protobuf::Message& part, const FingerprintKey* key);

}  // namespace openshell::api
