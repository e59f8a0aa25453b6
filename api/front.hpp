// The gateway's listeners. One TCP port carries gRPC and HTTP/1.1, over TLS or not: the front looks at the first bytes of a connection
// without taking them and hands a gRPC connection as it is to the gRPC server, so that TLS with a gRPC client is ended by gRPC and no byte
// of it is copied here, and serves everything else itself.
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
  std::string address;               ///< IP literal
  std::uint16_t port = 0;            ///< 0: any free one, see Front::port()
  std::function<void(int fd)> grpc;  ///< takes the descriptor of a gRPC connection, nothing read from it; on the front's thread
  std::optional<TlsMaterial> tls;    ///< for HTTP/1.1; absent: plaintext
  HttpHandler http;                  ///< everything on this port that is not gRPC
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
  /// No new connections; the listeners are closed.
  virtual void stop_accepting() = 0;
  /// Ends everything and joins the thread.
  virtual void close() = 0;
};

}  // namespace openshell::api
