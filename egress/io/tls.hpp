// TLS over any stream, both ends: towards the workload with a certificate of the sandbox CA, towards the network with full verification.
// TLS 1.2 at least, ALPN http/1.1 only, no early data, no resumption (L7 rows; RFC 8446).
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "egress/io/streams.hpp"

struct ssl_ctx_st;
struct ssl_st;

namespace openshell::pki {
class CertificateAuthority;
}

namespace openshell::egress {

using SslContext = std::shared_ptr<ssl_ctx_st>;

/// Server contexts per host, each with a leaf of the sandbox CA. One thread.
class LeafCache {
 public:
  static constexpr std::size_t kMaxHosts = 256;  ///< when full, all are forgotten
  explicit LeafCache(std::shared_ptr<const pki::CertificateAuthority> ca) : ca_{std::move(ca)} {}
  [[nodiscard]] bool available() const noexcept { return ca_ != nullptr; }
  /// `host`: the authorised name or literal, never what the client sent as SNI. A new host costs a key and a signature, about 0.1 ms.
  absl::StatusOr<SslContext> context_for(const std::string& host);
  [[nodiscard]] std::size_t size() const noexcept { return contexts_.size(); }

 private:
  std::shared_ptr<const pki::CertificateAuthority> ca_;
  std::unordered_map<std::string, SslContext> contexts_;
};

/// The client context towards the network. INVALID_ARGUMENT: a bundle does not parse; FAILED_PRECONDITION: no roots at all.
absl::StatusOr<SslContext> make_upstream_context(bool system_roots, std::string_view additional_pem);

/// TLS on top of another stream, which it borrows and which must outlive it.
class TlsStream final : public AsyncStream {
 public:
  /// The server side, with the context of LeafCache.
  static std::unique_ptr<TlsStream> server(asio::io_context& io, AsyncStream& below, const SslContext& context);
  /// The client side. The certificate must be valid for `host` (name or literal).
  static absl::StatusOr<std::unique_ptr<TlsStream>> client(asio::io_context& io, AsyncStream& below, const SslContext& context,
                                                           const std::string& host);
  ~TlsStream() override;

  /// `first`: ciphertext that was read already. UNAUTHENTICATED: the peer's certificate was refused (the message says why);
  /// UNAVAILABLE: anything else.
  Task<absl::Status> handshake(std::string first = {});
  Task<absl::StatusOr<std::string>> read() override;
  Task<absl::Status> write(std::string bytes) override;
  Task<void> shutdown_write() override;  ///< close_notify, then half-close below
  void reset() override { below_.reset(); }

 private:
  TlsStream(asio::io_context& io, AsyncStream& below, ssl_st* ssl);
  Task<absl::Status> flush();
  Task<absl::StatusOr<bool>> feed();  // false: the peer ended its direction
  absl::Status failure() const;

  asio::io_context& io_;
  AsyncStream& below_;
  ssl_st* ssl_;
  std::shared_ptr<Gate> flushing_;  // set while a flush runs: reads may have to write, and one write below is all there may be
};

}  // namespace openshell::egress
