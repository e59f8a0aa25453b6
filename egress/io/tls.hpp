// TLS over any stream, both ends: towards the workload with a certificate of the sandbox CA, towards the network with full verification.
// TLS 1.2 at least, ALPN http/1.1 only, no early data (L7 rows; RFC 8446). Sessions are resumed on both sides: what is resumed was verified
// when it was made, under the same name and the same roots.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "egress/io/streams.hpp"
#include "messages/values.hpp"

struct ssl_ctx_st;
struct ssl_st;
struct ssl_session_st;

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

/// The newest session of each upstream, to be resumed once: the next connection brings another (RFC 8446 C.4). One thread.
class SessionCache {
 public:
  static constexpr std::size_t kMaxSessions = 256;       ///< when full, all are forgotten
  static constexpr std::chrono::seconds kMaxAge{3'600};  ///< after which a certificate is looked at again
  void put(const std::string& upstream, std::shared_ptr<ssl_session_st> session);
  /// Null: there is none.
  std::shared_ptr<ssl_session_st> take(const std::string& upstream);
  [[nodiscard]] std::size_t size() const noexcept { return sessions_.size(); }

 private:
  std::unordered_map<std::string, std::shared_ptr<ssl_session_st>> sessions_;
};

/// The client context towards the network. INVALID_ARGUMENT: a bundle does not parse; FAILED_PRECONDITION: no roots at all.
absl::StatusOr<SslContext> make_upstream_context(bool system_roots, std::string_view additional_pem);

/// TLS on top of another stream, which it borrows and which must outlive it.
class TlsStream final : public AsyncStream {
 public:
  /// The server side, with the context of LeafCache.
  static std::unique_ptr<TlsStream> server(asio::io_context& io, AsyncStream& below, const SslContext& context);
  /// The client side. The certificate must be valid for `host` (name or literal). `sessions`, which outlives the stream, is asked for one
  /// of `host:port` and gets the new one; null: none is resumed.
  static absl::StatusOr<std::unique_ptr<TlsStream>> client(asio::io_context& io, AsyncStream& below, const SslContext& context,
                                                           const std::string& host, Port port, SessionCache* sessions);
  ~TlsStream() override;

  /// `first`: ciphertext that was read already. UNAUTHENTICATED: the peer's certificate was refused (the message says why);
  /// UNAVAILABLE: anything else.
  Task<absl::Status> handshake(std::string first = {});
  Task<absl::StatusOr<std::string>> read() override;
  Task<absl::Status> write(std::string bytes) override;
  Task<void> shutdown_write() override;  ///< close_notify, then half-close below
  void reset() override { below_.reset(); }
  /// True after a handshake that resumed an earlier session.
  [[nodiscard]] bool resumed() const noexcept;
  /// OpenSSL's callback for a new session of a client context. Returns 1 where it keeps the reference.
  static int remember(ssl_st* ssl, ssl_session_st* session);

 private:
  struct Link;  // OpenSSL's way to the two buffers
  TlsStream(asio::io_context& io, AsyncStream& below, ssl_st* ssl);
  Task<absl::Status> flush();
  void add_incoming(std::string bytes);
  Task<absl::StatusOr<bool>> feed();  // false: the peer ended its direction
  absl::Status failure() const;

  asio::io_context& io_;
  AsyncStream& below_;
  ssl_st* ssl_;
  std::string incoming_;  // ciphertext that OpenSSL has not taken; nothing is kept between two reads
  std::size_t taken_ = 0;
  bool ended_ = false;    // nothing comes behind `incoming_`
  std::string outgoing_;  // ciphertext on its way to `below_`
  SessionCache* sessions_ = nullptr;
  std::string upstream_;           // key of the cache
  bool flushing_ = false;          // reads may have to write, and one write below is all there may be
  std::shared_ptr<Gate> flushed_;  // set where somebody waits for the end of a flush
};

}  // namespace openshell::egress
