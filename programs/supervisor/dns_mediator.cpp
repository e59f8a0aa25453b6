#include "programs/supervisor/dns_mediator.hpp"

#include <algorithm>
#include <utility>

#include "egress/engine.hpp"

namespace openshell::supervisor {

void DnsMediator::start() {
  serial_.post([self = shared_from_this()] { self->open(); });
}

void DnsMediator::stop() {
  serial_.post([self = shared_from_this()] {
    self->stopped_ = true;
    if (self->stream_) self->stream_->reset();
    self->stream_.reset();
  });
}

void DnsMediator::open() {
  if (stopped_) return;
  client_->open_once(make_uuid(), boundary::OpenMediation{}, std::nullopt, [self = shared_from_this()](absl::StatusOr<Opened> result) {
    auto held = std::make_shared<absl::StatusOr<Opened>>(std::move(result));
    self->serial_.post([self, held] { self->opened(std::move(*held)); });
  });
}

void DnsMediator::opened(absl::StatusOr<Opened> result) {
  if (stopped_) return;
  if (!result.ok()) return reopen(true);
  if (!std::holds_alternative<boundary::MediationReady>(result->response)) return reopen(false);
  stream_ = std::move(result->stream);
  decoder_ = {};
  outgoing_.clear();
  in_flight_ = 0;
  ++epoch_;
  backoff_ = std::chrono::milliseconds{0};
  read();
}

void DnsMediator::read() {
  stream_->read([self = shared_from_this(), epoch = epoch_](absl::StatusOr<std::string> bytes) {
    auto held = std::make_shared<absl::StatusOr<std::string>>(std::move(bytes));
    self->serial_.post([self, held, epoch] {
      if (epoch == self->epoch_ && self->stream_) self->received(std::move(*held));
    });
  });
}

void DnsMediator::received(absl::StatusOr<std::string> bytes) {
  if (!bytes.ok() || bytes->empty() || !decoder_.append(*bytes).ok()) {
    stream_->reset();
    stream_.reset();
    return reopen(true);
  }
  while (auto frame = decoder_.next()) {
    if (frame->kind == boundary::MediationKind::dns_question) question(*frame);
  }
  read();
}

void DnsMediator::question(const boundary::MediationFrame& frame) {
  if (in_flight_ >= limits_.in_flight) return;
  ++in_flight_;
  const auto epoch = epoch_;
  const auto stream_id = frame.stream_id;
  auto question = boundary::decode_dns_question(frame.json);
  if (!question.ok()) return reply(epoch, stream_id, absl::InvalidArgumentError("the DNS question is malformed"));
  engine_.answer(question->tcp ? egress::DnsTransport::kTcp : egress::DnsTransport::kUdp, std::move(question->request),
                 [self = shared_from_this(), epoch, stream_id](std::optional<std::string> answer) {
                   boundary::DnsAnswer wire = absl::NotFoundError("no answer may be given");
                   if (answer) wire = *std::move(answer);
                   self->serial_.post([self, epoch, stream_id, wire = std::move(wire)] { self->reply(epoch, stream_id, wire); });
                 });
}

void DnsMediator::reply(std::uint64_t epoch, std::uint64_t stream_id, const boundary::DnsAnswer& answer) {
  if (epoch != epoch_ || !stream_) return;
  --in_flight_;
  outgoing_.push_back(
      boundary::encode_mediation_frame({boundary::MediationKind::dns_answer, stream_id, boundary::encode_dns_answer(answer)}));
  if (outgoing_.size() == 1) write_next();
}

void DnsMediator::write_next() {
  stream_->write(outgoing_.front(), [self = shared_from_this(), epoch = epoch_](const absl::Status& status) {
    self->serial_.post([self, epoch, ok = status.ok()] {
      if (epoch != self->epoch_ || !self->stream_ || !ok) return;  // a failure shows in the read
      self->outgoing_.pop_front();
      if (!self->outgoing_.empty()) self->write_next();
    });
  });
}

void DnsMediator::reopen(bool transport) {
  if (stopped_) return;
  ++epoch_;
  backoff_ = backoff_.count() == 0 ? limits_.first_backoff : std::min(backoff_ * 2, limits_.longest_backoff);
  auto go_on = [self = shared_from_this(), wait = backoff_](bool usable) {
    if (!usable) return;
    self->timers_->after(wait, [self] { self->serial_.post([self] { self->open(); }); });
  };
  if (transport) {
    client_->check_link(std::move(go_on));
  } else {
    go_on(true);
  }
}

}  // namespace openshell::supervisor
