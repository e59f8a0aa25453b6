// The gateway's listeners. One TCP port carries gRPC and HTTP/1.1, over TLS or not: the front looks at the first bytes of a connection
// without taking them and passes a gRPC connection as it is to the gRPC server's Unix socket, so that TLS with a gRPC client is ended by
// gRPC, and serves everything else itself.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "api/http.hpp"
#include "api/shell.hpp"

namespace openshell::api {

constexpr std::size_t kMaxOpeningConnections = 1024;  ///< connections whose kind is not known yet; more are closed at once
constexpr int kOpeningSeconds = 5;                    ///< time for the first bytes of a connection

struct FrontOptions {
  std::string address;             ///< IP literal
  std::uint16_t port = 0;          ///< 0: any free one, see Front::port()
  std::string grpc_socket;         ///< the shell's Unix socket
  std::optional<TlsMaterial> tls;  ///< for HTTP/1.1; absent: plaintext
  HttpHandler http;                ///< everything on this port that is not gRPC
};

/// Runs on one thread of its own.
class Front {
 public:
  /// Binds; UNAVAILABLE `failed to bind to A: ...`. Accepts from open() on.
  static absl::StatusOr<std::unique_ptr<Front>> bind(FrontOptions options);
  virtual ~Front() = default;
  virtual void open() = 0;
  /// A further plaintext HTTP listener: health, metrics. `what` is for the error: "health port". Before open().
  virtual absl::Status add_http(const std::string& what, const std::string& address, std::uint16_t port, HttpHandler handler) = 0;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// Address of the caller behind a gRPC peer name (`unix-abstract:...`); the name itself where it is unknown. Thread-safe.
  [[nodiscard]] virtual std::string caller_address(const std::string& peer) const = 0;
  /// No new connections; the listeners are closed. Those that are passed on live until gRPC ends them or close().
  virtual void stop_accepting() = 0;
  /// Ends everything and joins the thread.
  virtual void close() = 0;
};

}  // namespace openshell::api
