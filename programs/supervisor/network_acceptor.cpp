#include "programs/supervisor/network_acceptor.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "egress/engine.hpp"
#include "isolation/boundary/framing.hpp"
#include "programs/supervisor/decided_stream.hpp"

namespace openshell::supervisor {
namespace {

/// PID_MAX_LIMIT of the kernel (proc(5), /proc/sys/kernel/pid_max): a greater number came from no process.
constexpr std::uint64_t kMaxPid = 4'194'304;

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

void NetworkAcceptor::fill() {
  const auto wanted = handover_ ? limits_.beside_line : limits_.waiting;
  while (true) {
    {
      const std::lock_guard lock{mutex_};
      if (stopped_ || paused_ || waiting_ >= wanted) return;
      if (live_ >= limits_.streams + limits_.refusals) {
        if (waiting_ == 0 && !std::exchange(told_full_, true))
          spdlog::warn("{} mediated streams are in use or ending; further opens wait", live_);
        return;
      }
      ++waiting_;
    }
    auto id = make_uuid();
    client_->open_once(id, boundary::AcceptNetwork{}, std::nullopt,
                       [self = shared_from_this(), id](absl::StatusOr<Opened> opened) { self->accepted(id, std::move(opened)); });
  }
}

void NetworkAcceptor::accepted(const std::string& id, absl::StatusOr<Opened> opened) {
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
  serve(id, *open, std::move(opened->stream));
}

void NetworkAcceptor::take(const std::string& ticket, const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> call) {
  {
    const std::lock_guard lock{mutex_};
    if (stopped_ || live_ >= limits_.streams + limits_.refusals) {
      const auto decision = stopped_ ? boundary::OpenDecision::mediation_unavailable : boundary::OpenDecision::resource_exhausted;
      call->write(boundary::encode_process_frame(boundary::Channel::tcp_decision, boundary::encode_open_decision(decision)),
                  [](const absl::Status&) {});
      return;
    }
    ++live_;
  }
  serve(ticket, open, std::move(call));
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

void NetworkAcceptor::serve(const std::string& id, const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> call) {
  auto stream = std::make_shared<DecidedStream>(std::move(call), [self = shared_from_this(), id] { self->closed(id); });
  auto destination = to_destination(open.destination);
  if (!destination.ok()) return stream->decide(boundary::OpenDecision::invalid_destination);
  egress::OpenIntent intent;
  intent.address = destination->first;
  intent.port = destination->second;
  intent.identity = to_identity(open.identity);
  intent.socket_cookie = open.socket.socket_cookie;
  intent.nonblocking = open.socket.nonblocking;
  intent.pid = static_cast<std::int64_t>(std::min<std::uint64_t>(open.socket.process_generation, kMaxPid));
  engine_.open(std::move(intent), stream, [self = shared_from_this(), stream, id](const egress::OpenDecision& decision) {
    self->decided(id, stream, to_wire(decision));
  });
}

/// An allowed relay gets the socket itself where it can; otherwise its bytes go over the call.
void NetworkAcceptor::decided(const std::string& id, const std::shared_ptr<DecidedStream>& stream, boundary::OpenDecision decision) {
  if (decision == boundary::OpenDecision::relay_ready && handover_ != nullptr) {
    const bool asked = handover_->expect(id, [weak = std::weak_ptr{stream},
                                              &engine = engine_](absl::StatusOr<isolation::FileDescriptor> socket) {
      const auto alive = weak.lock();
      if (!alive) return;  // the descriptor closes
      if (!socket.ok()) return alive->fail(socket.status());
      engine.adopt_socket(socket->release(), [alive](std::shared_ptr<egress::ByteStream> carrier) { alive->carry(std::move(carrier)); });
    });
    if (asked) decision = boundary::OpenDecision::relay_handover;
  }
  stream->decide(decision);
}

void NetworkAcceptor::closed(const std::string& id) {
  if (handover_) handover_->forget(id);
  {
    const std::lock_guard lock{mutex_};
    --live_;
  }
  fill();
}

}  // namespace openshell::supervisor
