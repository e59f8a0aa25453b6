#include "programs/supervisor/handover_line.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "isolation/boundary/socket_passing.hpp"

namespace openshell::supervisor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kExpiryTick{1'000}, kIdleTick{10'000};

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* object) const { Free(object); }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Freed<SSL, SSL_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;

Bio reading(std::string_view text) { return Bio{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))}; }

absl::Status tls_error(const char* what) {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return absl::UnavailableError(std::string{"hand-over connection: "} + what + ": " + (reason == nullptr ? "failed" : reason));
}

bool add_trust(SSL_CTX* context, const std::string& pem) {
  const auto bio = reading(pem);
  const Certificate anchor{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)};
  return anchor && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), anchor.get()) == 1;
}

bool use_identity(SSL_CTX* context, const boundary::Descriptor& descriptor) {
  const auto chain = reading(descriptor.tls_client_certificate_pem);
  const Certificate leaf{PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr)};
  const auto pem = reading(descriptor.tls_client_private_key_pem.reveal());
  const Key key{PEM_read_bio_PrivateKey(pem.get(), nullptr, nullptr, nullptr)};
  return leaf && key && SSL_CTX_use_certificate(context, leaf.get()) == 1 && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

}  // namespace

std::shared_ptr<HandoverLine> HandoverLine::start(const boundary::Descriptor& descriptor) {
  const auto* transport = std::get_if<boundary::UnixTransport>(&descriptor.transport);
  if (transport == nullptr) return nullptr;
  return std::shared_ptr<HandoverLine>{new HandoverLine{descriptor, transport->socket_path}};
}

HandoverLine::HandoverLine(const boundary::Descriptor& descriptor, std::string path)
    : path_{std::move(path)}, descriptor_{descriptor}, stop_{::eventfd(0, EFD_CLOEXEC)}, thread_{[this] { run(); }} {}

HandoverLine::~HandoverLine() { stop(); }

void HandoverLine::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) < 0) spdlog::error("the hand-over line cannot be told to stop");
  thread_.join();
}

bool HandoverLine::expect(const std::string& ticket, Done done) {
  const std::lock_guard lock{mutex_};
  if (!up_) return false;
  waiting_.insert_or_assign(ticket, Waiting{std::move(done), Clock::now() + kSocketDeadline});
  return true;
}

void HandoverLine::forget(const std::string& ticket) {
  const std::lock_guard lock{mutex_};
  waiting_.erase(ticket);
}

void HandoverLine::run() {
  auto wait = kFirstPause;
  while (true) {
    auto connection = connect();
    if (connection.ok()) {
      wait = kFirstPause;
      up_ = true;
      serve(connection->get());
      {
        const std::lock_guard lock{mutex_};
        up_ = false;
      }
      fail_all(absl::UnavailableError("the hand-over connection broke"));
    }
    if (pause(wait)) return;
    wait = std::min(wait * 2, kLongestPause);
  }
}

/// True: it is to stop.
bool HandoverLine::pause(std::chrono::milliseconds time) {
  pollfd entry{stop_.get(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(time.count())) > 0;
}

absl::StatusOr<isolation::FileDescriptor> HandoverLine::connect() {
  isolation::FileDescriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "hand-over connection");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) return absl::InvalidArgumentError("hand-over connection: the socket path is too long");
  path_.copy(address.sun_path, path_.size());
  const timeval limit{kHandshakeDeadline.count(), 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return absl::ErrnoToStatus(errno, "hand-over connection");
  if (auto status = handshake(fd.get()); !status.ok()) return status;
  return fd;
}

/// OpenSSL reads one record at a time from the descriptor, so that the first message behind the handshake is still in the socket.
absl::Status HandoverLine::handshake(int fd) {
  const Context context{SSL_CTX_new(TLS_client_method())};
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1) return tls_error("no TLS 1.3");
  if (!add_trust(context.get(), descriptor_.tls_trust_anchor_pem)) return tls_error("trust anchor");
  if (!use_identity(context.get(), descriptor_)) return tls_error("client certificate");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_read_ahead(context.get(), 0);
  const Session session{SSL_new(context.get())};
  std::string protocols{static_cast<char>(boundary::kHandoverAlpn.size())};
  protocols += boundary::kHandoverAlpn;
  const auto* offered = reinterpret_cast<const unsigned char*>(protocols.data());
  const auto& name = descriptor_.tls_server_name;
  if (!session || SSL_set_alpn_protos(session.get(), offered, static_cast<unsigned>(protocols.size())) != 0 ||
      SSL_set1_host(session.get(), name.c_str()) != 1 || SSL_set_tlsext_host_name(session.get(), name.c_str()) != 1 ||
      SSL_set_fd(session.get(), fd) != 1) {
    return tls_error("set-up");
  }
  ERR_clear_error();
  if (SSL_connect(session.get()) != 1) return tls_error("handshake");
  const unsigned char* chosen = nullptr;
  unsigned int length = 0;
  SSL_get0_alpn_selected(session.get(), &chosen, &length);
  const std::string_view spoken{reinterpret_cast<const char*>(chosen), length};
  if (spoken != boundary::kHandoverAlpn) return absl::UnavailableError("hand-over connection: the runtime does not know it");
  return absl::OkStatus();  // no close_notify: from here on the socket carries messages
}

void HandoverLine::serve(int fd) {
  while (true) {
    bool any = false;
    {
      const std::lock_guard lock{mutex_};
      any = !waiting_.empty();
    }
    std::array<pollfd, 2> entries{{{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    // Something may come to be expected during the wait, hence always a tick.
    const auto tick = any ? kExpiryTick : kIdleTick;
    if (::poll(entries.data(), entries.size(), static_cast<int>(tick.count())) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    expire(Clock::now());
    if (entries[0].revents == 0) continue;
    auto passed = boundary::receive_socket(fd);
    if (!passed.ok()) {
      spdlog::warn("{}", std::string{passed.status().message()});
      return;
    }
    if (!passed->socket.valid()) {
      arrived(std::move(passed->ticket), absl::ResourceExhaustedError("no descriptor is left for a relay"));
    } else if (auto status = boundary::check_relay_socket(passed->socket.get()); !status.ok()) {
      spdlog::warn("{}", std::string{status.message()});
      arrived(std::move(passed->ticket), std::move(status));
    } else {
      arrived(std::move(passed->ticket), std::move(passed->socket));
    }
  }
}

void HandoverLine::arrived(std::string ticket, absl::StatusOr<isolation::FileDescriptor> socket) {
  Done done;
  {
    const std::lock_guard lock{mutex_};
    const auto found = waiting_.find(ticket);
    if (found == waiting_.end()) return;  // nobody asked for it, or no longer
    done = std::move(found->second.done);
    waiting_.erase(found);
  }
  done(std::move(socket));
}

void HandoverLine::expire(Clock::time_point now) {
  std::vector<std::string> late;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [ticket, entry] : waiting_) {
      if (entry.deadline <= now) late.push_back(ticket);
    }
  }
  for (auto& ticket : late) arrived(std::move(ticket), absl::DeadlineExceededError("the runtime passed no socket for an allowed open"));
}

void HandoverLine::fail_all(const absl::Status& why) {
  std::map<std::string, Waiting> all;
  {
    const std::lock_guard lock{mutex_};
    all.swap(waiting_);
  }
  for (auto& [ticket, entry] : all) entry.done(why);
}

}  // namespace openshell::supervisor
