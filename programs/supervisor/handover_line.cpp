#include "programs/supervisor/handover_line.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "isolation/boundary/framing.hpp"
#include "isolation/unix_address.hpp"
#include "pki/certificate.hpp"

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

absl::Status tls_error(const char* what) {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return absl::UnavailableError(std::string{"hand-over connection: "} + what + ": " + (reason == nullptr ? "failed" : reason));
}

bool add_trust(SSL_CTX* context, const std::string& pem) {
  const auto anchor = pki::Certificate::from_pem(pem);
  return anchor.ok() && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), anchor->native()) == 1;
}

bool use_identity(SSL_CTX* context, const boundary::Descriptor& descriptor) {
  const auto leaf = pki::Certificate::from_pem(descriptor.tls_client_certificate_pem);
  const auto key = pki::PrivateKey::from_pem(descriptor.tls_client_private_key_pem);
  return leaf.ok() && key.ok() && SSL_CTX_use_certificate(context, leaf->native()) == 1 &&
         SSL_CTX_use_PrivateKey(context, key->native()) == 1;
}

}  // namespace

/// One open as a stream: its decision is written, and its end is read.
class HandoverLine::Call final : public egress::ByteStream {
 public:
  Call(std::weak_ptr<HandoverLine> line, std::uint64_t connection, std::string ticket)
      : line_{std::move(line)}, connection_{connection}, ticket_{std::move(ticket)} {}

  void write(std::string bytes, WriteDone done) override {
    const auto line = line_.lock();
    done(line ? line->decide(connection_, ticket_, bytes) : absl::UnavailableError("the line to the sandbox is gone"));
  }
  void read(ReadDone done) override {
    std::unique_lock lock{mutex_};
    if (!end_) {
      waiting_ = std::move(done);
      return;
    }
    auto end = *end_;
    lock.unlock();
    answer(std::move(done), end);
  }
  void shutdown_write() override {}
  void reset() override { ended(absl::AbortedError("the stream was reset")); }

  void ended(const absl::Status& status) {
    std::unique_lock lock{mutex_};
    if (end_) return;
    end_ = status;
    auto done = std::exchange(waiting_, nullptr);
    lock.unlock();
    if (done) answer(std::move(done), status);
  }

 private:
  static void answer(ReadDone done, const absl::Status& end) {
    if (end.ok()) return done(std::string{});
    done(end);
  }

  const std::weak_ptr<HandoverLine> line_;
  const std::uint64_t connection_;
  const std::string ticket_;
  std::mutex mutex_;
  std::optional<absl::Status> end_;
  ReadDone waiting_;
};

std::shared_ptr<HandoverLine> HandoverLine::make(const boundary::Descriptor& descriptor, Watch watch, Opened opened) {
  const auto* transport = std::get_if<boundary::UnixTransport>(&descriptor.transport);
  if (transport == nullptr) return nullptr;
  return std::shared_ptr<HandoverLine>{new HandoverLine{descriptor, transport->socket_path, std::move(watch), std::move(opened)}};
}

HandoverLine::HandoverLine(const boundary::Descriptor& descriptor, std::string path, Watch watch, Opened opened)
    : path_{std::move(path)},
      descriptor_{descriptor},
      watch_{std::move(watch)},
      opened_{std::move(opened)},
      stop_{::eventfd(0, EFD_CLOEXEC)} {}

void HandoverLine::start() {
  thread_ = std::thread{[this] { run(); }};
}

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
      {
        const std::lock_guard lock{mutex_};
        socket_ = connection->get();
        ++connection_;
        up_ = true;
      }
      watch_connection(connection->get());
      wait_for_end(connection->get());
      {
        const std::lock_guard lock{mutex_};
        socket_ = -1;
        up_ = false;
      }
      ::shutdown(connection->get(), SHUT_RDWR);  // whoever watches it sees that
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
  const auto address = isolation::unix_address(path_);
  if (!address.ok()) return address.status();
  const timeval limit{kHandshakeDeadline.count(), 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), address->get(), address->length) != 0) return absl::ErrnoToStatus(errno, "hand-over connection");
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
  boundary::widen_line(fd);
  return absl::OkStatus();  // no close_notify: from here on the socket carries messages
}

void HandoverLine::watch_connection(int fd) {
  watch_(fd, [weak = weak_from_this(), number = connection_, decoder = std::make_unique<boundary::LineDecoder>()](int readable) {
    const auto line = weak.lock();
    if (!line) return false;
    const auto status = line->take(readable, number, *decoder);
    if (status.ok()) return true;
    if (line->is_current(number)) spdlog::warn("{}", std::string{status.message()});
    ::shutdown(readable, SHUT_RDWR);  // the line's thread sees that
    return false;
  });
}

/// Until the connection is shut down, by whichever end, or this line is to stop.
void HandoverLine::wait_for_end(int fd) {
  while (true) {
    bool any = false;
    {
      const std::lock_guard lock{mutex_};
      any = !waiting_.empty();
    }
    std::array<pollfd, 2> entries{{{fd, 0, 0}, {stop_.get(), POLLIN, 0}}};
    // Something may come to be expected during the wait, hence always a tick.
    const auto tick = any ? kExpiryTick : kIdleTick;
    if (::poll(entries.data(), entries.size(), static_cast<int>(tick.count())) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0 || entries[1].revents != 0) return;
    expire(Clock::now());
  }
}

bool HandoverLine::is_current(std::uint64_t connection) {
  const std::lock_guard lock{mutex_};
  return socket_ >= 0 && connection_ == connection;
}

absl::Status HandoverLine::take(int fd, std::uint64_t connection, boundary::LineDecoder& decoder) {
  if (auto status = boundary::receive_line(fd, decoder); !status.ok()) return status;
  while (true) {
    auto message = decoder.next();
    if (!message.ok()) return message.status();
    if (!*message) return absl::OkStatus();
    switch ((*message)->kind) {
      case boundary::LineKind::open:
        if (auto status = take_open(connection, (*message)->ticket, (*message)->payload); !status.ok()) return status;
        break;
      case boundary::LineKind::socket:
        take_socket(std::move((*message)->ticket), std::move((*message)->socket));
        break;
      case boundary::LineKind::over:
        if (const auto call = end_call((*message)->ticket))
          call->ended((*message)->payload.empty() ? absl::OkStatus() : absl::UnavailableError((*message)->payload));
        break;
      case boundary::LineKind::decision:
        return absl::InvalidArgumentError("the sandbox decides nothing");
    }
  }
}

absl::Status HandoverLine::take_open(std::uint64_t connection, const std::string& ticket, const std::string& payload) {
  auto response = boundary::decode_response(payload);
  auto* open = response.ok() ? std::get_if<boundary::NetworkConnected>(&response->response) : nullptr;
  if (open == nullptr) {
    const auto frame = boundary::encode_process_frame(boundary::Channel::tcp_decision,
                                                      boundary::encode_open_decision(boundary::OpenDecision::mediation_unavailable));
    decide(connection, ticket, frame).IgnoreError();
    return absl::OkStatus();
  }
  auto call = std::make_shared<Call>(weak_from_this(), connection, ticket);
  {
    const std::lock_guard lock{mutex_};
    if (socket_ < 0 || connection_ != connection) return absl::OkStatus();  // the runtime has refused it when the line broke
    if (calls_.size() >= kMaxCalls || !calls_.emplace(ticket, call).second)
      return absl::InvalidArgumentError("the sandbox opens a ticket twice, or more than it ends");
  }
  opened_(ticket, std::move(*open), std::move(call));
  return absl::OkStatus();
}

void HandoverLine::take_socket(std::string ticket, isolation::FileDescriptor socket) {
  absl::Status status =
      socket.valid() ? boundary::check_relay_socket(socket.get()) : absl::ResourceExhaustedError("no descriptor is left for a relay");
  if (const auto call = end_call(ticket)) call->ended(status);
  if (status.ok()) return arrived(std::move(ticket), std::move(socket));
  spdlog::warn("{}", std::string{status.message()});
  arrived(std::move(ticket), std::move(status));
}

std::shared_ptr<HandoverLine::Call> HandoverLine::end_call(const std::string& ticket) {
  const std::lock_guard lock{mutex_};
  const auto found = calls_.find(ticket);
  if (found == calls_.end()) return nullptr;
  auto call = found->second.lock();
  calls_.erase(found);
  return call;
}

absl::Status HandoverLine::decide(std::uint64_t connection, const std::string& ticket, const std::string& frame) {
  const std::lock_guard lock{mutex_};
  if (socket_ < 0 || connection_ != connection) return absl::UnavailableError("the line to the sandbox is gone");
  auto status = boundary::send_line(socket_, boundary::LineKind::decision, ticket, frame);
  if (absl::IsUnavailable(status)) ::shutdown(socket_, SHUT_RDWR);  // the thread sees it
  return status;
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
  std::map<std::string, std::weak_ptr<Call>> calls;
  {
    const std::lock_guard lock{mutex_};
    all.swap(waiting_);
    calls.swap(calls_);
  }
  for (auto& [ticket, entry] : all) entry.done(why);
  for (auto& [ticket, weak] : calls) {
    if (const auto call = weak.lock()) call->ended(why);
  }
}

}  // namespace openshell::supervisor
