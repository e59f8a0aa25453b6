#include "egress/io/tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egress/ip_address.hpp"
#include "pki/certificate.hpp"

namespace openshell::egress {
namespace {

constexpr std::string_view kAlpn = "\x08http/1.1";
constexpr std::array kSystemBundles = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                       "/etc/ssl/cert.pem"};
constexpr std::size_t kPlaintextChunk = 16 * 1024;  // one TLS record
constexpr std::size_t kRecordOverhead = 64;         // bytes of a record beside its text: header, nonce, type, tag
// Records are read into this one and copied, so that what a connection keeps is as large as what came. Used between two waits only.
thread_local std::array<char, kPlaintextChunk> record_of_thread;

std::string openssl_error() {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "TLS error" : text;
}

/// Picks http/1.1 where the client offers it; a client that offers only others gets no protocol and speaks HTTP/1.1 or nothing.
int select_alpn(SSL*, const unsigned char** out, unsigned char* length, const unsigned char* offered, unsigned int offered_length, void*) {
  unsigned char* chosen = nullptr;
  const auto result = SSL_select_next_proto(&chosen, length, reinterpret_cast<const unsigned char*>(kAlpn.data()),
                                            static_cast<unsigned int>(kAlpn.size()), offered, offered_length);
  if (result != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

SslContext new_context(const SSL_METHOD* method) {
  SslContext context{SSL_CTX_new(method), [](ssl_ctx_st* raw) { SSL_CTX_free(raw); }};
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);  // towards the workload tickets do without
  SSL_CTX_set_num_tickets(context.get(), 1);
  SSL_CTX_set_max_early_data(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  return context;
}

absl::Status add_roots(SSL_CTX* context, std::string_view pem, std::size_t& count) {
  const auto certificates = pki::certificates_from_pem(pem);
  if (!certificates.ok()) return certificates.status();
  for (const auto& certificate : *certificates) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate.native());
    ++count;
  }
  ERR_clear_error();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SslContext> LeafCache::context_for(const std::string& host) {
  if (ca_ == nullptr) return absl::FailedPreconditionError("there is no sandbox CA");
  if (const auto known = contexts_.find(host); known != contexts_.end()) return known->second;
  auto leaf = ca_->issue(pki::server_profile(host), pki::KeyKind::kP256);
  if (!leaf.ok()) return leaf.status();
  auto context = new_context(TLS_server_method());
  SSL_CTX_set_alpn_select_cb(context.get(), &select_alpn, nullptr);
  X509* authority = ca_->certificate().native();
  if (SSL_CTX_use_certificate(context.get(), leaf->certificate.native()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), leaf->key.native()) != 1 || SSL_CTX_add1_chain_cert(context.get(), authority) != 1) {
    return absl::InternalError(openssl_error());
  }
  if (contexts_.size() >= kMaxHosts) contexts_.clear();
  contexts_.emplace(host, context);
  return context;
}

namespace {

// Debian and its kin keep each root in a file of its own too, named after a hash of its subject (openssl-rehash(1)): OpenSSL then reads the
// one that a connection needs. All 150 of the bundle at each start are 25 ms and a megabyte for each sandbox.
constexpr const char* kHashedRoots = "/etc/ssl/certs";

bool is_hashed_name(std::string_view name) {
  return name.size() == 10 && name.find_first_not_of("0123456789abcdef") == 8 && name[8] == '.' && name[9] >= '0' && name[9] <= '9';
}

bool has_hashed_roots() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator{kHashedRoots, error}) {
    if (is_hashed_name(entry.path().filename().native()) && std::filesystem::exists(entry, error)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<SslContext> make_upstream_context(bool system_roots, std::string_view additional_pem) {
  auto context = new_context(TLS_client_method());
  std::size_t count = 0;
  if (system_roots && has_hashed_roots() && SSL_CTX_load_verify_dir(context.get(), kHashedRoots) == 1) ++count;
  for (const char* path : kSystemBundles) {
    if (!system_roots || count > 0) break;
    std::ifstream file{path, std::ios::binary};
    const std::string pem{std::istreambuf_iterator<char>{file}, {}};
    // A root that this OpenSSL cannot read must not take the others away, so the host's own file may be imperfect.
    if (!pem.empty() && SSL_CTX_load_verify_file(context.get(), path) == 1) ++count;
    ERR_clear_error();
  }
  if (!additional_pem.empty()) {
    if (auto status = add_roots(context.get(), additional_pem, count); !status.ok()) {
      return absl::InvalidArgumentError(fmt::format("additional CA bundle: {}", std::string{status.message()}));
    }
  }
  if (count == 0) return absl::FailedPreconditionError("no trusted roots: the host has no CA bundle and no additional one was given");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context.get(), &TlsStream::remember);
  SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(kAlpn.data()), static_cast<unsigned int>(kAlpn.size()));
  return context;
}

void SessionCache::put(const std::string& upstream, std::shared_ptr<ssl_session_st> session) {
  if (sessions_.size() >= kMaxSessions && !sessions_.contains(upstream)) sessions_.clear();
  sessions_.insert_or_assign(upstream, std::move(session));
}

std::shared_ptr<ssl_session_st> SessionCache::take(const std::string& upstream) {
  const auto found = sessions_.find(upstream);
  if (found == sessions_.end()) return nullptr;
  auto session = std::move(found->second);
  sessions_.erase(found);
  const auto age = std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(SSL_SESSION_get_time(session.get()));
  return age < kMaxAge ? session : nullptr;
}

/// A BIO over the stream's two strings: what was read is taken from where it lies, and holds no memory once it was taken.
struct TlsStream::Link {
  static TlsStream& stream_of(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* out, int size) {
    auto& stream = stream_of(bio);
    BIO_clear_retry_flags(bio);
    const auto left = stream.incoming_.size() - stream.taken_;
    if (left == 0) {
      if (stream.ended_) return 0;
      BIO_set_retry_read(bio);
      return -1;
    }
    const auto count = std::min(left, static_cast<std::size_t>(std::max(size, 0)));
    std::memcpy(out, stream.incoming_.data() + stream.taken_, count);
    stream.taken_ += count;
    if (count == left) {
      stream.incoming_ = {};
      stream.taken_ = 0;
    }
    return static_cast<int>(count);
  }

  static int write(BIO* bio, const char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    stream_of(bio).outgoing_.append(bytes, static_cast<std::size_t>(std::max(size, 0)));
    return size;
  }

  static long control(BIO* bio, int what, long, void*) {
    const auto& stream = stream_of(bio);
    switch (what) {
      case BIO_CTRL_FLUSH:
        return 1;
      case BIO_CTRL_EOF:
        return stream.ended_ && stream.incoming_.empty() ? 1 : 0;
      case BIO_CTRL_PENDING:
        return static_cast<long>(stream.incoming_.size() - stream.taken_);
      case BIO_CTRL_WPENDING:
        return static_cast<long>(stream.outgoing_.size());
      default:
        return 0;
    }
  }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      auto* out = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
      BIO_meth_set_read(out, &Link::read);
      BIO_meth_set_write(out, &Link::write);
      BIO_meth_set_ctrl(out, &Link::control);
      return out;
    }();
    return made;
  }
};

TlsStream::TlsStream(asio::io_context& io, AsyncStream& below, ssl_st* ssl) : io_{io}, below_{below}, ssl_{ssl} {
  BIO* link = BIO_new(Link::method());
  BIO_set_data(link, this);
  BIO_set_init(link, 1);
  SSL_set_bio(ssl_, link, link);
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

std::unique_ptr<TlsStream> TlsStream::server(asio::io_context& io, AsyncStream& below, const SslContext& context) {
  SSL* ssl = SSL_new(context.get());
  SSL_set_accept_state(ssl);
  return std::unique_ptr<TlsStream>{new TlsStream{io, below, ssl}};
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::client(asio::io_context& io, AsyncStream& below, const SslContext& context,
                                                             const std::string& host, Port port, SessionCache* sessions) {
  SSL* ssl = SSL_new(context.get());
  std::unique_ptr<TlsStream> out{new TlsStream{io, below, ssl}};
  SSL_set_connect_state(ssl);
  auto* verify = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool literal = IpAddress::parse(host).ok();
  const bool set =
      literal ? X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str()) == 1
              : X509_VERIFY_PARAM_set1_host(verify, host.c_str(), host.size()) == 1 && SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  if (!set) return absl::InternalError(openssl_error());
  if (sessions == nullptr) return out;
  out->sessions_ = sessions;
  out->upstream_ = fmt::format("{}:{}", host, port.value);
  SSL_set_app_data(ssl, out.get());
  if (const auto session = sessions->take(out->upstream_)) SSL_set_session(ssl, session.get());
  return out;
}

bool TlsStream::resumed() const noexcept { return SSL_session_reused(ssl_) == 1; }

int TlsStream::remember(ssl_st* ssl, ssl_session_st* session) {
  auto* stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
  if (stream == nullptr || stream->sessions_ == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) return 0;
  stream->sessions_->put(stream->upstream_, {session, [](ssl_session_st* kept) { SSL_SESSION_free(kept); }});
  return 1;
}

absl::Status TlsStream::failure() const {
  const long verdict = SSL_get_verify_result(ssl_);
  const auto reason = openssl_error();
  if (!SSL_is_server(ssl_) && verdict != X509_V_OK) return absl::UnauthenticatedError(X509_verify_cert_error_string(verdict));
  return absl::UnavailableError(reason);
}

Task<absl::Status> TlsStream::flush() {
  while (flushing_) {
    if (!flushed_) flushed_ = std::make_shared<Gate>(io_);
    const auto other = flushed_;
    co_await other->wait();
  }
  if (outgoing_.empty()) co_return absl::OkStatus();
  flushing_ = true;
  absl::Status status;
  while (status.ok() && !outgoing_.empty()) {
    std::string bytes = std::exchange(outgoing_, {});
    status = co_await below_.write(std::move(bytes));
  }
  flushing_ = false;
  if (const auto waiting = std::exchange(flushed_, nullptr)) waiting->open();
  co_return status;
}

Task<absl::StatusOr<bool>> TlsStream::feed() {
  auto bytes = co_await below_.read();
  if (!bytes.ok()) co_return bytes.status();
  ended_ = bytes->empty();
  add_incoming(std::move(*bytes));
  co_return !ended_;
}

void TlsStream::add_incoming(std::string bytes) {
  if (incoming_.empty()) {
    incoming_ = std::move(bytes);
  } else {
    incoming_.append(bytes);
  }
}

Task<absl::Status> TlsStream::handshake(std::string first) {
  add_incoming(std::move(first));
  while (true) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, result);
    absl::Status failed;
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) failed = failure();
    auto flushed = co_await flush();  // an alert too
    if (!failed.ok()) co_return failed;
    if (!flushed.ok()) co_return flushed;
    if (error == SSL_ERROR_NONE) co_return absl::OkStatus();
    const auto more = co_await feed();
    if (!more.ok()) co_return more.status();
    if (!*more) co_return absl::UnavailableError("peer ended the TLS handshake");
  }
}

Task<absl::StatusOr<std::string>> TlsStream::read() {
  while (true) {
    std::string out;
    bool ended = false;
    absl::Status failed;
    while (out.size() <= ByteStream::kMaxChunk - kPlaintextChunk) {
      std::size_t count = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_, record_of_thread.data(), record_of_thread.size(), &count);
      out.append(record_of_thread.data(), count);
      if (result == 1) continue;
      const int error = SSL_get_error(ssl_, result);
      if (error == SSL_ERROR_ZERO_RETURN) {
        ended = true;
      } else if (error != SSL_ERROR_WANT_READ) {
        failed = failure();
      }
      break;
    }
    if (!out.empty()) co_return out;
    if (ended) co_return std::string{};
    if (!failed.ok()) co_return failed;
    if (auto status = co_await flush(); !status.ok()) co_return status;  // what the peer's message obliges us to say
    const auto more = co_await feed();
    if (!more.ok()) co_return more.status();
    if (!*more && SSL_is_server(ssl_)) co_return std::string{};
    if (!*more) co_return absl::UnavailableError("peer ended the connection without close_notify");
  }
}

Task<absl::Status> TlsStream::write(std::string bytes) {
  std::size_t written = 0;
  outgoing_.reserve(outgoing_.size() + bytes.size() + (bytes.size() / kPlaintextChunk + 1) * kRecordOverhead);
  ERR_clear_error();
  if (SSL_write_ex(ssl_, bytes.data(), bytes.size(), &written) != 1) co_return failure();
  auto status = co_await flush();
  co_return status;
}

Task<void> TlsStream::shutdown_write() {
  ERR_clear_error();
  SSL_shutdown(ssl_);
  const auto status = co_await flush();
  if (status.ok()) co_await below_.shutdown_write();
}

}  // namespace openshell::egress
