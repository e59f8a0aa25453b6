#include "programs/supervisor/decision_relay.hpp"

#include <boost/json.hpp>

#include "policy/decision_record.hpp"

namespace openshell::supervisor {

namespace json = boost::json;

absl::StatusOr<DecisionRequest> parse_decision_request(std::string_view line) {
  json::error_code error;
  const auto parsed = json::parse({line.data(), line.size()}, error);
  const auto* object = error ? nullptr : parsed.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("the request for decisions is no JSON object");
  DecisionRequest out;
  for (const auto& [key, value] : *object) {
    if (key == "since" && value.is_string()) {
      auto time = policy::parse_record_time(std::string{value.get_string()});
      if (!time.ok()) return time.status();
      out.since = *time;
    } else if (key == "limit" && value.is_int64() && value.get_int64() >= 1) {
      out.limit = static_cast<std::size_t>(value.get_int64());
    } else {
      return absl::InvalidArgumentError("the request for decisions has a member that is neither a time `since` nor a positive `limit`");
    }
  }
  return out;
}

void DecisionRelay::run() {
  watch();
  read();
}

void DecisionRelay::abort() {
  relay_->reset();
  finish();
}

void DecisionRelay::finish() {
  std::function<void()> ended;
  {
    const std::lock_guard lock{mutex_};
    ended = std::exchange(ended_, nullptr);
  }
  if (ended) ended();
}

/// A peer that neither asks nor takes what it asked for does not hold the relay.
void DecisionRelay::watch() {
  std::uint64_t before;
  {
    const std::lock_guard lock{mutex_};
    if (!ended_) return;
    before = moves_;
  }
  timers_->after(kWait, [weak = weak_from_this(), before] {
    const auto self = weak.lock();
    if (!self) return;
    bool stuck;
    {
      const std::lock_guard lock{self->mutex_};
      stuck = self->moves_ == before;
    }
    stuck ? self->abort() : self->watch();
  });
}

void DecisionRelay::read() {
  relay_->read([self = shared_from_this()](absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) return self->abort();
    self->request_ += *bytes;
    const auto end = self->request_.find('\n');
    if (end != std::string::npos) return self->answer(std::string_view{self->request_}.substr(0, end));
    if (bytes->empty() || self->request_.size() > kMaxRequestBytes) return self->abort();
    self->read();
  });
}

void DecisionRelay::answer(std::string_view line) {
  const auto request = parse_decision_request(line);
  if (!request.ok()) return abort();
  records_ = log_->snapshot(request->since, request->limit);
  write();
}

void DecisionRelay::write() {
  std::string chunk;
  while (next_ < records_.lines.size() && chunk.size() < kChunk) {
    chunk += *records_.lines[next_++];
    chunk += '\n';
  }
  if (next_ == records_.lines.size()) {
    chunk += "{\"end\":true,\"dropped\":" + std::to_string(records_.dropped) + "}\n";
    last_ = true;
  }
  relay_->write(std::move(chunk), [self = shared_from_this()](const absl::Status& status) {
    if (!status.ok()) return self->abort();
    {
      const std::lock_guard lock{self->mutex_};
      ++self->moves_;
    }
    if (!self->last_) return self->write();
    self->relay_->shutdown_write();
    self->drain();
  });
}

/// Until the peer has ended its direction too, and a moment more: a relay that one side leaves is broken for the other, which may still
/// be reading the end of ours.
void DecisionRelay::drain() {
  relay_->read([self = shared_from_this()](const absl::StatusOr<std::string>& bytes) {
    if (bytes.ok() && !bytes->empty()) return self->drain();
    self->timers_->after(kLinger, [self] { self->abort(); });
  });
}

}  // namespace openshell::supervisor
