#include "actors/sandbox/dns_stub.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <map>

#include "isolation/boundary/framing.hpp"

namespace openshell::sandbox {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;

namespace {

constexpr char kNoIdentity[] = "DNS sender identity is unavailable for kernel-driven socket writes";
constexpr std::size_t kTcpPrefix = 2;

class MediationStream;

class Stub final : public DnsStub, public std::enable_shared_from_this<Stub> {
 public:
  explicit Stub(asio::io_context& io) : io_{io}, udp_{io}, tcp_{io}, sweep_{io} {}

  absl::Status open(const std::string& address, std::uint16_t port) {
    error_code error;
    const auto ip = asio::ip::make_address(address, error);
    const auto failed = [&](const char* what) {
      return absl::FailedPreconditionError(fmt::format("DNS stub: {} on {}:{}: {}", what, address, port, error.message()));
    };
    if (error) return failed("address");
    udp_.open(udp::v4(), error);
    if (!error) udp_.bind({ip, port}, error);
    if (error) return failed("UDP");
    tcp_.open(tcp::v4(), error);
    // Past the TIME_WAIT of the qualification's own probe; a socket that listens there is refused all the same.
    if (!error) tcp_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) tcp_.bind({ip, udp_.local_endpoint().port()}, error);
    if (!error) tcp_.listen(64, error);
    if (error) return failed("TCP");
    port_ = udp_.local_endpoint().port();
    return absl::OkStatus();
  }

  void serve() {
    asio::co_spawn(io_, udp_loop(shared_from_this()), asio::detached);
    asio::co_spawn(io_, tcp_loop(shared_from_this()), asio::detached);
    asio::co_spawn(io_, sweep_loop(shared_from_this()), asio::detached);
  }

  std::uint16_t port() const override { return port_; }
  std::shared_ptr<CallStream> stream(std::function<void()> released) override;
  void stop() override {
    asio::post(io_, [self = shared_from_this()] {
      error_code ignored;
      self->stopped_ = true;
      self->udp_.close(ignored);
      self->tcp_.close(ignored);
      self->sweep_.cancel();
    });
  }
  Statistics statistics() const override { return {questions_, answers_, dropped_, expired_}; }

  // ---- used by the stream, on the executor

  void attach(const std::shared_ptr<MediationStream>& stream);
  void detach(const MediationStream* stream);
  void answered(std::uint64_t id, const boundary::DnsAnswer& answer) {
    const auto it = questions_waiting_.find(id);
    if (it == questions_waiting_.end()) return;  // too late
    auto question = std::move(it->second);
    questions_waiting_.erase(it);
    ++answers_;
    const auto* bytes = std::get_if<std::string>(&answer);
    question.done(bytes != nullptr && fits(*bytes, question.tcp) ? bytes : nullptr);
  }
  [[nodiscard]] std::string frame_of(std::uint64_t id) const {
    const auto it = questions_waiting_.find(id);
    if (it == questions_waiting_.end()) return {};
    const boundary::DnsQuestion question{it->second.bytes, it->second.tcp, boundary::FailedIdentity{kNoIdentity}, {}};
    std::string json = boundary::encode_dns_question(question);
    if (json.size() > boundary::kMaxMediationJsonBytes) return {};  // a question of more than 64 KiB; it expires
    return boundary::encode_mediation_frame({boundary::MediationKind::dns_question, id, std::move(json)});
  }

 private:
  struct Question {
    std::string bytes;
    bool tcp = false;
    std::chrono::steady_clock::time_point deadline;
    std::function<void(const std::string*)> done;  // null: drop it
  };

  static bool fits(const std::string& answer, bool over_tcp) {
    if (!over_tcp) return answer.size() <= kMaxUdpBytes;
    if (answer.size() < kTcpPrefix) return false;
    return (static_cast<std::size_t>(static_cast<unsigned char>(answer[0])) << 8 | static_cast<unsigned char>(answer[1])) ==
           answer.size() - kTcpPrefix;
  }

  bool ask(Question question);

  static asio::awaitable<void> udp_loop(std::shared_ptr<Stub> self) {
    std::vector<char> buffer(kMaxUdpBytes);
    error_code error;
    for (;;) {
      udp::endpoint from;
      const std::size_t n =
          co_await self->udp_.async_receive_from(asio::buffer(buffer), from, asio::redirect_error(asio::use_awaitable, error));
      if (self->stopped_ || error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
      if (error || n == 0) continue;  // an ICMP error of an earlier reply
      self->ask({std::string(buffer.data(), n), false, {}, [weak = std::weak_ptr{self}, from](const std::string* answer) {
                   const auto stub = weak.lock();
                   error_code ignored;
                   if (stub && answer && !stub->stopped_) stub->udp_.send_to(asio::buffer(*answer), from, 0, ignored);
                 }});
    }
  }

  static asio::awaitable<void> tcp_loop(std::shared_ptr<Stub> self) {
    error_code error;
    asio::steady_timer pause{self->io_};
    for (;;) {
      tcp::socket client = co_await self->tcp_.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (self->stopped_ || error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
      if (error) {
        pause.expires_after(std::chrono::milliseconds{100});
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      if (self->tcp_clients_ >= kMaxTcpClients) {
        ++self->dropped_;
        continue;  // closes
      }
      ++self->tcp_clients_;
      asio::co_spawn(self->io_, serve_client(self, std::make_shared<tcp::socket>(std::move(client))), asio::detached);
    }
  }

  /// Question after question of one TCP client; each step has the deadline of a question.
  static asio::awaitable<void> serve_client(std::shared_ptr<Stub> self, std::shared_ptr<tcp::socket> client) {
    error_code error;
    asio::steady_timer clock{self->io_};
    const auto arm = [&clock, weak = std::weak_ptr{client}] {
      clock.expires_after(kQuestionDeadline);
      clock.async_wait([weak](const error_code& cancelled) {
        error_code ignored;
        if (auto socket = weak.lock(); socket && !cancelled) socket->close(ignored);
      });
    };
    while (!self->stopped_) {
      arm();
      std::string message(kTcpPrefix, '\0');
      co_await asio::async_read(*client, asio::buffer(message), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      const std::size_t length =
          static_cast<std::size_t>(static_cast<unsigned char>(message[0])) << 8 | static_cast<unsigned char>(message[1]);
      if (length == 0) break;
      message.resize(kTcpPrefix + length);
      co_await asio::async_read(*client, asio::buffer(message.data() + kTcpPrefix, length),
                                asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      std::string reply;
      auto ready = std::make_shared<asio::steady_timer>(self->io_, asio::steady_timer::time_point::max());
      auto slot = std::make_shared<std::optional<std::string>>();
      const bool asked = self->ask({message, true, {}, [ready, slot](const std::string* answer) {
                                      slot->emplace(answer ? *answer : std::string());
                                      ready->cancel();
                                    }});
      if (!asked) break;
      arm();
      if (!slot->has_value()) co_await ready->async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (!slot->has_value() || (*slot)->empty()) break;
      arm();
      co_await asio::async_write(*client, asio::buffer(**slot), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
    }
    clock.cancel();
    --self->tcp_clients_;
  }

  static asio::awaitable<void> sweep_loop(std::shared_ptr<Stub> self) {
    error_code error;
    while (!self->stopped_) {
      self->sweep_.expires_after(std::chrono::milliseconds{500});
      co_await self->sweep_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      const auto now = std::chrono::steady_clock::now();
      while (!self->questions_waiting_.empty() && self->questions_waiting_.begin()->second.deadline <= now) {  // ids rise with time
        auto question = std::move(self->questions_waiting_.begin()->second);
        self->questions_waiting_.erase(self->questions_waiting_.begin());
        ++self->expired_;
        question.done(nullptr);
      }
    }
  }

  asio::io_context& io_;
  udp::socket udp_;
  tcp::acceptor tcp_;
  asio::steady_timer sweep_;
  std::uint16_t port_ = 0;
  std::size_t tcp_clients_ = 0;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Question> questions_waiting_;
  std::weak_ptr<MediationStream> stream_;
  bool stopped_ = false;
  std::atomic<std::uint64_t> questions_{0}, answers_{0}, dropped_{0}, expired_{0};
};

class MediationStream final : public CallStream, public std::enable_shared_from_this<MediationStream> {
 public:
  MediationStream(asio::io_context& io, std::shared_ptr<Stub> stub, std::function<void()> released)
      : io_{io}, stub_{std::move(stub)}, released_{std::move(released)} {}

  void start(std::shared_ptr<Call> call) override {
    asio::post(io_, [self = shared_from_this(), call = std::move(call)] {
      self->call_ = call;
      self->writable_ = true;
      call->read();
      self->stub_->attach(self);
    });
  }
  void received(std::string bytes) override {
    asio::post(io_, [self = shared_from_this(), bytes = std::move(bytes)] { self->take(bytes); });
  }
  void received_end() override {
    asio::post(io_, [self = shared_from_this()] {
      if (self->call_) self->call_->finish(CallEnd::done);
    });
  }
  void written() override {
    asio::post(io_, [self = shared_from_this()] {
      self->writable_ = true;
      self->pump();
    });
  }
  void ended() override {
    asio::post(io_, [self = shared_from_this()] {
      self->stub_->detach(self.get());
      self->call_.reset();
      if (auto released = std::exchange(self->released_, nullptr)) released();
    });
  }

  void send(std::uint64_t id) {
    ids_.push_back(id);
    pump();
  }

 private:
  void pump() {
    while (writable_ && call_ && !ids_.empty()) {
      std::string frame = stub_->frame_of(ids_.front());
      ids_.pop_front();
      if (frame.empty()) continue;  // it expired while it waited
      writable_ = false;
      call_->write(std::move(frame));
    }
  }

  void take(const std::string& bytes) {
    if (!call_) return;
    bool good = decoder_.append(bytes).ok();
    while (good) {
      auto frame = decoder_.next();
      if (!frame) break;
      auto answer = frame->kind == boundary::MediationKind::dns_answer
                        ? boundary::decode_dns_answer(frame->json)
                        : absl::StatusOr<boundary::DnsAnswer>{absl::InvalidArgumentError("not an answer")};
      good = answer.ok();
      if (good) stub_->answered(frame->stream_id, *answer);
    }
    if (!good || decoder_.dead()) {
      call_->finish(CallEnd::refused, "malformed mediation frame");
    } else {
      call_->read();
    }
  }

  asio::io_context& io_;
  std::shared_ptr<Stub> stub_;
  std::function<void()> released_;
  std::shared_ptr<Call> call_;
  boundary::MediationFrameDecoder decoder_;
  std::deque<std::uint64_t> ids_;  // at most kMaxQuestions: ids of waiting questions
  bool writable_ = false;
};

bool Stub::ask(Question question) {
  if (questions_waiting_.size() >= kMaxQuestions) {
    ++dropped_;
    return false;
  }
  ++questions_;
  question.deadline = std::chrono::steady_clock::now() + kQuestionDeadline;
  const std::uint64_t id = next_id_++;
  questions_waiting_.emplace(id, std::move(question));
  if (auto stream = stream_.lock()) stream->send(id);
  return true;
}

void Stub::attach(const std::shared_ptr<MediationStream>& stream) {
  stream_ = stream;
  for (const auto& [id, question] : questions_waiting_)
    stream->send(id);  // an answer on the way when the last stream broke is asked for again
}

void Stub::detach(const MediationStream* stream) {
  if (stream_.lock().get() == stream) stream_.reset();
}

std::shared_ptr<CallStream> Stub::stream(std::function<void()> released) {
  return std::make_shared<MediationStream>(io_, shared_from_this(), std::move(released));
}

}  // namespace

absl::StatusOr<std::shared_ptr<DnsStub>> DnsStub::bind(asio::io_context& io, const std::string& address, std::uint16_t port) {
  auto stub = std::make_shared<Stub>(io);
  if (auto status = stub->open(address, port); !status.ok()) return status;
  stub->serve();
  return std::shared_ptr<DnsStub>{std::move(stub)};
}

}  // namespace openshell::sandbox
