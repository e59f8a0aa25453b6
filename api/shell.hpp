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
  std::string unix_socket;         ///< also listen there: absolute path in a private directory, under 108 bytes; empty: no listener
  std::optional<TlsMaterial> tls;  ///< absent: plaintext
};

class Shell {
 public:
  /// Starts serving. What the options point to outlives the shell.
  static absl::StatusOr<std::unique_ptr<Shell>> start(ShellOptions options);
  virtual ~Shell() = default;
  /// Serves a connected TCP socket, non-blocking, from its first byte on; takes the descriptor. Thread-safe.
  virtual void serve(int fd) = 0;
  /// No new calls; those that run get `grace_ms`, then they are cancelled. Blocks.
  virtual void stop(std::int64_t grace_ms) = 0;
};

}  // namespace openshell::api
