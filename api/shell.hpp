// The gRPC side of the service: takes every call generically, authenticates and authorises it, then runs the handler that the Router has
// for it. This is the only place that knows gRPC on the server's side.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/admissions.hpp"
#include "api/authentication.hpp"
#include "api/authorization.hpp"
#include "api/service.hpp"

namespace openshell::api {

/// PEM texts of the gateway's own certificate and of the CA of its clients.
struct TlsMaterial {
  std::string certificate_chain;
  Secret private_key;
  std::string client_ca;  ///< empty: client certificates are not asked for
};

struct RateLimit {
  std::uint64_t requests = 0;  ///< 0: off
  std::uint64_t window_seconds = 0;
};

struct ShellOptions {
  const Router* router = nullptr;
  const Authenticator* authenticator = nullptr;
  const AuthorizationTable* table = nullptr;
  RolePolicy roles;
  std::shared_ptr<Admissions> admissions;  ///< absent: no request_id is recognised again
  RateLimit rate_limit;
  std::string unix_socket;         ///< absolute path in a private directory, under 108 bytes
  std::optional<TlsMaterial> tls;  ///< absent: plaintext
  /// Address of the caller behind a connection of the front (`unix-abstract:NAME`); for logs only.
  std::function<std::string(const std::string& peer)> caller_address;
};

class Shell {
 public:
  /// Starts serving on the Unix socket. What the options point to outlives the shell.
  static absl::StatusOr<std::unique_ptr<Shell>> start(ShellOptions options);
  virtual ~Shell() = default;
  /// No new calls; those that run get `grace_ms`, then they are cancelled. Blocks.
  virtual void stop(std::int64_t grace_ms) = 0;
};

}  // namespace openshell::api
