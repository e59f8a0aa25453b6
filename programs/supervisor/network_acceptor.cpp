#include "programs/supervisor/network_acceptor.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "egress/engine.hpp"
#include "isolation/boundary/framing.hpp"

namespace openshell::supervisor {
namespace {

/// PID_MAX_LIMIT of the kernel (proc(5), /proc/sys/kernel/pid_max): a greater number came from no process.
constexpr std::uint64_t kMaxPid = 4'194'304;

/// The relay stream of one open. Until the decision is on its way nothing else is written; after a refusal the stream is ended in order, so
/// that the workload's connect gets its errno.
class DecidedStream final : public egress::ByteStream, public std::enable_shared_from_this<DecidedStream> {
 public:
  DecidedStream(std::shared_ptr<egress::ByteStream> inner, std::function<void()> closed)
      : inner_{std::move(inner)}, closed_{std::move(closed)} {}
  ~DecidedStream() override { closed_(); }

  void decide(boundary::OpenDecision decision) {
    {
      const std::lock_guard lock{mutex_};
      deciding_ = true;
    }
    auto frame = boundary::encode_process_frame(boundary::Channel::tcp_decision, boundary::encode_open_decision(decision));
    const bool refused = decision != boundary::OpenDecision::relay_ready;
    inner_->write(std::move(frame), [self = shared_from_this(), refused](const absl::Status& status) { self->decided(status, refused); });
  }

  void read(ReadDone done) override { inner_->read(std::move(done)); }
  void write(std::string bytes, WriteDone done) override {
    std::unique_lock lock{mutex_};
    if (deciding_) {
      pending_ = std::move(bytes);
      pending_done_ = std::move(done);
      return;
    }
    lock.unlock();
    inner_->write(std::move(bytes), std::move(done));
  }
  void shutdown_write() override {
    std::unique_lock lock{mutex_};
    if (deciding_) {
      end_ = true;
      return;
    }
    lock.unlock();
    inner_->shutdown_write();
  }
  void reset() override {
    inner_->reset();
    std::unique_lock lock{mutex_};
    auto done = std::exchange(pending_done_, nullptr);
    lock.unlock();
    if (done) done(absl::AbortedError("the stream was reset"));
  }

 private:
  void decided(const absl::Status& status, bool refused) {
    std::unique_lock lock{mutex_};
    deciding_ = false;
    auto done = std::exchange(pending_done_, nullptr);
    auto bytes = std::exchange(pending_, {});
    const bool end = end_;
    lock.unlock();
    if (!status.ok()) {
      if (done) done(status);
      return inner_->reset();
    }
    if (refused) {
      inner_->shutdown_write();
      return drain();
    }
    if (done) {
      inner_->write(std::move(bytes), std::move(done));
    } else if (end) {
      inner_->shutdown_write();
    }
  }

  /// The sandbox ends a refused stream; until then it is kept, since letting go would cut it before the decision arrived.
  void drain() {
    inner_->read([self = shared_from_this()](const absl::StatusOr<std::string>& bytes) {
      if (bytes.ok() && !bytes->empty()) self->inner_->reset();
    });
  }

  const std::shared_ptr<egress::ByteStream> inner_;
  const std::function<void()> closed_;
  std::mutex mutex_;
  std::string pending_;
  WriteDone pending_done_;
  bool deciding_ = false;
  bool end_ = false;
};

boundary::OpenDecision to_wire(const egress::OpenDecision& decision) {
  const auto* denied = std::get_if<egress::OpenDenied>(&decision);
  if (!denied) return boundary::OpenDecision::relay_ready;
  switch (denied->kind) {
    case egress::DenialKind::kPolicyDenied:
      return boundary::OpenDecision::policy_denied;
    case egress::DenialKind::kIdentityUnavailable:
      return boundary::OpenDecision::identity_unavailable;
    case egress::DenialKind::kInvalidDestination:
      return boundary::OpenDecision::invalid_destination;
    case egress::DenialKind::kResourceExhausted:
      return boundary::OpenDecision::resource_exhausted;
    case egress::DenialKind::kMediationUnavailable:
      return boundary::OpenDecision::mediation_unavailable;
  }
  return boundary::OpenDecision::mediation_unavailable;
}

egress::BinaryEvidence to_evidence(const boundary::Executable& executable) { return {executable.path, executable.digest.value_or("")}; }

egress::SuppliedIdentity to_identity(const boundary::ProcessIdentity& identity) {
  if (const auto* failed = std::get_if<boundary::FailedIdentity>(&identity)) return egress::FailedIdentity{failed->message};
  const auto& resolved = std::get<boundary::ResolvedIdentity>(identity);
  egress::ResolvedIdentity out{to_evidence(resolved.executable), {}, resolved.cmdline_paths};
  for (const auto& ancestor : resolved.ancestors) out.ancestors.push_back(to_evidence(ancestor));
  return out;
}

/// "203.0.113.10:443" or "[2001:db8::5]:443".
absl::StatusOr<std::pair<egress::IpAddress, Port>> to_destination(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return absl::InvalidArgumentError("the destination of an open has no port");
  auto host = text.substr(0, colon);
  const auto digits = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  auto address = egress::IpAddress::parse(host);
  if (!address.ok()) return address.status();
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size() || port == 0)
    return absl::InvalidArgumentError("the destination of an open has a bad port");
  return std::pair{*address, Port{port}};
}

}  // namespace

void NetworkAcceptor::start() { fill(); }

void NetworkAcceptor::stop() {
  const std::lock_guard lock{mutex_};
  stopped_ = true;
}

std::size_t NetworkAcceptor::live() const {
  const std::lock_guard lock{mutex_};
  return live_;
}

std::uint64_t NetworkAcceptor::times_full() const {
  const std::lock_guard lock{mutex_};
  return times_full_;
}

void NetworkAcceptor::fill() {
  while (true) {
    {
      const std::lock_guard lock{mutex_};
      if (stopped_ || paused_ || waiting_ >= limits_.waiting) return;
      if (waiting_ + live_ >= limits_.streams) {
        if (waiting_ == 0 && ++times_full_ == 1) spdlog::warn("all {} mediated streams are in use; further opens wait", limits_.streams);
        return;
      }
      ++waiting_;
    }
    client_->open_once(make_uuid(), boundary::AcceptNetwork{}, std::nullopt,
                       [self = shared_from_this()](absl::StatusOr<Opened> opened) { self->accepted(std::move(opened)); });
  }
}

void NetworkAcceptor::accepted(absl::StatusOr<Opened> opened) {
  auto open =
      opened.ok() ? result_as<boundary::NetworkConnected>(opened->response) : absl::StatusOr<boundary::NetworkConnected>{opened.status()};
  {
    const std::lock_guard lock{mutex_};
    --waiting_;
    if (open.ok()) {
      ++live_;
      backoff_ = std::chrono::milliseconds{0};
    }
  }
  if (!open.ok()) return failed(!opened.ok());
  fill();
  serve(*open, std::move(opened->stream));
}

/// The accept loop pauses as a whole, since whatever failed one accept failed them all.
void NetworkAcceptor::failed(bool transport) {
  std::chrono::milliseconds wait;
  {
    const std::lock_guard lock{mutex_};
    if (stopped_ || std::exchange(paused_, true)) return;
    backoff_ = backoff_.count() == 0 ? limits_.first_backoff : std::min(backoff_ * 2, limits_.longest_backoff);
    wait = backoff_;
  }
  auto go_on = [self = shared_from_this(), wait](bool usable) {
    if (!usable) return self->stop();
    self->timers_->after(wait, [self] {
      {
        const std::lock_guard lock{self->mutex_};
        self->paused_ = false;
      }
      self->fill();
    });
  };
  if (transport) {
    client_->check_link(std::move(go_on));
  } else {
    go_on(true);
  }
}

void NetworkAcceptor::serve(const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> raw) {
  auto stream = std::make_shared<DecidedStream>(std::move(raw), [self = shared_from_this()] { self->closed(); });
  auto destination = to_destination(open.destination);
  if (!destination.ok()) return stream->decide(boundary::OpenDecision::invalid_destination);
  egress::OpenIntent intent;
  intent.address = destination->first;
  intent.port = destination->second;
  intent.identity = to_identity(open.identity);
  intent.socket_cookie = open.socket.socket_cookie;
  intent.nonblocking = open.socket.nonblocking;
  intent.pid = static_cast<std::int64_t>(std::min<std::uint64_t>(open.socket.process_generation, kMaxPid));
  engine_.open(std::move(intent), stream, [stream](const egress::OpenDecision& decision) { stream->decide(to_wire(decision)); });
}

void NetworkAcceptor::closed() {
  {
    const std::lock_guard lock{mutex_};
    --live_;
  }
  fill();
}

}  // namespace openshell::supervisor
